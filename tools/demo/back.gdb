# From the crash in jobs.c back to its cause. gdb stands at the end of the recording.
set width 0
set trace-commands on
backtrace
print/x *job
watch -l job->client
reverse-continue
backtrace 3
thread 1
backtrace -3
