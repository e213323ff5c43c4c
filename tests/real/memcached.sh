# memcached with four threads under twenty clients.
# needs: memcached python3
# timeout: 120
. "$LIB/wait.sh"
memcached -u "$(id -un)" -s "$PWD/s" -t 4 -m 16 &
wait_for test -S s
cat >client.py <<'X'
import socket, threading, collections
totals = collections.Counter()
def client(n):
    s = socket.socket(socket.AF_UNIX); s.connect("s"); f = s.makefile("rwb")
    for i in range(150):
        f.write(b"set k%d-%d 0 0 5\r\nhello\r\nget k%d-%d\r\nincr total 1\r\n" % (n, i, n, i)); f.flush()
        assert f.readline() == b"STORED\r\n"
        assert f.readline().startswith(b"VALUE"); assert f.readline() == b"hello\r\n"; assert f.readline() == b"END\r\n"; f.readline()
        totals["ok"] += 1
s = socket.socket(socket.AF_UNIX); s.connect("s"); s.sendall(b"set total 0 0 1\r\n0\r\n"); s.recv(100)
ts = [threading.Thread(target=client, args=(n,)) for n in range(20)]
[t.start() for t in ts]; [t.join() for t in ts]
s.sendall(b"get total\r\n"); print(totals["ok"], s.recv(100))
X
/usr/bin/env python3 client.py
kill %1 2>/dev/null || kill $!
wait $! 2>/dev/null || echo "status $?"
rm -f s
