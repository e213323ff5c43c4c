# grep, sed and awk over a made-up log, with regular expressions of many kinds.
# needs: grep sed awk diff
awk 'BEGIN { srand(1); for (i = 0; i < 5000; i++) printf "%d host%d GET /page/%d.html %d %s\n", i, i * 7 % 13, i * 31 % 101, i % 9 == 0 ? 404 : 200, i % 17 ? "ok" : "slow" }' >log
grep -c 404 log; grep -E 'host(3|7) .*[05]\.html' log | wc -l; grep -P '(?<=page/)9\d' log | head -2; grep -vn ok log | tail -1
grep -o 'host[0-9]*' log | sort | uniq -c; grep -F -w 77 log | head -1; grep -i -A1 -B1 'GET /PAGE/5.html 404' log | head -4
sed -n '/slow/{s/host\([0-9]*\)/H<\1>/;p}' log | head -3; sed -E 's/([0-9]+)\.html/\1.txt/g; 3q' log; sed '$!d;s/ .*//' log
sed -e ':a' -e 'N;$!ba' -e 's/\n/,/g' log | md5sum; sed -i 's/GET/PUT/' log; grep -c PUT log
awk '{ n[$2] += $4; c[$2]++ } END { for (h in n) print h, n[h], c[h] }' log | sort
awk -F'[ /.]' '{ print length($0), toupper($3), substr($0, 5, 6) }' log | sort -u | head -3
awk 'BEGIN { for (i = 1; i < 300; i++) s += sin(i) * exp(-i / 100); printf "%.9f\n", s; "echo piped" | getline x; print x; print index("hello", "ll"), match("abc123", /[0-9]+/), RSTART }'
awk 'function f(n) { return n < 2 ? n : f(n - 1) + f(n - 2) } BEGIN { print f(19) }'
diff -u /dev/null log | head -5 | tail -2; cmp log log && echo same
