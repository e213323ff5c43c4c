# Python's sqlite3 and ctypes modules (callbacks into Python from C, errno, libraries), mmap, select.
# needs: python3
python3 - <<'X'
import sqlite3, ctypes, ctypes.util, mmap, select, os, socket
db = sqlite3.connect(":memory:")
db.execute("create table t(a integer primary key, b text, c real)")
db.executemany("insert into t values(?,?,?)", ((i, f"row {i % 37}", i / 3) for i in range(5000)))
print(db.execute("select b, count(*), round(sum(c), 3) from t group by b order by 2 desc, 1 limit 3").fetchall())
db.create_function("twice", 1, lambda n: n * 2)
print(db.execute("select twice(a) from t where a = 21").fetchone())
try: db.execute("select nonsense")
except sqlite3.OperationalError as e: print(e)
libc = ctypes.CDLL(None, use_errno=True)
compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))(lambda a, b: a[0] - b[0])
values = (ctypes.c_int * 6)(5, 3, 9, 1, 7, 2)
libc.qsort(values, 6, ctypes.sizeof(ctypes.c_int), compare)
print(list(values), libc.strlen(b"hello"), libc.open(b"/no/such", 0), ctypes.get_errno())
m = ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6"); m.pow.restype = ctypes.c_double; m.pow.argtypes = [ctypes.c_double] * 2
print(m.pow(2, .5))
class S(ctypes.Structure): _fields_ = [("a", ctypes.c_short), ("b", ctypes.c_double)]
print(ctypes.sizeof(S), S(1, 2.5).b)
with open("file", "wb+") as f:
    f.truncate(8192); mm = mmap.mmap(f.fileno(), 8192); mm[100:105] = b"hello"; mm.flush(); f.seek(100); print(f.read(5)); mm.close()
a, b = socket.socketpair(); b.send(b"x"); print(select.select([a], [], [], 5)[0] == [a], a.recv(1))
r, w = os.pipe(); p = select.epoll(); p.register(r, select.EPOLLIN); os.write(w, b"y"); print([e for _, e in p.poll(5)])
X
