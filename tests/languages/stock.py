# Two threads sell from one stock: who looks and then takes may find that another was quicker.
import sys
import threading

stock = {'left': 60}

def price(n):
    return sum(k * k for k in range(n))

def sell(times):
    for n in range(times):
        if stock['left'] > 0:
            price(40)
            stock['left'] -= 1

threads = [threading.Thread(target=sell, args=(60,)) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if stock['left'] < 0:
    sys.exit('sold what was not there')
