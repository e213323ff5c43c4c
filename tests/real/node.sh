# node: JIT-heavy loops, promises, timers, workers, child processes, exceptions, typed arrays.
# needs: node
# timeout: 180
cat >main.js <<'X'
const { Worker, isMainThread, parentPort } = require('worker_threads');
if (!isMainThread) { let s = 0; for (let i = 0; i < 1e6; i++) s = (s + i * i) % 1000003; parentPort.postMessage(s); return; }
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
console.log(fib(25));
const a = new Float64Array(20000); for (let r = 0; r < 20; r++) for (let i = 0; i < a.length; i++) a[i] = Math.sin(i) + a[i] * .5; console.log(a[777].toFixed(9));
const m = new Map(); for (let i = 0; i < 50000; i++) m.set('k' + i % 1000, (m.get('k' + i % 1000) || 0) + i); console.log(m.size, m.get('k77'));
class A { get x() { return 1; } } class B extends A { get x() { return super.x + 1; } } let t = 0; for (let i = 0; i < 1e5; i++) t += (i % 2 ? new A : new B).x; console.log(t);
let caught = 0; for (let i = 0; i < 2000; i++) try { null.x; } catch (e) { caught++; } console.log(caught);
console.log('x'.repeat(5).replace(/x(?=x)/g, 'y'), JSON.stringify({ b: [1, { c: 2 }] }), 2n ** 100n, [3, 1, 2].sort().join());
const { execFileSync } = require('child_process'); console.log(execFileSync('echo', ['child']).toString().trim());
(async () => { const r = await Promise.all([1, 2, 3].map(n => new Promise(ok => setTimeout(ok, n, n * 2)))); console.log(r.join());
  const w = new Worker(__filename); console.log(await new Promise(ok => w.on('message', ok)));
  console.log(require('zlib').gunzipSync(require('zlib').gzipSync('round trip')).toString(), require('crypto').createHash('sha256').update('x').digest('hex').slice(0, 16)); process.exitCode = 4; })();
X
node main.js || echo "status $?"
