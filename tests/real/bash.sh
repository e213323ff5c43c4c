# Bash: arrays, functions, traps, here documents, process substitution, background jobs, arithmetic.
# needs: bash
cat >script.bash <<'END'
set -u
declare -A map
for i in {1..200}; do map[k$i]=$((i * i)); done
sum=0; for k in "${!map[@]}"; do ((sum += map[$k])); done; echo "sum $sum"
fact() { local n=$1; ((n < 2)) && { echo 1; return; }; echo $((n * $(fact $((n - 1))))); }
fact 12
trap 'echo trapped USR1' USR1; kill -USR1 $$
trap 'echo bye' EXIT
diff <(seq 1 5) <(seq 2 6) | cat
while read -r a b; do echo "$b-$a"; done <<X
one two
three four
X
for i in 1 2 3; do (exit $i) & pids[i]=$!; done
for i in 1 2 3; do wait "${pids[i]}"; echo "job $i: $?"; done
coproc CAT { cat; }; echo through coproc >&"${CAT[1]}"; read -r line <&"${CAT[0]}"; echo "$line"
eval "exec ${CAT[1]}>&-"; wait
s=abcdef; echo "${s:2:3} ${s/cd/XX} ${s^^} ${#s}"
[[ foo123 =~ ([a-z]+)([0-9]+) ]] && echo "${BASH_REMATCH[2]} ${BASH_REMATCH[1]}"
printf '%05d|%-8s|%x\n' 42 left 255
echo {a,b}{1,2} | tr ' ' '\n' | sort -r | paste -sd,
(ulimit -t 50; echo "limit $(ulimit -t)")
exec 7>file; echo to seven >&7; exec 7>&-; cat file
yes | head -1000 | wc -l
(kill -TERM $BASHPID); echo "killed: $?"
set -o pipefail; false | true; echo "pipefail $?"
END
bash script.bash
echo "status $?"
