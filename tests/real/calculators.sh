# bc, dc and ed.
# needs: bc ed
echo 'scale=400; 4*a(1)' | BC_LINE_LENGTH=0 bc -l
echo 'define f(n) { if (n < 2) return 1; return n * f(n-1) }; f(60); 2^200; sqrt(2); obase=16; 255' | bc
cp "$0" text
ed -s text <<'X'
1,3d
1i
inserted line
.
,s/bc/BC/g
1,2p
$=
w
q
X
head -2 text
