# LuaJIT: traces, side exits, FFI calls and callbacks, coroutines.
# needs: luajit
cat >main.lua <<'X'
local function fib(n) return n < 2 and n or fib(n - 1) + fib(n - 2) end print(fib(24))
local t = {} for i = 1, 100000 do t[i % 1000 + 1] = (t[i % 1000 + 1] or 0) + i * 0.5 end local s = 0 for i = 1, 1000 do s = s + t[i] end print(s)
local ffi = require "ffi" ffi.cdef [[ int abs(int); size_t strlen(const char *); typedef int (*cmp)(const void *, const void *); void qsort(void *, size_t, size_t, cmp); ]]
local a = 0 for i = 1, 200000 do a = a + ffi.C.abs(-i) % 7 end print(a, tonumber(ffi.C.strlen("hello")))
local arr = ffi.new("int[5]", 5, 2, 4, 1, 3) local cb = ffi.cast("cmp", function(x, y) return ffi.cast("const int *", x)[0] - ffi.cast("const int *", y)[0] end) ffi.C.qsort(arr, 5, 4, cb) print(arr[0], arr[4])
local co = coroutine.wrap(function() for i = 1, 1e5 do coroutine.yield(i) end end) local c = 0 for i = 1, 1e5 do c = c + co() end print(c)
print(pcall(function() error({ code = 5 }) end)) print(("abc"):rep(3):gsub("b", "B"), string.format("%.14g", math.pi))
X
sed -i 's/^print(pcall.*$/print((pcall(error, 5)), (("abc"):rep(3):gsub("b", "B")))/' main.lua
luajit main.lua; luajit -joff main.lua
