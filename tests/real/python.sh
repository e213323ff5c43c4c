# Python: a bit of everything in the language and its library.
# needs: python3
python3 - <<'X'
import collections, dataclasses, decimal, functools, hashlib, heapq, itertools, json, math, random, re, struct, zlib, datetime, textwrap, pickle, io, csv
random.seed(7)
words = ["".join(random.choice("abcdef") for _ in range(4)) for _ in range(5000)]
print(collections.Counter(words).most_common(3))
print(hashlib.sha256("".join(words).encode()).hexdigest(), zlib.crc32("".join(words).encode()))
print(sum(math.sin(i) for i in range(20000)))
@functools.lru_cache(None)
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
print(fib(200))
decimal.getcontext().prec = 60
print(decimal.Decimal(2).sqrt())
print(json.dumps({"a": [1, 2.5, None, True], "b": {"c": "é"}}, sort_keys=True))
print(re.sub(r"(\w)(\w+)", lambda m: m[2] + m[1], "the quick brown fox"))
print(list(heapq.merge(range(0, 10, 3), range(1, 10, 4))), struct.pack("<IhQ", 1, -2, 3))
@dataclasses.dataclass(order=True)
class P: x: int; y: int = 0
print(sorted([P(3), P(1, 2), P(1)]))
def gen():
    try:
        while True: x = yield; print("got", x)
    except GeneratorExit: print("closed")
g = gen(); next(g); g.send(1); g.close()
try: {}["missing"]
except KeyError as e: print(repr(e))
def deep(n): return deep(n + 1)
try: deep(0)
except RecursionError: print("recursion")
print(pickle.loads(pickle.dumps(P(4, 5))), datetime.date(2024, 2, 29).isocalendar(), 3 ** 500 % 10 ** 20)
print(len(list(itertools.permutations(range(7)))), sorted({i % 7 for i in range(100)}))
X
python3 -c 'import sys; sys.exit(3)' || echo "status $?"
python3 -c 'raise ValueError("x")' 2>&1 | tail -1
