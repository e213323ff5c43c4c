# sqlite3: a file database with indexes, transactions, queries, a rollback, an integrity check.
# needs: sqlite3
sqlite3 test.db <<'X' && s=0 || s=$?
pragma journal_mode=wal; create table t(id integer primary key, k text, v real); begin;
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000) insert into t select i, 'key' || (i * 7919 % 1000), i / 7.0 from n; commit;
create index tk on t(k); select k, count(*), round(sum(v), 4) from t group by k order by 3 desc limit 3; select count(*) from t a join t b on a.k = b.k and a.id < b.id where a.id < 500;
begin; delete from t; rollback; select count(*), round(avg(v), 6) from t; update t set v = v * 2 where k like 'key1%'; select total(v) > 0, max(id) from t; pragma integrity_check; vacuum; select json_group_array(id) from (select id from t limit 5);
select nonsense;
X
echo "status $s"
