#!/usr/bin/python3
"""Smooths a shared array: the first process fills it, four others have a quarter each and read their neighbours' ends."""
import multiprocessing
from multiprocessing import shared_memory

import numpy

SIZE, PARTS, ROUNDS = 1 << 19, 4, 4


def work(name, part, barrier):
    memory = shared_memory.SharedMemory(name=name)
    both = numpy.ndarray((2, SIZE), dtype=numpy.float64, buffer=memory.buf)
    low, high = part * SIZE // PARTS, (part + 1) * SIZE // PARTS
    begin, end = max(low, 1), min(high, SIZE - 1)
    for step in range(ROUNDS):
        old, new = both[step % 2], both[1 - step % 2]
        new[begin:end] = (old[begin - 1:end - 1] + old[begin:end] + old[begin + 1:end + 1]) / 3
        barrier.wait()
    del both, old, new
    memory.close()


def main():
    memory = shared_memory.SharedMemory(create=True, size=2 * 8 * SIZE)
    both = numpy.ndarray((2, SIZE), dtype=numpy.float64, buffer=memory.buf)
    both[0] = numpy.arange(SIZE) % 7
    both[1] = 0
    barrier = multiprocessing.Barrier(PARTS)
    parts = [multiprocessing.Process(target=work, args=(memory.name, part, barrier)) for part in range(PARTS)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
    print(f"{both[0].sum():.3f}")
    del both
    memory.close()
    memory.unlink()


if __name__ == "__main__":
    main()
