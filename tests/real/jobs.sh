# Bash with job control and traps: background jobs stopped, continued, killed; a coprocess.
# needs: bash ps
# stops: own
bash -c '
set -m
sleep 100 & echo "jobs $(jobs | wc -l)"; kill %1; wait %1; echo "status $?"
set +m
(kill -STOP $BASHPID; echo continued) & p=$!
until case $(ps -o stat= -p $p) in T*) true;; *) false;; esac; do :; done
kill -CONT $p; wait $p; echo "status $?"
trap "echo int" INT; kill -INT $$; trap - INT
trap "echo chld" CHLD; (exit 3) & wait; trap - CHLD
sh -c "trap \"\" TERM; kill -TERM \$\$; echo survived"
coproc { while read -r x; do echo "<$x>"; done; }
for i in 1 2 3; do echo $i >&${COPROC[1]}; read -r y <&${COPROC[0]}; echo $y; done
eval "exec ${COPROC[1]}>&-"; wait
(sleep 100 & echo $! >pid; wait) & until [ -s pid ]; do :; done; kill $(cat pid); wait
' 2>/dev/null
rm -f pid
