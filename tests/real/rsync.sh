# rsync: three processes, with their whole talk through pipes.
# needs: rsync
# run: long
# timeout: 120
mkdir from
for i in 1 2 3 4 5; do seq $((i * 1000)) >from/$i; done
rsync -a from/ to/ && diff -r from to && echo same
echo changed >>from/3
rm from/1
rsync -ai --omit-dir-times --delete from/ to/ | sed 's/^[^ ]* //' | sort
diff -r from to && echo same
