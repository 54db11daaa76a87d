"""Recorded programs and their simulations, kept in target/studies until something they depend on changes."""
import hashlib
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(ROOT, "target", "studies")
# The machines of the studies have caches of 1/SCALE, as our inputs are smaller than the papers'.
SCALE = 4
# Private caches of the recordings: the smallest of the scaled machines; larger ones are simulated behind them.
PRIVATE = "64K/8"


def say(text):
    print(text, file=sys.stderr, flush=True)


def machine_file(name):
    """The described machine with caches of 1/SCALE; the path of its file."""
    with open(os.path.join(ROOT, "machines", name + ".toml")) as file:
        text = file.read()
    smaller = lambda match: f"{int(match[1]) * (1024 if match[2] == 'MiB' else 1) // SCALE}KiB"
    text = re.sub(r"(?m)^name = .*", f'name = "{name}-caches-1-{SCALE}"', text, count=1)
    text = re.sub(r"size=(\d+)(KiB|MiB)", lambda match: f"size={smaller(match)}", text)
    text = re.sub(r"size_bytes = (\d+)", lambda match: f"size_bytes = {int(match[1]) // SCALE}", text)
    os.makedirs(FOLDER, exist_ok=True)
    path = os.path.join(FOLDER, name + ".toml")
    with open(path, "w") as file:
        file.write(text)
    return path


class Runs:
    """Records programs and simulates them with one `numaloc`."""

    def __init__(self, numaloc):
        self.numaloc = os.path.abspath(numaloc)
        os.makedirs(FOLDER, exist_ok=True)
        self.version = subprocess.run([self.numaloc, "--version"], check=True, stdout=subprocess.PIPE,
                                      text=True).stdout.split("\n")[0]

    def profile(self, name, words, threads, *options):
        """The profile of a program with that many threads, recorded with these options unless it is there."""
        words = [word.replace("{threads}", str(threads)) for word in words]
        path = os.path.join(FOLDER, "".join([f"{name}-{threads}", *options]) + ".numaloc")
        made = path.removesuffix(".numaloc") + ".made.json"
        program = os.path.join(ROOT, words[0])
        wanted = {"words": words, "private": PRIVATE, "version": self.version,
                  "program": os.path.getmtime(program) if os.path.exists(program) else None}
        if os.path.isdir(path) and os.path.exists(made):
            with open(made) as file:
                if json.load(file) == wanted:
                    return path
        say(f"recording {name} with {threads} threads")
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="passive")
        run = subprocess.run([self.numaloc, "--quiet", "record", "--trace", "--trace-l2", PRIVATE, *options, "--force", "-o", path,
                              "--", *words], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        if run.returncode:
            sys.exit(f"error: {' '.join(words)} cannot be studied: its recording ended with status {run.returncode}")
        with open(made, "w") as file:
            json.dump(wanted, file)
        return path

    def json(self, *arguments):
        """Output of a command of numaloc."""
        run = subprocess.run([self.numaloc, "--quiet", "--json", *arguments], check=True, cwd=ROOT,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        return json.loads(run.stdout)

    def rows(self, profile, machine, threads, pages, *options):
        """Rows of `numaloc simulate`: {(thread policy, page policy): row}, of several draws the median by time."""
        key = json.dumps([self.version, "parallel_ns", os.path.basename(profile), os.path.getmtime(profile), machine, threads, pages,
                          options])
        with open(machine) as file:
            key += file.read()
        kept = os.path.join(FOLDER, "rows-" + hashlib.sha256(key.encode()).hexdigest()[:24] + ".json")
        if os.path.exists(kept):
            with open(kept) as file:
                rows = json.load(file)
        else:
            found = self.json("simulate", profile, "--machine", machine, "--threads", ",".join(threads), "--pages",
                              ",".join(pages), *options)
            rows = [dict(row, thread_ends_ns=None) for row in found["rows"]]
            with open(kept + ".part", "w") as file:
                json.dump(rows, file)
            os.replace(kept + ".part", kept)
        grouped = {}
        for row in sorted(rows, key=lambda row: row["parallel_ns"] or row["time_ns"]):
            grouped.setdefault((row["threads"], row["pages"]), []).append(row)
        return {case: of[(len(of) - 1) // 2] for case, of in grouped.items()}
