#!/bin/sh
# Shows the main job: a run is recorded once, is the same at every replay, and leads back from its failure to the cause.
set -eu
clew=$(realpath "${1:-target/x86_64-unknown-linux-musl/release/clew}")
sources=$(realpath "$(dirname "$0")/demo")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export CLEW_DIR="$dir/recordings"

if [ -t 1 ]; then bold=$(printf '\033[1m') dim=$(printf '\033[2m') off=$(printf '\033[0m'); else bold='' dim='' off=''; fi
title() { printf '\n%s%s%s\n' "$bold" "$*" "$off"; }
status() { [ "$1" -eq 0 ] || printf '%s(status %d)%s\n' "$dim" "$1" "$off"; }
# Prints the command as a person would type it, then runs it.
try() {
    printf '%s$ %s%s\n' "$dim" "$*" "$off"
    s=0
    "$@" || s=$?
    status $s
}
clew() { "$clew" "$@"; }

title 'Four threads book into one account without a lock. No two runs are alike'
gcc -O2 -g -pthread "$sources/lost.c" -o lost
try ./lost
try ./lost

title 'Recorded once, with its race'
try clew record ./lost

title 'Replayed, it is the same run again: same races, same result, every time'
try clew replay
try clew replay
try clew replay -q --verify

title 'What happened, event by event: system calls, switches of threads to the instruction'
printf '%s$ clew dump | grep switched | head -4%s\n' "$dim" "$off"
clew dump >events && grep -m 4 -i 'switch' events

title 'A crash, long after another thread spoiled a pointer (session.c)'
gcc -O1 -g -pthread "$sources/session.c" -o session
try clew record ./session

title 'gdb opens at the crash. Who wrote that pointer? Backwards to it'
try clew debug -- -q -batch -ex 'print session.parent' -ex 'watch -l session.parent' -ex reverse-continue -ex 'print name'

title 'The same as a question: where does this stop being true?'
try clew watch session-1 'session.parent == &root'

title 'Every process is recorded: a shell, its children, a pipe, the clock'
try clew record -n pipe sh -c 'date +%s.%N | tee clock | wc -c; cat clock'
rm clock
try clew replay pipe

title 'The recording is a folder that no one else can read; packed, it is one file for a colleague'
try clew ls
try clew pack pipe -o pipe.clew
try clew unpack pipe.clew -n from-elsewhere
try clew replay from-elsewhere

title 'Go on by hand'
echo 'clew record PROG; clew replay; clew debug; clew watch; clew dump. docs/recordings.md, docs/debug.md and docs/watch.md say more.'
