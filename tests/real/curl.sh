# curl against a local HTTP server in Python: get, post, upload, headers, errors, two at once.
# needs: curl python3
# timeout: 120
. "$LIB/wait.sh"
cat >server.py <<'X'
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, code, body):
        self.send_response(code); self.send_header("Content-Length", len(body)); self.end_headers(); self.wfile.write(body)
    def do_GET(self): self.answer(200 if self.path != "/none" else 404, (self.path * 1000).encode())
    def do_POST(self): self.answer(200, self.rfile.read(int(self.headers["Content-Length"])).upper())
    do_PUT = do_POST
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H); open("port.tmp", "w").write(str(s.server_port)); import os; os.rename("port.tmp", "port"); s.serve_forever()
X
python3 server.py 2>/dev/null &
wait_for test -s port
url=http://127.0.0.1:$(cat port)
curl -s $url/a | md5sum; curl -s -d 'posted data' $url/; echo
curl -sf $url/none || echo "status $?"; curl -s -o /dev/null -w '%{http_code} %{size_download}\n' $url/size
curl -sZ --no-progress-meter $url/1 $url/2 $url/3 -o 1 -o 2 -o 3 2>/dev/null; md5sum 1 2 3; curl -s http://127.0.0.1:1/ || echo "status $?"
kill $!; wait $! 2>/dev/null || echo "server $?"; rm -f port
