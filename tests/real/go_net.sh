# A Go program: an HTTP server and its clients in one process, goroutines that only preemption signals stop, timers; built beforehand.
# needs: go
# timeout: 180
./net || echo "status $?"
GOMAXPROCS=4 ./net || echo "status $?"
