"""Time of each question on a store of 2,000 runs, embedded, on Dask and on Spark: python bench_fleet.py GENERATE FOLDER [RUNS]."""

import pathlib
import statistics
import subprocess
import sys
import time

from distributed import Client, LocalCluster

import numaloc

QUESTIONS = ["most_remote", "changes", "badly_placed"]


def fill(generate: str, folder: pathlib.Path, runs: int) -> pathlib.Path:
    """A store of 40 programs on 10 hosts on 30 days, of 20 profiles of different sizes."""
    store = folder / f"store-{runs}"
    if store.exists() and len(numaloc.Fleet(store)) == runs:
        return store
    profiles = []
    for number in range(20):
        path = folder / f"{number}.numaloc"
        subprocess.run([generate, path, "16", "40", str(100 + 20 * number)], check=True)
        profiles.append(numaloc.Profile.open(path))
    start = time.perf_counter()
    for run in range(runs):
        numaloc.store_add(
            profiles[(run * 7 + run // 40) % 20],
            store,
            host=f"node{run % 10:02}",
            program=f"program{run % 40:02}",
            date=f"2026-11-{1 + run // 40 % 30:02}",
            commit=f"{run // 400:06x}{run:06x}",
            nodes=4,
        )
    print(f"adding {runs} runs took {time.perf_counter() - start:.1f} s")
    return store


def timed(fleet: numaloc.Fleet) -> dict:
    answers = {}
    for question in QUESTIONS:
        times = []
        for _ in range(3):
            start = time.perf_counter()
            answer = getattr(fleet, question)()
            times.append(time.perf_counter() - start)
        answers[question] = (statistics.median(times), answer)
    return answers


def main(generate: str, folder: str, runs: int) -> None:
    path = pathlib.Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    store = fill(generate, path, runs)
    embedded = timed(numaloc.Fleet(store))
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        distributed = timed(numaloc.Fleet(store, cluster=client, share=250))
    others = {"Dask with 2 workers": distributed}
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        print("pyspark is not installed (make bench-spark): without Spark")
    else:
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
        others["Spark with 2 threads"] = timed(numaloc.Fleet(store, spark=session))
        session.stop()
    for question in QUESTIONS:
        one, ours = embedded[question]
        print(f"{question:14} embedded {one:6.2f} s")
        for name, answers in others.items():
            other, theirs = answers[question]
            print(f"{question:14} {name} {other:6.2f} s, equal: {ours.equals(theirs)}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 2000)
