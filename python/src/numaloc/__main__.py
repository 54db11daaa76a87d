"""``python -m numaloc store ...``: what ``numaloc store`` starts."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Optional, Sequence

from . import Fleet, NumalocError, store_add


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="numaloc", description="Stores of many profiles")
    commands = parser.add_subparsers(dest="command", required=True)
    actions = commands.add_parser("store", help="stores of many profiles").add_subparsers(dest="action", required=True)
    add = actions.add_parser("add", help="add profiles to a store")
    add.add_argument("paths", nargs="+", metavar="PROFILE... STORE")
    for name in ["host", "program", "date", "commit", "machine"]:
        add.add_argument(f"--{name}")
    add.add_argument("--nodes", type=int)
    ask = actions.add_parser("ask", help="answer a question about all profiles")
    ask.add_argument("store")
    ask.add_argument("question", choices=["runs", "most-remote", "changes", "badly-placed"])
    ask.add_argument("--since")
    report = actions.add_parser("report", help="write an HTML file with all answers")
    report.add_argument("store")
    report.add_argument("-o", "--output", required=True)
    report.add_argument("--force", action="store_true")
    for action in [add, ask, report]:
        action.add_argument("--json", action="store_true", help="print one object (docs/formats/json.md)")
    return parser


def _run(given: argparse.Namespace) -> None:
    if given.action == "add":
        *profiles, store = given.paths
        if not profiles:
            raise NumalocError(f"cannot add to {store}: expected PROFILE... STORE")
        names = {n: getattr(given, n) for n in ["host", "program", "date", "commit", "machine", "nodes"]}
        runs = []
        for profile in profiles:
            runs.append(store_add(profile, store, **names))
            if not given.json:
                print(runs[-1])
        if given.json:
            print(json.dumps({"version": 1, "store": store, "runs": runs}))
    elif given.action == "report":
        written = Fleet(given.store).report(given.output, force=given.force)
        print(json.dumps({"version": 1, "report": str(written)}) if given.json else written)
    else:
        fleet = Fleet(given.store)
        method = getattr(fleet, given.question.replace("-", "_"))
        frame = method(since=given.since) if given.question == "changes" and given.since else method()
        if given.json:
            rows = json.loads(frame.to_json(orient="records"))
            print(json.dumps({"version": 1, "question": given.question, "rows": rows}))
        else:
            print(frame.to_string(index=False))


def main(words: Optional[Sequence[str]] = None) -> int:
    """Runs a command; 0, or 1 after one line about what failed."""
    try:
        _run(_parser().parse_args(words))
        sys.stdout.flush()
    except NumalocError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except ModuleNotFoundError as error:
        sys.stderr.write(f"error: the Python package {error.name} is missing\n  try: install what a store needs (docs/store.md)\n")
        return 1
    except BrokenPipeError:
        # The reader has enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def store() -> int:
    """``numaloc-store ...``."""
    return main(["store", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
