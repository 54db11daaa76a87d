"""Time and memory of opening a profile and asking for its matrix: python bench_open.py PROFILE [REPEATS].

Each repeat is a process of its own, because a profile keeps what it read. Prints the medians, and the peak of the
process's memory before and after, in MiB, with the size of the table."""

import json
import statistics
import subprocess
import sys

ONE = """
import resource, sys, time, json
import numaloc
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
start = time.perf_counter()
profile = numaloc.Profile.open(sys.argv[1])
opened = time.perf_counter()
matrix = profile.matrix("write_read", "events")
asked = time.perf_counter()
after = peak()
table = profile.communication
whole = peak()
import pyarrow
shared = pyarrow.table(table)
print(json.dumps({
    "rows": table.num_rows, "table_mib": table.nbytes / 2**20, "matrix_mib": matrix.nbytes / 2**20,
    "open_ms": (opened - start) * 1e3, "matrix_ms": (asked - opened) * 1e3,
    "peak_before_mib": before, "peak_after_matrix_mib": after, "peak_after_table_mib": whole,
    "events": float(matrix.sum()),
}))
"""


def main(profile: str, repeats: int) -> None:
    runs = []
    for _ in range(repeats):
        done = subprocess.run([sys.executable, "-c", ONE, profile], capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout))
    for name in runs[0]:
        values = [run[name] for run in runs]
        print(f"{name:22} {statistics.median(values):>14,.2f}   ({min(values):,.2f} to {max(values):,.2f})")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7)
