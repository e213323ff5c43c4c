#!/bin/sh
# Shows the main job: a run with a race is recorded once and gives the same result at every replay.
set -eu
clew=$(realpath "${1:-target/x86_64-unknown-linux-musl/release/clew}")
source=$(realpath "$(dirname "$0")/demo/lost.c")
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
gcc -O2 -g -pthread "$source" -o lost
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
echo 'clew record PROG; clew replay; clew info; clew dump; docs/recordings.md says more.'
