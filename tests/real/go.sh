# A Go program: goroutines, channels, maps, panics, signals, subprocesses, GC; built beforehand.
# needs: go
# timeout: 180
./prog || echo "status $?"
GOMAXPROCS=4 GOGC=10 ./prog || echo "status $?"
