# postgres: a cluster is made and started, four clients of pgbench use it at once, a clean shutdown.
# needs: setpriv psql
# recorded: long
# timeout: 300
. "$LIB/wait.sh"
bin=$(echo /usr/lib/postgresql/*/bin)
# It refuses to run as root; and the name of its socket can't be long.
dir=$(mktemp -d /tmp/pg.XXXXXX)
as=
if [ "$(id -u)" -eq 0 ]; then
    as="setpriv --reuid=postgres --regid=postgres --clear-groups"
    chown postgres "$dir"
fi
cd "$dir"
$as "$bin/initdb" -D data -A trust -N -E UTF8 --locale=C >initdb.log 2>&1 || cat initdb.log
$as "$bin/postgres" -D data -k "$dir" -c listen_addresses= -c shared_buffers=16MB >server.log 2>&1 &
wait_for "$bin/pg_isready" -h "$dir"
$as "$bin/pgbench" -h "$dir" -i -q postgres >init.log 2>&1 || cat init.log
$as "$bin/pgbench" -h "$dir" -n -c 4 -t 150 postgres 2>bench.log | grep 'transactions' || cat bench.log
$as "$bin/psql" -h "$dir" -At postgres <<'SQL'
select count(*) from pgbench_history;
select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history);
select (select sum(bbalance) from pgbench_branches) = (select sum(tbalance) from pgbench_tellers);
select sum(n * n) from generate_series(1, 1000) n;
SQL
kill -INT $!
wait $! || echo "server status $?"
cd /
rm -rf "$dir"
