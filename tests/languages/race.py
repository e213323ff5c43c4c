# Two threads lose an update: the lock is given away between reading and writing.
import threading

count = 0
turn = threading.Semaphore(0)
back = threading.Semaphore(0)

def first():
    global count
    for n in range(50):
        seen = count
        if n == 30:
            turn.release()
            back.acquire()
        count = seen + 1

def second():
    global count
    turn.acquire()
    for n in range(10):
        count = count + 1
    back.release()

threads = [threading.Thread(target=work) for work in (first, second)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(count)
