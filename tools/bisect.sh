#!/bin/sh
# Finds the block whose optimisation breaks a program.
#
#     tools/bisect.sh EXPECTED COMMAND [ARGS...]
#
# EXPECTED is a file with what COMMAND prints when it runs right (stdout; the status must be 0).
# Runs COMMAND under clew with only the first N blocks optimised, for N by binary search, and names
# the first block that must not be. Works for programs that translate the same blocks each time:
# one process, one thread, no time or chance. $CLEW names the command to use, CLEW_DEBUG more
# debugging switches.
set -eu

if [ $# -lt 2 ]; then
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
expected=$1
shift
clew=${CLEW:-target/x86_64-unknown-linux-musl/release/clew}
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# Does the program run right with the first $1 blocks optimised?
right() {
    n=$1
    shift
    timeout "${TIMEOUT:-60}" "$clew" run --no-cache --debug "bisect=$n" -- "$@" \
        >"$out" 2>/dev/null </dev/null && cmp -s "$out" "$expected"
}

if ! right 0 "$@"; then
    echo "bisect: wrong without any optimisation too; try: $clew run --no-cache --debug lockstep -- $*"
    exit 1
fi
good=0
bad=64
while right "$bad" "$@"; do
    good=$bad
    bad=$((bad * 4))
    if [ "$bad" -gt 100000000 ]; then
        echo "bisect: right with all blocks optimised; nothing to find"
        exit 1
    fi
done
while [ $((bad - good)) -gt 1 ]; do
    middle=$(((good + bad) / 2))
    if right "$middle" "$@"; then good=$middle; else bad=$middle; fi
done
echo "bisect: right with $good blocks optimised, wrong with $bad: block $good is at fault"
echo "$clew run --no-cache --debug bisect=$bad,dump=$good -- $*"
