# Threads of a pool, exceptions.
import std/[threadpool, algorithm]

proc fib(n: int): int = (if n < 2: n else: fib(n - 1) + fib(n - 2))
var parts: seq[FlowVar[int]]
for n in 10..17: parts.add(spawn fib(n))
for part in parts: echo ^part
var values = newSeq[int](1000)
for at in 0..<1000: values[at] = at * 7919 mod 101
values.sort()
echo values[500]
try: raise newException(ValueError, "raised")
except ValueError as error: echo error.msg
