"""Time of a sweep of 500 combinations with 1 and 2 workers, and how busy they kept the processors:
python bench_sweep.py PROFILE [slurm].

A worker's processor time is its own clock's (user and system), without waiting. On a machine that others use too, it is
less than the time within tasks, so that is printed too. `slurm`: workers are jobs of a Slurm of two nodes."""

import os
import pathlib
import resource
import sys
import tempfile
import time

import numaloc

POLICIES = ["numaloc", "deloc", "tree-match", "scotch", "balance"]
MACHINES = ["numa:4 core:16 pu:1", "numa:8 core:8 pu:1"]


def spent() -> float:
    """Processor seconds of this process and the children that it waited for."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def waits(matrix, machine):
    """A task of 0.1 s that needs no processor: what is lost then is lost between tasks, also on a busy machine."""
    time.sleep(0.1)
    return range(len(matrix))


def measured(profile: str, pus: int, clock, **where) -> float:
    start, before = time.perf_counter(), clock()
    frame = numaloc.sweep(profile, MACHINES, POLICIES, ["locality", "mixed"], range(25), **where)
    wall, busy = time.perf_counter() - start, clock() - before
    assert len(frame) == 500 and frame.error.isna().all()
    print(
        f"{pus} workers: {wall:7.2f} s, {busy:7.2f} processor seconds, {100 * busy / wall / pus:5.1f} % of "
        f"{pus} PUs, tasks {frame.seconds.sum():7.2f} s ({100 * frame.seconds.sum() / wall / pus:5.1f} % of the time), "
        f"load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    return wall


def waiting(profile: str, **where) -> None:
    start = time.perf_counter()
    frame = numaloc.sweep(profile, MACHINES, waits, "first-touch", range(250), **where)
    wall = time.perf_counter() - start
    print(
        f"500 tasks that wait 0.1 s, 2 workers: {wall:.2f} s, tasks {100 * frame.seconds.sum() / wall / 2:.1f} % of the time"
    )


def local(profile: str) -> None:
    walls = [measured(profile, workers, spent, workers=workers) for workers in (1, 2)]
    print(f"2 workers took {walls[1] / walls[0]:.3f} of the time of 1")
    waiting(profile, workers=2)


def on_slurm(profile: str) -> None:
    from distributed import Client
    from slurm_nodes import cluster_of_jobs, two_nodes

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with two_nodes(folder), cluster_of_jobs(folder) as cluster, Client(cluster) as client:
            walls = []
            for workers in (1, 2):
                cluster.scale(jobs=workers)
                client.wait_for_workers(workers, timeout=300)
                # Each worker loads the library and reads the profile once.
                numaloc.sweep(profile, MACHINES, "packed", seeds=range(20), cluster=client)
                walls.append(measured(profile, workers, lambda: sum(client.run(spent).values()), cluster=client))
            print(f"2 jobs took {walls[1] / walls[0]:.3f} of the time of 1")
            waiting(profile, cluster=client)


def main(profile: str, where: str) -> None:
    # The libraries are loaded, and the profile's pages are in the page cache.
    numaloc.sweep(profile, MACHINES[0], "packed", workers=1)
    on_slurm(profile) if where == "slurm" else local(profile)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "local")
