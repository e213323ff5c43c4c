# gcc and g++: preprocess, compile, assemble, link, run; objects are compared byte by byte.
# needs: gcc g++ ar objdump
# timeout: 180
cat >a.c <<'X'
#include <stdio.h>
#include <math.h>
static double f(double x) { return sin(x) + x * x; }
int helper(int);
int main(int argc, char **argv) { printf("%s %d %.6f\n", argv[argc - 1], helper(20), f(argc)); return 3; }
X
cat >b.c <<'X'
int helper(int n) { int s = 0; for (int i = 0; i < n; i++) { switch (i % 5) { case 0: s += i; break; case 1: s ^= i; break; case 3: s <<= 1; default: s -= 2; } } return s; }
X
cat >c.cpp <<'X'
#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>
int main() { std::map<std::string, int> m; for (auto w : {"x", "yy", "x"}) m[w]++; std::vector<int> v{3, 1, 2}; std::sort(v.begin(), v.end()); for (auto &p : m) std::cout << p.first << p.second; for (int i : v) std::cout << i; std::cout << std::endl; }
X
gcc -O2 -c a.c -o a.o; gcc -O3 -g0 -S b.c -o b.s; gcc -c b.s -o b.o; ar Drc libb.a b.o; gcc a.o -L. -lb -lm -o prog
./prog arg || echo "status $?"
g++ -O1 c.cpp -o cpp && ./cpp
echo 'int main( {' | gcc -x c - -o broken 2>&1 | grep -c error || true
objdump -d b.o | tail -3; nm prog | grep -c ' T '
