# Dash: pipelines, subshells, signals, loops with many short processes.
# needs: dash
cat >script <<'END'
i=0; while [ $i -lt 60 ]; do /bin/true; i=$((i + 1)); done; echo "$i processes"
n=$(seq 1 1000 | awk '{s += $1} END {print s}'); echo "$n"
( cd /; pwd ); pwd | sed 's,.*/,,'
trap 'echo got HUP' HUP; kill -HUP $$
for f in a b c; do echo $f >$f; done; cat *[abc] | sort -r
case abc in a*) echo match;; esac
false || echo "or $?"; true && echo and
set -- x y z; shift; echo "$# $1"
sh -c 'exit 9'; echo "status $?"
sh -c 'kill -9 $$'; echo "status $?"
echo in | { read v; echo "read $v"; }
cmd=$(command -v ls); echo "${cmd##*/}"
no-such-command; echo "status $?"
/etc/passwd; echo "status $?"
END
dash script 2>&1
