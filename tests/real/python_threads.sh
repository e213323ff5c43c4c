# Python threading: locks, queues, events, a thread pool, and signals to the main thread.
# needs: python3
python3 - <<'X'
import threading, queue, concurrent.futures as cf, signal, os, time
q, out, lock = queue.Queue(50), [], threading.Lock()
def work():
    while (n := q.get()) is not None:
        with lock: out.append(n * n)
threads = [threading.Thread(target=work) for _ in range(6)]
for t in threads: t.start()
for i in range(3000): q.put(i)
for _ in threads: q.put(None)
for t in threads: t.join()
print(len(out), sum(out))
with cf.ThreadPoolExecutor(4) as pool: print(sum(pool.map(lambda n: n % 7, range(500))))
e, b = threading.Event(), threading.Barrier(3)
def meet(): b.wait(); e.wait()
ts = [threading.Thread(target=meet) for _ in range(2)]
for t in ts: t.start()
b.wait(); e.set()
for t in ts: t.join()
cond, turn = threading.Condition(), [0]
def ping(me):
    for _ in range(300):
        with cond:
            cond.wait_for(lambda: turn[0] == me); turn[0] = 1 - me; cond.notify_all()
ts = [threading.Thread(target=ping, args=(i,)) for i in range(2)]
for t in ts: t.start()
for t in ts: t.join()
hits = []
signal.signal(signal.SIGALRM, lambda *a: hits.append(1)); signal.setitimer(signal.ITIMER_REAL, .005, .005)
while len(hits) < 5: pass
signal.setitimer(signal.ITIMER_REAL, 0)
print("alarms", e.wait(.001), threading.active_count())
local = threading.local(); local.x = 1
print(hasattr(local, "x"), e.is_set())
X
