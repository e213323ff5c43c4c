# node: an HTTP server and its client in one process, files, workers on shared memory.
# needs: node
# timeout: 180
cat >net.js <<'J'
const http = require('http'), fs = require('fs');
const server = http.createServer((q, r) => r.end('hello ' + q.url)).listen(0, () => {
  const port = server.address().port; let n = 0, bytes = 0;
  const one = i => http.get({ port, path: '/' + i }, r => { r.on('data', d => bytes += d.length); r.on('end', () => { if (++n == 300) { console.log(n, bytes); server.close(files); } else one(n); }); });
  one(0); });
function files() { fs.writeFileSync('x.tmp', 'abc'.repeat(10000));
  fs.readFile('x.tmp', (e, d) => { console.log(d.length); fs.unlinkSync('x.tmp'); fs.readdir('/usr/bin', (e, l) => console.log(l.length > 10)); }); }
J
cat >workers.js <<'J'
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
if (isMainThread) { const shared = new SharedArrayBuffer(64), c = new Int32Array(shared); let done = 0;
  for (let i = 0; i < 4; i++) new Worker(__filename, { workerData: shared }).on('exit', () => { if (++done == 4) console.log('total', c[0]); });
} else { const c = new Int32Array(workerData); for (let i = 0; i < 200000; i++) Atomics.add(c, 0, 1); parentPort.postMessage('x'); }
J
node net.js || echo "status $?"
node workers.js || echo "status $?"
