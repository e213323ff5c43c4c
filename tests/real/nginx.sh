# nginx with two workers, under curl: files, a missing page, ranges, a redirect, many requests; reload and stop.
# needs: nginx curl
# timeout: 120
# ignore: logs* error.log nginx.pid tmp*
. "$LIB/wait.sh"
mkdir -p www logs tmp; seq 1 20000 >www/numbers; echo hello >www/index.html
cat >nginx.conf <<X
worker_processes 2; pid $PWD/nginx.pid; error_log $PWD/logs/error.log; daemon off;
events { worker_connections 64; }
http { access_log off; client_body_temp_path $PWD/tmp/a; proxy_temp_path $PWD/tmp/b; fastcgi_temp_path $PWD/tmp/c; uwsgi_temp_path $PWD/tmp/d; scgi_temp_path $PWD/tmp/e;
server { listen unix:$PWD/s; root $PWD/www; gzip on; gzip_types text/plain; default_type text/plain; location /old { return 301 /numbers; } } }
X
nginx -c "$PWD/nginx.conf" -e "$PWD/logs/error.log" &
get() { curl -s --unix-socket s "$@"; }
wait_for get -f http://x/
get http://x/; get http://x/numbers | md5sum; get -r 10-19 http://x/numbers; get -o /dev/null -w '%{http_code}\n' http://x/none; get -I http://x/old | grep -c 301
get --compressed http://x/numbers | md5sum
i=0; while [ $i -lt 10 ]; do i=$((i + 1)); get http://x/numbers http://x/ http://x/numbers http://x/index.html; done | md5sum
kill -HUP $(cat nginx.pid); get http://x/
kill -QUIT $(cat nginx.pid); wait $! 2>/dev/null && echo "stopped"
rm -f nginx.conf
