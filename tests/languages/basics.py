# Kinds of lines that a tracer tells of.
def square(x):
    return x * x

def fact(n):
    if n <= 1:
        return 1
    return n * fact(n - 1)

def evens(limit):
    n = 0
    while n < limit:
        yield n
        n += 2

def one_line(): return 7

class Point:
    count = 0

    def __init__(self, x, y):
        self.x, self.y = x, y
        Point.count += 1

    def __repr__(self):
        return f'Point({self.__dict__})'

    @property
    def length(self):
        return abs(self.x) + abs(self.y)

class Guard:
    def __enter__(self):
        return 'in'

    def __exit__(self, *info):
        return True

def tries(what):
    found = []
    try:
        if what == 1:
            raise ValueError('one')
        elif what == 2:
            {}['missing']
        else:
            found.append('fine')
    except ValueError as problem:
        found.append(str(problem))
    except KeyError:
        found.append('key')
    finally:
        found.append('done')
    return found

def outer(k):
    total = 0
    def inner(v):
        nonlocal total
        total += v * k
        return total
    for i in range(3):
        inner(i)
    return total

def quick(n):
    # Hot enough to be specialised.
    a = 0
    for i in range(n):
        b = i
        a = b + a
        if a > 10**6:
            a = 0
    return a

x = 1
y = square(x +
           2)
z = [square(i) for i in range(3)]
w = {i: i + y for i in (1, 2)}
for e in evens(5): x += e
s = sum(v for v in evens(4))
f = fact(4)
p = Point(3, -4)
q = p.length
t = [tries(n) for n in range(3)]
o = outer(2)
r = one_line()
with Guard() as g:
    raise RuntimeError('swallowed')
d = (lambda a,
     b=2: a + b)(1)
while x > 5: x -= 5
match p:
    case Point(x=3):
        m = 'three'
    case _:
        m = 'other'
c = quick(20)
if x and (y or
          z):
    pass
else:
    m = None
del e
print(x, y, z, w, s, f, p, q, t, o, r, g, d, m, c)
