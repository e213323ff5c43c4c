# FreePascal: a program without libc, with system calls of its own.
# needs: fpc
# run: long
# timeout: 120
cat >work.pas <<'X'
{$mode objfpc}
program work;
uses sysutils;
var i: longint; s: int64;
begin
  s := 0;
  for i := 1 to 100000 do s := s + i * 3 mod 7;
  try raise Exception.Create('planned'); except on e: Exception do writeln(e.message); end;
  try i := 0; writeln(5 div i); except on e: EDivByZero do writeln('division'); end;
  writeln(s);
end.
X
fpc -O1 work.pas >/dev/null 2>&1
./work
rm -f work work.o
