# C++ with a heap of 1 GiB, gcc on 16,000 lines, xz and zstd with threads on 30 MB; built beforehand.
# needs: xz zstd gcc
# run: long
# timeout: 300
./cpp large
seq 1 1600 | sed 's/.*/static int f&(int a, int *b) {\n int s = 0;\n for (int i = 0; i < a; i++) {\n  s += b[i] * &;\n  if (s % 3 == 1) s ^= a + &;\n  else s -= b[i >> 1];\n }\n return s;\n}\nint g&(int a, int *b) { return f&(a, b) + f&(a + 1, b); }/' >big.c
gcc -O2 -c big.c -o big.o && cksum <big.o
seq 1 4000000 | xz -T2 -1 | xz -dc | cksum
seq 1 4000000 | zstd -q -T4 -9 | zstd -dcq | cksum
rm big.o
