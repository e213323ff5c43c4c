# sqlite3: three processes write to one database at a time; its write-ahead log's index is memory that they share.
# needs: sqlite3
sqlite3 w.db 'pragma journal_mode=wal; create table t(a integer primary key, b);'
for p in 1 2 3; do
    (i=0; while [ $i -lt 6 ]; do i=$((i + 1)); sqlite3 -cmd '.timeout 60000' w.db "begin immediate; insert into t(b) values('$p $i'); commit; select count(*) > 0 from t;" >>o$p; done) &
done
wait
cat o1 o2 o3 | sort | uniq -c
sqlite3 w.db 'select count(*), count(distinct b) from t; pragma integrity_check;'
rm w.db*
