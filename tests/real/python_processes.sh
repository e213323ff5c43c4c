# Python subprocess, multiprocessing, os.fork, asyncio with children and pipes.
# needs: python3
# timeout: 120
python3 - <<'X'
import subprocess, os, sys, asyncio, signal, multiprocessing as mp
print(subprocess.run(["tr", "a-z", "A-Z"], input="shout\n", capture_output=True, text=True).stdout, end="")
print(subprocess.call(["sh", "-c", "exit 5"]), subprocess.call(["sh", "-c", "kill -15 $$"]))
try: subprocess.run(["/no/such"])
except FileNotFoundError as e: print(e.errno)
p = subprocess.Popen("cat; echo err >&2", shell=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
print(p.communicate(b"x" * 200000)[0].count(b"x"), p.returncode)
try: subprocess.run(["sleep", "100"], timeout=.05)
except subprocess.TimeoutExpired: print("timed out")
pid = os.fork()
if pid == 0: os._exit(9)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
sys.stdout.flush()
def square(n): return n * n
if __name__ == "__main__":
    ctx = mp.get_context("fork")
    with ctx.Pool(3) as pool: print(sum(pool.map(square, range(100))))
    q = ctx.Queue(); w = ctx.Process(target=q.put, args=("from a process",)); w.start(); print(q.get()); w.join(); print(w.exitcode)
async def main():
    p = await asyncio.create_subprocess_exec("sort", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    out, _ = await p.communicate(b"b\na\n"); print(out, p.returncode)
    async def echo(r, w): w.write((await r.readline()).upper()); await w.drain(); w.close()
    s = await asyncio.start_server(echo, "127.0.0.1", 0)
    r, w = await asyncio.open_connection(*s.sockets[0].getsockname()); w.write(b"over tcp\n"); print(await r.readline())
    w.close(); s.close()
    print(await asyncio.gather(*(asyncio.sleep(.001 * i, i) for i in range(5))))
asyncio.run(main())
X
