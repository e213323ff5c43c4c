#!/bin/sh
# Shows the main job on tools/demo/jobs.c, a queue with a rare mistake: plain runs pass, a hunt finds the failing run, its
# recording is the same at every replay, gdb goes back from the crash to the cause, and clew why does it by itself. Fails if anything isn't as it says.
#
#     tools/demo.sh [CLEW]            what it makes stays in target/demo ($DEMO_DIR), to go on by hand;
#                                     $DEMO_RUNS plain runs instead of a thousand
set -eu
here=$(dirname "$(realpath "$0")")
clew=$(realpath "${1:-$here/../target/x86_64-unknown-linux-musl/release/clew}")
dir=$(realpath -m "${DEMO_DIR:-$here/../target/demo}")
plain=${DEMO_RUNS:-1000}
rm -rf "$dir"
mkdir -p "$dir"
cp "$here/demo/jobs.c" "$here/demo/back.gdb" "$dir"
cd "$dir"
export CLEW_DIR="$dir/recordings"
ulimit -c 0
exec </dev/null
began=$(date +%s)

bold='' blue='' green='' red='' dim='' off=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$(printf '\033[1m') blue=$(printf '\033[36m') green=$(printf '\033[32m')
    red=$(printf '\033[31m') dim=$(printf '\033[2m') off=$(printf '\033[0m')
fi
clew() { "$clew" "$@"; }
step() { printf '\n%s%s%s\n' "$bold" "$*" "$off"; }
typed() { printf '%s$ %s%s\n' "$blue" "$*" "$off"; }
shown() { printf '%s%s%s\n' "$green" "$*" "$off"; }
fail() {
    printf '%sdemo: %s%s\n' "$red" "$*" "$off" >&2
    exit 1
}

step "1. jobs.c: clients hand in blocks, two workers write them to a file, a client may cancel. There is a mistake in it."
typed gcc -O2 -g -pthread jobs.c -o jobs
gcc -O2 -g -pthread jobs.c -o jobs
typed './jobs | tail -n 5'
./jobs >once || fail "a plain run failed, which is very rare: please try again"
tail -n 5 once

step "2. A thousand plain runs (or what fits into ten seconds): nothing."
typed 'for i in $(seq '"$plain"'); do ./jobs >/dev/null || break; done'
runs=0 limit=$(($(date +%s) + 10))
while [ $runs -lt "$plain" ]; do
    ./jobs >/dev/null || fail "plain run $runs failed, which is very rare: please try again"
    runs=$((runs + 1))
    [ $((runs % 50)) -eq 0 ] || continue
    [ ! -t 1 ] || printf '\r%s runs' $runs
    [ "$(date +%s)" -lt $limit ] || break
done
[ ! -t 1 ] || printf '\r'
shown "$runs runs, all fine"

step "3. The same program under one schedule after the other, each run recorded, until one fails."
typed clew hunt ./jobs
clew hunt ./jobs >hunt || fail "the hunt found nothing: $(cat hunt)"
cat hunt
grep -q '^found: jobs-1, SIGSEGV' hunt || fail "that isn't the crash of jobs.c"

step "4. The recording is that run: the same crash, and even the same time of day (in microseconds), in every replay."
typed 'clew replay jobs-1 >first;  echo status $?'
status=0
clew replay jobs-1 >first 2>replay.err || status=$?
echo "status $status"
[ $status -eq 139 ] || fail "not the status of a crash: $(cat replay.err)"
typed 'clew replay jobs-1 >second; echo status $?'
again=0
clew replay jobs-1 >second 2>replay.err || again=$?
echo "status $again"
typed 'cmp first second && tail -n 3 second'
cmp first second || fail "the replays differ"
[ $again -eq $status ] || fail "the replays end differently"
grep -q 'job 0: from anna' second || fail "the replay printed nothing"
tail -n 3 second

step "5. gdb opens at the crash: the job is full of 6b, so it was freed. By whom? Watch it, and run backwards."
typed clew debug jobs-1 -- -q -batch -x back.gdb
clew debug jobs-1 -- -q -batch -x back.gdb >gdb 2>gdb.err || fail "gdb failed: $(cat gdb.err gdb)"
# A plus marks the commands of a script, and those that they are made of, which nobody types.
sed -e '/^Reading symbols/d' -e '/^\[Inferior/d' -e '/^+continue/d' -e "s/^+\(.*\)/$blue(gdb) \1$off/" gdb
line() { grep -nF "$1" jobs.c | cut -d: -f1; }
crash=$(line 'job->client->cancelled++') freed=$(line 'memset(job, 0x6b') found=$(line 'job = find_job(id)') held=$(line '    hold_job(job);')
# Where the canceller is while the job is freed: in the last frame of that name.
stands=$(sed -n 's/^#.* cancel (.*jobs\.c:\([0-9]*\)$/\1/p' gdb | tail -n 1)
grep -q "in cancel (.*jobs.c:$crash$" gdb || fail "the crash isn't in line $crash"
grep -q "free_job (.*jobs.c:$freed$" gdb || fail "gdb didn't stop where the job is freed, line $freed"
grep -q "worker (.*jobs.c" gdb || fail "it isn't a worker that frees the job"
[ "${stands:-0}" -ge "$found" ] && [ "$stands" -le "$held" ] || fail "the canceller isn't between lines $found and $held"
shown "The cause: a worker frees the job in line $freed, while cancel has found it (line $found) but has no reference yet
(line $held). Both are done under the lock, but not both at once."

step "6. Which switch of threads does it take? Led by the order of accesses to memory, then with fewer switches again and again."
typed clew hunt --sched idiom --minimize ./jobs
clew hunt --sched idiom --minimize ./jobs >minimized || fail "the hunt found nothing: $(cat minimized)"
sed '/^  \(replay\|debug\|again\) /d' minimized
grep -q '^minimized: jobs-3, SIGSEGV' minimized || fail "it wasn't minimized"
grep -q 'was switched away here .* in \(cancel\|find_job\|hold_job\)$' minimized || fail "not the switch between find_job and hold_job"

step "7. Repaired: find_job takes the reference, before it gives up the lock. The hunt finds nothing any more."
sed -e "$held d" -e 's/struct job \*job = unfinished\[id\];/&\n    if (job != NULL) job->refs++;/' -e '/^static void hold_job/,/^}/d' jobs.c >repaired.c
typed diff jobs.c repaired.c
diff jobs.c repaired.c && fail "nothing was repaired"
typed gcc -O2 -g -pthread repaired.c -o repaired
gcc -O2 -g -pthread repaired.c -o repaired
typed clew hunt --runs 300 --time 10s ./repaired
found=0
clew hunt --runs 300 --time 10s ./repaired || found=$?
[ $found -eq 1 ] || fail "the cause was another one"

step "8. And in one question: clew follows the wrong pointer back by itself, to the line and the thread that made it wrong."
typed clew why jobs-1
clew why jobs-1 >why || fail "it doesn't know why: $(cat why)"
cat why
sed -n '/^=>/,/jobs\.c:/p' why | grep -q "jobs.c:$freed in free_job" || fail "the cause isn't told to be line $freed"

step "Go on by hand. This took $(($(date +%s) - began)) seconds, and everything is in target/demo:"
cat <<END
  cd $dir
  export CLEW_DIR=$CLEW_DIR PATH=$(dirname "$clew"):\$PATH
  clew alerts jobs-1                   everything notable in that run
  clew debug jobs-1                    gdb at the crash: reverse-next, reverse-continue, info threads
  clew dump jobs-1 | less              every system call, and every switch of threads, to the instruction
  clew debug jobs-3                    the one with as few switches as it takes
  clew hunt --keep 5 ./jobs            five more failing runs
  clew pack jobs-1 -o jobs-1.clew      one file for a colleague, who needs neither the program nor its libraries
  clew record PROG; clew hunt PROG     your own program
END
