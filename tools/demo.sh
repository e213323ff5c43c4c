#!/bin/sh
# Shows what clew can do so far: programs as they are, run through its translator.
set -eu
clew=$(realpath "${1:-target/x86_64-unknown-linux-musl/release/clew}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

if [ -t 1 ]; then bold=$(printf '\033[1m') dim=$(printf '\033[2m') off=$(printf '\033[0m'); else bold='' dim='' off=''; fi
title() { printf '\n%s%s%s\n' "$bold" "$*" "$off"; }
# Prints the command as a person would type it, then runs it.
try() {
    printf '%s$ clew run %s%s\n' "$dim" "$*" "$off"
    "$clew" run "$@" || printf '%s(status %d)%s\n' "$dim" $? "$off"
}

title 'Any x86-64 program runs under the engine, as it is'
try /bin/echo 'hello from the code cache'
try sh -c 'seq 1 5 | sort -r | paste -sd, && exit 3'

title 'Interpreters, threads, children'
try python3 -c 'import threading, subprocess
t = [threading.Thread(target=lambda n=n: print("thread", n)) for n in range(3)]
for x in t: x.start(); x.join()
print(subprocess.check_output(["uname", "-m"], text=True), end="")'
try perl -e 'print join(" ", map { $_ ** 2 } 1 .. 10), "\n"'

title 'A compiler and what it makes'
printf '#include <stdio.h>\nint main(void) { puts("compiled under clew"); return 0; }\n' >hello.c
try gcc -O2 hello.c -o hello
try ./hello

title 'Faults are the program'"'"'s own'
printf '#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\nstatic void f(int s, siginfo_t *i, void *c) { printf("signal %%d at address %%p\\n", s, i->si_addr); exit(4); }\nint main(void) { struct sigaction a = {.sa_sigaction = f, .sa_flags = SA_SIGINFO}; sigaction(SIGSEGV, &a, 0); *(volatile int *)0x123 = 1; }\n' >fault.c
gcc -w fault.c -o fault
try ./fault

title 'What the engine did: ticks are the clock that replay will go by'
try --stats -- sh -c 'i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done; echo $i'
