# etcd: Go, a log on disk, clients over HTTP on a socket.
# needs: etcd curl
# run: long
# timeout: 300
# ignore: data log
. "$LIB/wait.sh"
etcd --data-dir data --listen-client-urls "unix://localhost:$$" --advertise-client-urls "unix://localhost:$$" --listen-peer-urls "unix://127.0.0.1:$$1" \
    --initial-advertise-peer-urls "http://127.0.0.1:2380" --initial-cluster "default=http://127.0.0.1:2380" >log 2>&1 &
ask() { curl -s --unix-socket "localhost:$server" "http://localhost/v3/$1" -d "$2"; }
server=$$
wait_for ask kv/range '{"key":"YQ=="}'
ask kv/put '{"key":"YQ==","value":"b25l"}' | grep -o '"revision":"[0-9]*"'
ask kv/range '{"key":"YQ=="}' | grep -o '"value":"[^"]*"'
kill $!
wait $! 2>/dev/null || echo "server status $?"
