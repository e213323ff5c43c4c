# Coreutils and findutils on files of their own making.
# needs: sort find xargs tar
# ignore: t.tar
seq 1 20000 >numbers
sort -rn numbers | head -3
sort -R --random-source=numbers numbers | md5sum
shuf --random-source=numbers -n 5 numbers
awk '{print $1 % 100}' numbers | sort | uniq -c | sort -k1nr -k2n | head -3
sort --parallel=2 -S 1M numbers | md5sum
wc numbers; cut -c1-2 numbers | sort -u | wc -l; tr 0-9 a-j <numbers | tail -1
md5sum numbers; sha1sum numbers; sha256sum numbers; sha512sum numbers; cksum numbers; b2sum numbers
base64 numbers | base64 -d | cmp - numbers && echo same
od -A x -t x1z numbers | sed -n 3p; split -l 7000 numbers part.; ls part.*; cat part.* | cmp - numbers
mkdir -p tree/a/b/c; for f in tree/one tree/a/two tree/a/b/three; do echo "$f" >$f; done
ln -s one tree/link; ln tree/one tree/hard; cp -a tree copy; diff -r tree copy && echo equal
find tree -type f | sort | xargs cat | sort; find tree -name '*o*' -printf '%p %s %y\n' | sort
find tree -type f -print0 | sort -z | xargs -0 -n 1 -P 2 basename | sort
mv tree/one tree/uno; rm -r copy; ls -R tree; readlink tree/link; stat -c '%a %F %s' tree/uno
touch -d '2020-01-02 03:04:05' tree/uno; date -r tree/uno +%F_%T; date -d @1000000000 +%s_%A
dd if=numbers of=piece bs=1000 skip=2 count=3 2>/dev/null; wc -c <piece; truncate -s 10 piece; cat piece
paste -d: piece piece | head -2; nl piece | tail -1; tac piece | head -1; rev piece | head -1; fold -w 3 piece | head -2
expr 6 \* 7; factor 1234567890123; printf '%s %d\n' word 7; echo a b c | tee copy1 | tr ' ' '\n' | comm -12 - copy1 || true
timeout 0.1 sleep 10 || echo "timeout $?"; nice -n 5 nice; env -i A=1 env; nproc; id -u; uname -s; basename /x/y.z .z; dirname /x/y
mkfifo fifo; (echo through fifo >fifo) & cat fifo; wait; rm fifo
test -d tree && [ ! -e nothing ] && echo tests; ls nothing 2>&1 || echo "ls $?"
df . >/dev/null && du -s --apparent-size tree >/dev/null && echo disks; sync; tty || true; pathchk ok; numfmt --to=si 123456
tar cf - tree --sort=name --mtime=@0 --owner=0 --group=0 | md5sum; tar cf t.tar tree; mkdir out; tar xf t.tar -C out; find out | sort
rm t.tar
