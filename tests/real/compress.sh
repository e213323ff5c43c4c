# gzip, bzip2, xz, zstd and their parallel kin: what they make and what they make of it again.
# needs: gzip bzip2 pbzip2 pigz xz zstd
i=0; while [ $i -lt 40 ]; do i=$((i + 1)); seq $i 17 60000; done >data
md5sum <data
for tool in 'gzip -6n' 'gzip -1n' 'bzip2 -9' 'xz -1' 'xz -T2 -0 --block-size=200000' 'zstd -3' 'zstd -T2 -5'; do
    $tool -c <data >packed
    echo "$tool: $(wc -c <packed) $(md5sum <packed)"
    ${tool%% *} -dc <packed | cmp - data
done
pbzip2 -p2 -b1 -k -c data >packed; bzip2 -dc packed | cmp - data && md5sum <packed
pigz -p 2 -n -c data >packed; gzip -dc packed | cmp - data && md5sum <packed
gzip -t packed; head -c 1000 packed | gzip -dc 2>&1 >/dev/null | tail -1 || true
