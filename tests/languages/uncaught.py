# An exception that nobody catches; its cause is in another function, long before.
prices = {}

def load(rows):
    for name, price in rows:
        prices[name] = price

def parse(text):
    parts = text.split('=')
    return parts[0], float(parts[1]) if len(parts) > 1 else None

def total(names):
    result = 0.0
    for name in names:
        result = add(result, name)
    return result

def add(result, name):
    price = prices[name]
    return result + price

load([parse(text) for text in ['apple=1.5', 'pear', 'plum=2']])
for n in range(2000):
    n * n
print(total(['apple', 'plum', 'pear']))
