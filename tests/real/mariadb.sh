# MariaDB: a server with a dozen threads, its own files, a client over a socket.
# needs: mariadbd mariadb mariadb-install-db
# run: long
# timeout: 600
# ignore: data log
. "$LIB/wait.sh"
mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$PWD/data" --auth-root-authentication-method=normal >log 2>&1
mariadbd --no-defaults --user="$(id -un)" --datadir="$PWD/data" --skip-networking --socket="$PWD/s" --pid-file="$PWD/p" >>log 2>&1 &
wait_for mariadb --no-defaults -u root -S "$PWD/s" -e 'select 1'
mariadb --no-defaults -u root -S "$PWD/s" <<'X'
create database work; use work;
create table t (id int primary key auto_increment, v int);
insert into t (v) select seq * 7 % 31 from seq_1_to_2000;
start transaction; update t set v = v + 1 where id % 3 = 0; rollback;
start transaction; update t set v = v + 1 where id % 3 = 0; commit;
select count(*), sum(v) from t;
shutdown;
X
wait
