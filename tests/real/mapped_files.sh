# A file mapped shared and changed by every kind of call that writes to files; read through the mapping.
# needs: python3
python3 - <<'P'
import ctypes, mmap, os
f = os.open("m", os.O_RDWR | os.O_CREAT); os.ftruncate(f, 10000); m = mmap.mmap(f, 10000)
os.pwrite(f, b"hello", 100); print(m[100:105]); os.lseek(f, 4090, 0); os.write(f, b"0123456789"); print(m[4090:4100])
a = os.open("m", os.O_RDWR | os.O_APPEND); os.ftruncate(f, 9990); os.write(a, b"app"); os.pwrite(a, b"end", 7); os.ftruncate(f, 10000); print(m[9988:])
g = os.open("g", os.O_RDWR | os.O_CREAT); os.write(g, b"G" * 500); os.copy_file_range(g, f, 300, 0, 5000); print(m[4999:5003])
os.sendfile(f, g, 0, 10); print(m[4100:4112]); os.writev(f, [b"ab", b"cd"]); print(m[4108:4116])
os.ftruncate(f, 5000); os.ftruncate(f, 10000); print(m[4990:5004], sum(m[:])); os.truncate("m", 4096); os.truncate("m", 10000); print(m[4090:4100])
r, w = os.pipe(); os.write(w, b"splice"); os.lseek(f, 200, 0); os.splice(r, f, 6); print(m[198:208]); os.posix_fallocate(f, 0, 12000)
print(ctypes.CDLL(None).fallocate(f, 3, ctypes.c_long(0), ctypes.c_long(4096)), m[95:110]); open("m", "r+b").write(b"xyz"); print(m[:4])
b = open("m", "wb"); b.truncate(10000); print(m[:4]); b.write(b"qqq"); b.flush(); print(m[:4], sum(m[:]))
P
rm m g
