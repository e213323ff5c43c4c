# Ways in and out of functions that aren't calls and returns: generators, coroutines, exceptions, comprehensions.
def numbers(n):
    try:
        while n:
            got = yield n
            if got:
                n = got
            n -= 1
    except KeyError as problem:
        yield repr(problem)
    finally:
        n = None

def both():
    first = yield from numbers(2)
    yield from (k * k
                for k in range(2))
    return first

class Wait:
    def __await__(self):
        got = yield self
        return got

async def ask(n):
    found = await Wait()
    return found + n

async def each(n):
    for i in range(n):
        yield i
        await Wait()

class Open:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *info):
        return False

async def all_of(n):
    total = await ask(n)
    async with Open() as opened:
        async for i in each(2):
            total += i
    more = [i async for i in each(1)]
    return total, more

def drive(coroutine):
    answer = None
    try:
        while True:
            coroutine.send(answer)
            answer = 5
    except StopIteration as end:
        return end.value

def twice(function):
    def wrapped(*args, **named):
        function(*args, **named)
        return function(*args, **named)
    return wrapped

@twice
def noted(where, what=None):
    where.append(what)
    return len(where)

def deep(n):
    if n == 0:
        raise LookupError('deep')
    try:
        deep(n - 1)
    finally:
        n += 1

def tries():
    for n in range(3):
        try:
            deep(n)
        except LookupError as problem:
            if n < 2:
                continue
            break
        else:
            n = 7
    else:
        n = 8
    while n > 1:
        n -= 1
    else:
        n = -1
    return n

def early():
    for i in range(3):
        try:
            if i:
                return i
        finally:
            i = 'left'

def table(n):
    return [[x * y for x in range(n)]
            for y in range(n) if y]

g = numbers(3)
a = next(g)
b = g.send(9)
c = g.throw(KeyError('thrown'))
g.close()
d = list(both())
e = drive(all_of(3))
f = noted([], what='x')
h = tries()
k = early()
grid = table(2)
some = set('ab') | {'c': 1}.keys()
if (n := len(grid)) > 0: n += 1
try:
    first, *rest = ()
except ValueError:
    rest = sorted(some, key=lambda s: (
        -ord(s)))
assert rest, (
    'never')
text = f'{a!r} {sum(v for v in (1, 2))}' \
       f'{h}'
global_name = [
    a,
    b,
]
print(a, b, c, d, e, f, h, k, grid, rest, n, text)
