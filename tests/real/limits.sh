# Programs under small limits: descriptors, file size, address space, stack.
# needs: bash python3 perl
(ulimit -n 12; ls / | wc -l >/dev/null; md5sum <"$0"; bash -c 'exec 9</dev/null; echo "nine $?"; exec 15</dev/null' 2>/dev/null || echo "status $?")
(ulimit -f 4; seq 1 100000 >big || echo "status $?"; wc -c <big) 2>/dev/null
(ulimit -v 4000000; python3 -c 'x = bytearray(100); print(len(x))')
(ulimit -s 512; perl -e 'print "small stack\n"')
(ulimit -c 0; sh -c 'kill -SEGV $$' || echo "status $?") 2>/dev/null
