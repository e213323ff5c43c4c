# An invariant that breaks once in many steps: transfers keep the sum, but for one.
class Account:
    def __init__(self, name, n):
        self.name = name
        self.n = n

def transfer(source, target, amount):
    if source.n < amount:
        return False
    source.n -= amount
    if amount == 13 and target.n == 904:
        amount += 1
    target.n += amount
    return True

accounts = [Account('a', 1000), Account('b', 1000)]

def run(steps):
    seed = 7
    for step in range(steps):
        seed = seed * 1103515245 + 12345 & 0x7fffffff
        source, target = accounts if seed >> 8 & 1 else accounts[::-1]
        transfer(source, target, seed >> 12 & 63)

run(4000)
print(sum(a.n for a in accounts))
