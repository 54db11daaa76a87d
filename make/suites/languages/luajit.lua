-- Compiled traces, coroutines, errors, functions of C and callbacks from it.
local values, sum = {}, 0
for at = 1, 100000 do values[at] = at * 7919 % 1013 end
table.sort(values)
for at = 1, #values do sum = (sum * 31 + values[at]) % 1000003 end
print(sum, pcall(function() error("raised", 0) end))
local next_one = coroutine.wrap(function() for at = 1, 5 do coroutine.yield(at) end end)
for _ = 1, 5 do io.write(next_one(), " ") end
print()
local ffi = require("ffi")
ffi.cdef [[double sin(double); void qsort(void *, size_t, size_t, int (*)(const void *, const void *));]]
local array = ffi.new("int[100]")
for at = 0, 99 do array[at] = at * 37 % 101 end
local number = function(pointer) return ffi.cast("const int *", pointer)[0] end
local compare = ffi.cast("int (*)(const void *, const void *)", function(a, b) return number(a) - number(b) end)
ffi.C.qsort(array, 100, 4, compare)
print(ffi.C.sin(1), array[0], array[50], array[99])
