# Uses modules of the standard library, whose lines are stepped through as well.
import bisect
import heapq
import string

heap = []
for n in [5, 1, 4, 2, 3]:
    heapq.heappush(heap, n)
order = [heapq.heappop(heap) for _ in range(len(heap))]
text = string.Template('$a and ${b}').substitute(a=1, b='two')
merged = list(heapq.merge([1, 4], [2, 3]))
words = string.capwords('one two three')
print(order, text, merged, words)
