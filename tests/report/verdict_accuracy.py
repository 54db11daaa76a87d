#!/usr/bin/env python3
"""How often the verdicts are right, each kind judged by what the virtual NUMA machine measured for it.

usage: verdict_accuracy.py NUMALOC FOLDER [DOCUMENT]

FOLDER holds what make/measure-verdicts leaves: NAME.numaloc and results.csv. Every verdict promises something of one
way to run against another, and the same two were measured:

bind_threads              `pinned` against `first-touch`: at least 10 % fewer of the accesses remote
thread_mapping            the recommended policy's row (`mapped`, `spread`; `mapped` where none is) against `pinned`
                          where binding is recommended, else against `first-touch`, the program as it is: the same
congestion_aware_mapping  `spread` against `mapped` where the thread mapping is recommended, else `pinned`: the busiest
                          controller's accesses fall by a tenth, and less than 15 % more of them are remote
page_placement            the recommended policy's row (`placed`, `evened`; the better where none is) against `pinned` or
                          `first-touch`, whichever has fewer remote: 10 % fewer remote, or balance higher by 0.2 and at
                          most 5 % more remote

Where less than 0.3 % of the accesses get past the private caches nothing can help. Verdicts are made from the profile
alone, for the machine that the virtual one models (make/lab.toml: four nodes of two CPUs without shared caches). `cannot tell` is
counted apart. FOLDER/verdicts.csv has one line for each program and measure; with DOCUMENT the tables go between its
marks as well.
"""
import csv
import json
import os
import subprocess
import sys

HELPS, EVENS, EVENING_COSTS, RELIEF, RELIEF_COSTS, MATTER = 0.10, 0.20, 0.05, 0.90, 0.15, 0.003
MACHINE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../make/lab.toml")
MARKS = "<!-- table-verdicts -->\n", "<!-- /table-verdicts -->\n"
SHORT = {
    "bind_threads": "bind threads",
    "thread_mapping": "thread mapping",
    "congestion_aware_mapping": "congestion-aware",
    "page_placement": "page placement",
}
ROW_OF = {"numaloc": "mapped", "deloc": "spread", "locality": "placed", "mixed": "evened"}
GOAL_RIGHT, GOAL_OPEN = 0.90, 0.15


def measured(path):
    """{program: {row: figures}}, {program: set}."""
    rows, kind = {}, {}
    with open(path, encoding="utf-8") as file:
        for line in csv.DictReader(file):
            figures = {key: float(line[key]) for key in ("remote_share", "balance", "busiest", "accesses", "all")}
            rows.setdefault(line["program"], {})[line["row"]] = figures
            kind[line["program"]] = line["set"]
    return rows, kind


def judge(measure, policy, mapping_policy, is_bound, rows):
    """(row before, row after, whether it helped), or nothing where a row is missing."""
    recommended = ROW_OF.get(policy)
    if policy and not recommended and measure != "bind_threads":
        return None
    if measure == "bind_threads":
        pairs = [("first-touch", "pinned")]
    elif measure == "thread_mapping":
        pairs = [("pinned" if is_bound else "first-touch", recommended or "mapped")]
    elif measure == "congestion_aware_mapping":
        pairs = [(ROW_OF.get(mapping_policy, "pinned"), recommended or "spread")]
    else:
        ways = [row for row in ("pinned", "first-touch") if row in rows]
        base = min(ways, key=lambda row: rows[row]["remote_share"], default="pinned")
        pairs = [(base, after) for after in ([recommended] if recommended else ["placed", "evened"])]
    answers = []
    for before, after in pairs:
        if before not in rows or after not in rows:
            return None
        old, new = rows[before], rows[after]
        less = old["remote_share"] - new["remote_share"]
        if measure == "congestion_aware_mapping":
            helped = new["busiest"] <= RELIEF * old["busiest"] and -less < RELIEF_COSTS
        else:
            helped = less >= HELPS
        if measure == "page_placement":
            helped |= new["balance"] - old["balance"] >= EVENS and -less <= EVENING_COSTS
        helped &= old["accesses"] >= MATTER * old["all"]
        answers.append((helped, less, before, after))
    helped, _, before, after = max(answers)
    return before, after, helped


def cell(measure, before, after, rows):
    old, new = rows[before], rows[after]
    if measure == "congestion_aware_mapping":
        return f"busiest {old['busiest']:.2f} to {new['busiest']:.2f}"
    text = f"{100 * old['remote_share']:.1f} to {100 * new['remote_share']:.1f} % remote"
    if measure == "page_placement":
        text += f", balance {old['balance']:.2f} to {new['balance']:.2f}"
    return text


def verdicts(numaloc, profile):
    shown = subprocess.run([numaloc, "show", "--json", "--machine", MACHINE, profile], check=True,
                           stdout=subprocess.PIPE).stdout
    return {verdict["measure"]: verdict for verdict in json.loads(shown)["verdicts"]}


def main():
    numaloc, folder = sys.argv[1:3]
    results = os.path.join(folder, "results.csv")
    if not os.path.isfile(results):
        sys.exit(f"no {results}: run make/measure-verdicts first")
    table, kind = measured(results)
    lines, missing = [], []
    for name, rows in table.items():
        found = verdicts(numaloc, os.path.join(folder, f"{name}.numaloc"))
        mapping = found["thread_mapping"]["policy"]
        is_bound = found["bind_threads"]["verdict"] == "likely to help"
        for measure in SHORT:
            verdict = found[measure]
            answer = judge(measure, verdict["policy"], mapping, is_bound, rows)
            if answer is None:
                missing.append(f"{name}: {SHORT[measure]}")
                continue
            before, after, helped = answer
            words = verdict["verdict"]
            is_right = (words == "likely to help") == helped
            outcome = "open" if words == "cannot tell" else "right" if is_right else "wrong"
            lines.append({"program": name, "set": kind[name], "measure": measure, "verdict": words,
                          "before": before, "after": after, "measured": cell(measure, before, after, rows),
                          "helps": "yes" if helped else "no", "outcome": outcome})
    with open(os.path.join(folder, "verdicts.csv"), "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    text = report(lines)
    print(text, end="")
    for what in missing:
        print(f"not measured: {what}", file=sys.stderr)
    if len(sys.argv) > 3:
        with open(sys.argv[3], encoding="utf-8") as file:
            before, rest = file.read().split(MARKS[0])
        with open(sys.argv[3], "w", encoding="utf-8") as file:
            file.write(before + MARKS[0] + text + MARKS[1] + rest.split(MARKS[1])[1])


def report(lines):
    """A table for each set and the counts."""
    out = ""
    for kind in ("known", "unseen", "later"):
        programs = list(dict.fromkeys(line["program"] for line in lines if line["set"] == kind))
        if not programs:
            continue
        out += f"\n{kind} programs ({len(programs)}):\n\n"
        out += "| program | " + " | ".join(SHORT.values()) + " |\n" + "|---" * (1 + len(SHORT)) + "|\n"
        for name in programs:
            out += f"| `{name}` |"
            for measure in SHORT:
                of = [line for line in lines if (line["program"], line["measure"]) == (name, measure)]
                if of:
                    word = of[0]["verdict"].removesuffix(" to help")
                    mark = {"right": "right", "wrong": "**wrong**", "open": "open"}[of[0]["outcome"]]
                    out += f" {word}; {of[0]['measured']}: {mark} |"
                else:
                    out += " not measured |"
            out += "\n"
    out += "\n| set | measure | right | wrong | cannot tell |\n|---|---|---|---|---|\n"
    kinds = list(dict.fromkeys(line["set"] for line in lines))
    for kind in [*kinds, "all"]:
        for measure in [*SHORT, "all"]:
            of = [line["outcome"] for line in lines
                  if kind in ("all", line["set"]) and measure in ("all", line["measure"])]
            decided = of.count("right") + of.count("wrong")
            share = f" ({100 * of.count('right') / decided:.0f} %)" if decided else ""
            left = f" ({100 * of.count('open') / len(of):.0f} %)" if of else ""
            out += (f"| {kind} | {SHORT.get(measure, 'all')} | {of.count('right')}{share} | {of.count('wrong')} | "
                    f"{of.count('open')}{left} |\n")
    return out + f"\nGoal: {100 * GOAL_RIGHT:.0f} % right of those decided, at most {100 * GOAL_OPEN:.0f} % `cannot tell`.\n"


main()
