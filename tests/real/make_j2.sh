# make -j2 over a small C project, then again with nothing to do.
# needs: make gcc
# timeout: 180
for i in 1 2 3 4 5 6; do echo "int part$i(int n) { int s = 0; while (n-- > 0) s += n * $i; return s; }" >part$i.c; done
{ for i in 1 2 3 4 5 6; do echo "int part$i(int);"; done; echo '#include <stdio.h>'; printf '%s\n' 'int main(void) { printf("%d\n", part1(5) + part2(6) + part3(7) + part4(8) + part5(9) + part6(10)); }'; } >main.c
printf 'OBJ = main.o $(patsubst %%,part%%.o,1 2 3 4 5 6)\nprog: $(OBJ)\n\tgcc -o $@ $(OBJ)\n%%.o: %%.c\n\tgcc -O2 -c $< -o $@\nfail:\n\tfalse\n' >Makefile
make -j2 | sort; ./prog; make; touch -d '2030-01-01' part3.c; make -n 2>/dev/null; make fail 2>&1 | grep -o 'Error 1'
