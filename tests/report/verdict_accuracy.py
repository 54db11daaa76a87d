#!/usr/bin/env python3
"""How often the verdict is right, judged by what the virtual NUMA machine measured.

usage: verdict_accuracy.py NUMALOC FOLDER

FOLDER holds what `make table-lab` leaves: NAME.numaloc and NAME.compare.json for each workload. A plan *helps* when
it makes at least 10 % of the accesses below the private caches local that are remote under first touch (threads
where the kernel puts them), or evens the memory controllers by at least 0.2 of balance while not making more than
5 % more accesses remote. Plans move threads and pages, so the verdict is the best of the three. It is made from the
profile alone, for four nodes; the caches that the virtual machine claims to have are left out, because it does not
model them. `cannot tell` is counted apart.
"""
import glob
import json
import os
import subprocess
import sys

HELPS, EVENS, HARMS = 0.10, 0.20, 0.05
BASELINES = {"first-touch", "interleave", "autonuma"}


def balance(row):
    runs = sorted(row["runs"], key=lambda run: run["remote_share"])
    return runs[len(runs) // 2]["controller_balance"]


def main():
    numaloc, folder = sys.argv[1:]
    files = sorted(glob.glob(os.path.join(folder, "*.compare.json")))
    if not files:
        sys.exit(f"no *.compare.json in {folder}: run `make table-lab` first")
    print("| workload | verdict | first touch | best plan | measured | verdict is |\n|---|---|---|---|---|---|")
    count = {"right": 0, "wrong": 0, "open": 0}
    for file in files:
        name = os.path.basename(file).removesuffix(".compare.json")
        with open(file, encoding="utf-8") as compared:
            rows = {row["name"]: row for row in json.load(compared)["rows"]}
        shown = subprocess.run(
            [numaloc, "show", "--json", "--nodes", "4",
             os.path.join(folder, f"{name}.numaloc")], check=True, stdout=subprocess.PIPE).stdout
        verdicts = {v["verdict"]: v["measure"].replace("_", " ") for v in reversed(json.loads(shown)["verdicts"])}
        verdict = next(v for v in ["likely to help", "cannot tell", "unlikely to help"] if v in verdicts)
        likely = verdict + (f": {verdicts[verdict]}" if verdict == "likely to help" else "")
        touch = rows["first-touch"]
        plans = [row for key, row in rows.items() if key not in BASELINES]
        best = min(plans, key=lambda row: row["remote_share"])
        less = touch["remote_share"] - best["remote_share"]
        evened = any(balance(row) - balance(touch) >= EVENS
                     and row["remote_share"] <= touch["remote_share"] + HARMS for row in plans)
        helps = less >= HELPS or evened
        answer = "open" if verdict == "cannot tell" else "right" if (verdict == "likely to help") == helps else "wrong"
        count[answer] += 1
        cell = lambda row: f"{100 * row['remote_share']:.1f} % ({balance(row):.2f})"
        print(f"| `{name}` | {likely} | {cell(touch)} | {best['name']}: {cell(best)} | "
              f"{'helps' if helps else 'does not'} | {answer} |")
    print(f"\n{count['right']} right, {count['wrong']} wrong, {count['open']} `cannot tell`, of {sum(count.values())}")


main()
