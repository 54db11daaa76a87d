#!/usr/bin/env python3
"""Time and memory of `show` and `report` on one profile.

usage: bench.py NUMALOC PROFILE [REPEATS=5]

The first run reads the files before it counts, so that all have them in the page cache. Prints median and spread of
wall time, CPU time and peak memory.
"""
import os
import statistics
import subprocess
import sys
import time

numaloc, profile = sys.argv[1:3]
repeats = int(sys.argv[3]) if len(sys.argv) > 3 else 5
report = os.path.splitext(profile)[0] + ".html"
COMMANDS = {"show": (["show", profile], 2.0), "report": (["report", profile, "-o", report, "--force"], 10.0)}


def run(words):
    start = time.monotonic()
    child = subprocess.Popen([numaloc, *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{' '.join(words)}: status {status}")
    return time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


print("| command | wall s (min to max) | CPU s | peak MiB | goal wall s |\n|---|---|---|---|---|")
for name, (words, goal) in COMMANDS.items():
    run(words)
    wall, cpu, memory = zip(*(run(words) for _ in range(repeats)))
    print(f"| {name} | {statistics.median(wall):.2f} ({min(wall):.2f} to {max(wall):.2f}) | "
          f"{statistics.median(cpu):.2f} | {max(memory):.0f} | {goal:.0f} |")
print(f"report: {os.path.getsize(report) / 1e6:.1f} MB; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
