# openssl: digests, ciphers, keys, signatures, speed, and a TLS session between s_server and s_client.
# needs: openssl
# timeout: 180
# ignore: key.pem cert.pem sig s
. "$LIB/wait.sh"
seq 1 50000 >data
for d in md5 sha1 sha256 sha512 sha3-256 blake2b512; do openssl dgst -$d data; done
for c in aes-128-cbc aes-256-ctr chacha20 camellia-128-cbc; do openssl enc -$c -K 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff -iv 000102030405060708090a0b0c0d0e0f -in data 2>/dev/null | openssl md5; done
openssl rand -hex 16 | wc -c; openssl prime 1000003
openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=test 2>/dev/null
openssl dgst -sha256 -sign key.pem -out sig data; openssl x509 -in cert.pem -pubkey -noout >pub; openssl dgst -sha256 -verify pub -signature sig data; rm pub
openssl speed -seconds 1 -bytes 1024 sha256 2>/dev/null | grep -c sha256
openssl s_server -unix s -key key.pem -cert cert.pem -quiet -www 2>/dev/null &
wait_for test -S s
for version in -tls1_2 -tls1_3; do
    printf 'GET / HTTP/1.0\r\n\r\n' | openssl s_client -unix s -quiet $version 2>/dev/null | grep -E 'Protocol *:' || true
done
kill $!; wait $! 2>/dev/null || echo "server $?"
