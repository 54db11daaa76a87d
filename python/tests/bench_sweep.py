"""Time of a sweep of 500 combinations with 1 and 2 workers, and how busy they kept the processors:
python bench_sweep.py PROFILE."""

import resource
import sys
import time

import numaloc

POLICIES = ["numaloc", "deloc", "tree-match", "scotch", "balance"]


def spent() -> float:
    """Processor seconds of this process and its children."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def waits(matrix, machine):
    """A task of 0.1 s that needs no processor: what is lost then is lost between tasks, also on a busy machine."""
    time.sleep(0.1)
    return range(len(matrix))


def main(profile: str) -> None:
    # The libraries are loaded, and the profile's pages are in the page cache.
    numaloc.sweep(profile, "numa:4 core:16 pu:1", "packed", workers=1)
    for workers in (1, 2):
        start, before = time.perf_counter(), spent()
        frame = numaloc.sweep(
            profile, ["numa:4 core:16 pu:1", "numa:8 core:8 pu:1"], POLICIES, ["locality", "mixed"], range(25), workers=workers
        )
        wall, busy = time.perf_counter() - start, spent() - before
        assert len(frame) == 500 and frame.error.isna().all()
        print(
            f"{workers} workers: {wall:7.2f} s, {busy:7.2f} processor seconds, {100 * busy / wall / workers:5.1f} % of "
            f"{workers} PUs, tasks {frame.seconds.sum():7.2f} s ({100 * frame.seconds.sum() / wall / workers:5.1f} % of the time)"
        )
    start = time.perf_counter()
    frame = numaloc.sweep(profile, ["numa:4 core:16 pu:1", "numa:8 core:8 pu:1"], waits, "first-touch", range(250), workers=2)
    wall = time.perf_counter() - start
    print(
        f"500 tasks that wait 0.1 s, 2 workers: {wall:.2f} s, tasks {100 * frame.seconds.sum() / wall / 2:.1f} % of the time"
    )


if __name__ == "__main__":
    main(sys.argv[1])
