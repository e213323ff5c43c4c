# A function that is called with numbers of all kinds, for conditions of breakpoints.
def f(v):
    return v

for v in [-5, 0, 7, True, 1.5, 10**12, -10**12]:
    f(v)
