# redis-server under redis-cli and redis-benchmark, then a clean shutdown.
# needs: redis-server redis-cli redis-benchmark
# timeout: 120
# ignore: dump.rdb server.log
. "$LIB/wait.sh"
redis-server --port 0 --unixsocket "$PWD/s" --save '' --daemonize no --io-threads 2 --logfile server.log &
wait_for redis-cli -s s ping
redis-cli -s s <<'X'
set a 1
incr a
lpush l x y z
lrange l 0 -1
zadd z 1 one 2 two
zrange z 0 -1 withscores
eval "local s = 0 for i = 1, 1000 do s = s + i end return s" 0
expire a 1000
debug jmap
hset h f v
hgetall h
X
redis-benchmark -s s -t set,get,lpush,lrange_100 -n 4000 -c 20 -q | tr '\r' '\n' | grep -c 'requests per second' || true
redis-cli -s s dbsize | grep -c . ; redis-cli -s s bgsave; redis-cli -s s shutdown nosave
wait $! 2>/dev/null || echo "server status $?"
