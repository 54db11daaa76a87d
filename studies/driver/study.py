"""What all studies share: programs from the command line, tables, comparisons with the paper, and the files they write."""
import csv
import datetime
import os
import platform
import shlex
import subprocess
import sys

from figures import bars
from kernels import KERNELS, Kernel
from runs import FOLDER, PRIVATE, SCALE, Runs, machine_file, say  # noqa: F401 (for the studies)

USAGE = """usage: run NUMALOC [-- PROGRAM [ARGUMENT...] [';' PROGRAM ...]]

Without programs: our kernels; writes results.md, results.csv and figures next to this file. With programs given here or in
PROGRAMS (separated by semicolons), theirs are recorded and their tables printed; nothing is written here. Recordings and
simulations stay in target/studies and are used again until the program or numaloc changes. {threads} in an argument is the
number of threads, which OMP_NUM_THREADS has, too."""


def mean(numbers):
    numbers = [number for number in numbers if number is not None]
    return sum(numbers) / len(numbers) if numbers else 0.0


def change(value, base):
    """In percent; None without a base."""
    return 100 * (value / base - 1) if base > 0 else None


def balance(amounts):
    """Balance of amounts on nodes: 1 - (max - min) / sum (data mapping paper, equations 3 and 5)."""
    return 1 - (max(amounts) - min(amounts)) / sum(amounts) if sum(amounts) > 0 else 1.0


def milliseconds(row):
    """Time of the parallel part: as in the papers' benchmarks, what the main thread does alone before it creates threads,
    and after their end, does not count. In their runs of minutes it is small, in ours of milliseconds it is not."""
    return (row["parallel_ns"] or row["time_ns"]) / 1e6


def queue_wait_ms(row):
    """Sum of the waits in all controllers' queues."""
    return sum(node["mean_wait_ns"] * (node["lines_read"] + node["lines_written"]) for node in row["nodes"]) / 1e6


def lines_of_nodes(row):
    """Lines read from and written to the memory of each node."""
    return [node["lines_read"] + node["lines_written"] for node in row["nodes"]]


def cell(number, form="{:+.1f}"):
    return "-" if number is None else form.format(number)


def table(title, columns, rows, form="{:+.1f}", average=True):
    """Markdown: a row of numbers for each program, and their means; `rows`: {program: [number or None]}."""
    lines = [f"| {title} | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {name} | " + " | ".join(cell(number, form) for number in row) + " |" for name, row in rows.items()]
    if average and rows:
        means = [mean(row[at] for row in rows.values()) for at in range(len(columns))]
        lines.append("| **mean** | " + " | ".join(cell(number, form) for number in means) + " |")
    return "\n".join(lines)


def effects(rows):
    """Markdown: side by side with the paper; `rows`: [(effect, published, ours, whether the direction agrees)]."""
    lines = ["| effect | published | ours | direction |", "|---|---|---|---|"]
    lines += [f"| {effect} | {published} | {ours} | {'as published' if agrees else '**differs**'} |"
              for effect, published, ours, agrees in rows]
    return "\n".join(lines)


class Study:
    """A study in one folder: its programs, and what it writes."""

    def __init__(self, file, title):
        if len(sys.argv) < 2 or sys.argv[2:3] not in ([], ["--"]):
            sys.exit(USAGE)
        self.folder, self.title = os.path.dirname(os.path.abspath(file)), title
        self.name = os.path.basename(self.folder)
        self.runs = Runs(sys.argv[1])
        given = given_programs(sys.argv[3:])
        self.kernels = given or KERNELS
        self.is_whole = not given
        self.parts, self.rows, self.figures = [], [], []

    def say(self, text):
        self.parts.append(text)

    def chart(self, name, title, unit, rows, columns):
        """A figure of `rows` as in `table`."""
        series = [(column, [row[at] for row in rows.values()]) for at, column in enumerate(columns)]
        self.figures.append((name + ".svg", bars(title, unit, list(rows), series)))
        if self.is_whole:
            self.say(f"![{title}]({name}.svg)")

    def record(self, setting, program, case, **figures):
        """A row of results.csv for each figure."""
        self.rows += [[setting, program, case, name, f"{value:.6g}"] for name, value in figures.items()]

    def write(self):
        command = f"make study-{self.name}" + ("" if self.is_whole else ' PROGRAMS="..."')
        qemu = subprocess.run(["qemu-x86_64", "--version"], stdout=subprocess.PIPE, text=True).stdout.split("\n")[0]
        head = [f"# {self.title}", "",
                f"Made by `{command}` on {datetime.date.today().isoformat()} with {self.runs.version}, {qemu}, Python "
                f"{platform.python_version()}. What is compared with what: [README.md](README.md). Simulated times of the parallel part of each run; caches "
                f"of the machines are 1/{SCALE}, recordings below private caches of {PRIVATE}.", ""]
        if self.is_whole:
            sizes = [f"| {kernel.name} | {kernel.kind} | `{' '.join([os.path.basename(kernel.words[0]), *kernel.words[1:]])}` "
                     f"| {kernel.stands_for} |" for kernel in self.kernels]
            self.say("\n".join(["## Kernels", "", "| kernel | class | program and size | stands for |", "|---|---|---|---|",
                                *sizes]))
        text = "\n".join(head) + "\n" + "\n\n".join(self.parts) + "\n"
        if not self.is_whole:
            print(text)
            return
        with open(os.path.join(self.folder, "results.md"), "w") as file:
            file.write(text)
        with open(os.path.join(self.folder, "results.csv"), "w", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(["setting", "program", "case", "figure", "value"])
            rows.writerows(self.rows)
        for name, svg in self.figures:
            with open(os.path.join(self.folder, name), "w") as file:
                file.write(svg)
        say(f"studies/{self.name}/results.md")


def given_programs(arguments):
    """Kernels of the programs on the command line or in PROGRAMS."""
    text = " ".join(shlex.quote(word) if word != ";" else ";" for word in arguments) or os.environ.get("PROGRAMS", "")
    found = []
    for one in text.split(";"):
        words = shlex.split(one)
        if not words:
            continue
        name = os.path.basename(words[0])
        same = sum(1 for kernel in found if kernel.name.split("#")[0] == name)
        found.append(Kernel(f"{name}#{same + 1}" if same else name, words, "", ""))
    return found
