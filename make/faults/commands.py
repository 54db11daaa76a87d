"""What reads and writes files of its own, or starts a program: `plan`, `report`, `run`, `tasks`, `lab`."""

import filecmp
import os
import random
import subprocess
import time

from processes import Broken, NUMALOC, TooLate, Tool, check, name, numaloc
from recordings import PROGRAM, inputs, result

MACHINE = "numa:8 core:8 pu:1"
TASK_MACHINE = "numa:2 core:2 pu:1"


def same(one, other):
    """Two files, or two folders with the same files, have the same bytes."""
    if not one.is_dir():
        return one.read_bytes() == other.read_bytes()
    names = sorted(os.listdir(other))
    return sorted(os.listdir(one)) == names and filecmp.cmpfiles(one, other, names, shallow=False)[0] == names


# Seconds in which a fault of that kind may come: from the first byte of an output to its last one, and a little beyond.
WINDOWS = {"writing": 0.01}


class Writer:
    """A command that makes one output from an input.

    `any` kills it at a moment of its run, `writing` as soon as a new name appears beside the output, `replacing` at
    any moment while the output exists already.
    """

    kinds = ["any", "writing", "replacing"]
    output = "out"

    def command_line(self, folder):
        return [*self.arguments, "-o", folder / self.output]

    def set_up(self, folder):
        self.make(folder)
        began = time.monotonic()
        tool = Tool(folder, *self.command_line(folder))
        if tool.wait() != 0:
            raise Broken(f"without a fault: {tool.message()}")
        self.want = folder / self.output
        return time.monotonic() - began

    def fault(self, kind, moment, folder, chance):
        out = folder / self.output
        old = b"the user's own\n"
        line = self.command_line(folder)
        if kind == "replacing":
            out.write_bytes(old)
            line.append("--force")
        tool = Tool(folder, *line)
        if kind == "writing":
            known = set(os.listdir(folder))
            while set(os.listdir(folder)) == known:
                if tool.ended():
                    raise TooLate
        time.sleep(moment)
        tool.strike_itself()
        others = [file for file in os.listdir(folder) if not file.startswith(".")]
        if unknown := set(others) - {self.output, "stdout", "stderr"}:
            raise Broken(f"left behind in sight: {unknown}")
        partial = " and a hidden partial file" if any(file.startswith(".") for file in os.listdir(folder)) else ""
        if not out.exists():
            if kind == "replacing":
                raise Broken("the old output is gone and the new one not there")
            return "absent" + partial
        if kind == "replacing" and out.read_bytes() == old:
            return "the old one" + partial
        if not same(out, self.want):
            raise Broken("the output is neither absent nor whole")
        return "whole" + partial


def large_profile(folder):
    """64 threads with random amounts, on 4,000 pages."""
    chance = random.Random(1)
    rows = (",".join(str(chance.randrange(1000) if i != j else 0) for j in range(64)) for i in range(64))
    (folder / "m.csv").write_text("\n".join(rows) + "\n")
    header = "page.address,alloc.thread,alloc.location,firsttouch.thread,firsttouch.location,structure.name,"
    pages = [header + ",".join(f"T{thread}" for thread in range(64))]
    for page in range(4000):
        amounts = ["0"] * 64
        amounts[chance.randrange(64)] = str(chance.randrange(1, 10000))
        pages.append(f"{100 + page},0,,0,,field," + ",".join(amounts))
    (folder / "pages.csv").write_text("\n".join(pages) + "\n")
    profile = folder / "big.numaloc"
    numaloc("import", "m.csv", "--pages", "pages.csv", "-o", profile, cwd=folder)
    return profile


class Planner(Writer):
    command = "plan"

    def make(self, folder):
        self.arguments = ["plan", large_profile(folder), "--machine", MACHINE]


class Reporter(Writer):
    command = "report"

    def make(self, folder):
        self.arguments = ["report", large_profile(folder), "--machine", MACHINE]


def stencil(folder):
    program = folder / "stencil2d"
    numaloc("tasks", "cc", "-O2", "workloads/ocr/stencil2d/stencil2d.c", "-o", program, "-lm")
    return program


class Analyser(Writer):
    """The output is a folder."""

    command = "tasks analyse"
    kinds = ["any", "writing"]

    def make(self, folder):
        numaloc("tasks", "profile", "-o", folder / "profile", "--machine", TASK_MACHINE, "--replays", "2", "--",
                stencil(folder), "64", "4", "2", "4")
        self.arguments = ["tasks", "analyse", folder / "profile", "--machine", TASK_MACHINE, "--force"]


class Runner:
    """What runs a program; `program` is the victim, or the tool itself."""

    kinds = ["program", "tool"]

    def set_up(self, folder):
        self.make(folder)
        began = time.monotonic()
        tool = self.start(folder)
        if tool.wait() != 0:
            raise Broken(f"without a fault: {tool.message()}")
        self.want = self.result(folder)
        return time.monotonic() - began

    def prepare(self, folder):
        pass

    def result(self, folder):
        return (folder / "stdout").read_bytes()

    def victims(self, kind, tool, chance):
        return tool.started()[:1]

    def fault(self, kind, moment, folder, chance):
        self.prepare(folder)
        tool = self.start(folder, kind)
        tool.run_for(moment)
        if kind == "tool":
            with_program = bool(tool.started())
            tool.strike_itself()
            return self.without_tool(folder, with_program)
        tool.strike(self.victims(kind, tool, chance))
        return self.without_program(kind, tool.wait(), tool)


class Run(Runner):
    """A plan applied to three processes."""

    command = "run"
    kinds = ["program", "child", "tool"]

    def make(self, folder):
        inputs(folder)
        check(*PROGRAM, cwd=folder)
        self.native = result(folder)
        numaloc("record", "-o", folder / "p.numaloc", "--", *PROGRAM, cwd=folder)
        self.plan = folder / "plan.json"
        numaloc("plan", folder / "p.numaloc", "--threads", "numaloc", "--pages", "locality", "--anyway", "-o", self.plan)

    def prepare(self, folder):
        inputs(folder)

    def start(self, folder, kind=None):
        program = list(PROGRAM)
        if kind == "tool":
            # It has to end with `numaloc run`, not by itself.
            program[-1] += "; exec sleep 1000000"
        return Tool(folder, "run", "--plan", self.plan, "--verify", "--", *program)

    def result(self, folder):
        if result(folder) != self.native:
            raise Broken("without a fault: the program's output differs from a native run's")
        return self.native

    def victims(self, kind, tool, chance):
        others = tool.started()
        if kind == "program":
            return others[:1]
        return [chance.choice(others[1:])] if others[1:] else []

    def without_tool(self, folder, with_program):
        # The program ends with it (docs/commands/run.md).
        return "the program ended with it" if with_program else "before the program"

    def without_program(self, kind, status, tool):
        got = result(tool.folder)
        if kind == "child":
            if status not in (0, 137) or not any(one == two for one, two in zip(got, self.want)):
                raise Broken(f"a child killed: status {status}, output of the other differs; {tool.message()}")
            if got == self.want:
                raise TooLate
            return "the other's output right"
        if status != 137:
            # It had ended since it was looked for.
            if status == 0 and got == self.want:
                raise TooLate
            raise Broken(f"the program was killed and the status is {status}; {tool.message()}")
        # Its children run on, as they do natively.
        if any(one is not None and one != two for one, two in zip(got, self.want)):
            raise Broken(f"the program killed: the output of its children differs; {tool.message()}")
        return "status passed on"


class TaskProfile(Runner):
    command = "tasks profile"

    def make(self, folder):
        self.program = stencil(folder)

    def start(self, folder, kind=None):
        return Tool(folder, "tasks", "profile", "-o", folder / "profile", "--machine", TASK_MACHINE, "--replays", "4",
                    "--", self.program, "64", "4", "2", "40")

    def profile(self, folder):
        """Absent, or whole."""
        if not (folder / "profile").exists():
            return "absent"
        done = subprocess.run(
            [NUMALOC, "tasks", "analyse", folder / "profile", "-o", folder / "plan", "--machine", TASK_MACHINE,
             "--force"], capture_output=True, text=True)
        if done.returncode != 0:
            raise Broken(f"the profile cannot be read: {done.stderr.strip()}")
        return "whole"

    def without_tool(self, folder, with_program):
        return self.profile(folder)

    def without_program(self, kind, status, tool):
        if status == 0:
            raise TooLate
        if status != 137 and not tool.refused(status, 125):
            raise Broken(f"the program was killed: status {status}; {tool.message()}")
        return f"status {status}, profile {self.profile(tool.folder)}"


class TaskRun(Runner):
    command = "tasks run"

    def make(self, folder):
        self.program = stencil(folder)
        numaloc("tasks", "profile", "-o", folder / "profile", "--replays", "2", "--machine", TASK_MACHINE, "--",
                self.program, "64", "4", "2", "4")
        self.plan = folder / "plan"
        numaloc("tasks", "analyse", folder / "profile", "-o", self.plan, "--machine", TASK_MACHINE, "--force")

    def start(self, folder, kind=None):
        return Tool(folder, "tasks", "run", "--plan", self.plan, "--machine", TASK_MACHINE, "--",
                    self.program, "128", "4", "2", "400")

    def result(self, folder):
        """Its checked sum; the line after it is the time."""
        return super().result(folder).split(b"\n")[0]

    def without_tool(self, folder, with_program):
        # The program runs on to its natural end. One that was not seen may have ended, or started since.
        got = self.result(folder)
        if got != self.want and (with_program or got):
            raise Broken(f"the program's output differs: {got!r}")
        return "output right" if got else "before the program"

    def without_program(self, kind, status, tool):
        if status == 0 and self.result(tool.folder) == self.want:
            raise TooLate
        if status != 137:
            raise Broken(f"the program was killed and the status is {status}; {tool.message()}")
        return "status passed on"


class Lab(Runner):
    """A virtual machine: half a minute for each."""

    command = "lab"
    kinds = ["qemu", "tool"]

    def make(self, folder):
        pass

    def start(self, folder, kind=None):
        return Tool(folder, "lab", "--nodes", "2", "--cpus", "2", "--memory", "256M", "--", "sh", "-c", "echo done",
                    environment={"TMPDIR": str(folder)})

    def victims(self, kind, tool, chance):
        return [pid for pid in tool.started() if name(pid).startswith("qemu-system")]

    def without_tool(self, folder, with_program):
        return "the machine ended with it"

    def without_program(self, kind, status, tool):
        if status == 0 and self.result(tool.folder) == self.want:
            # Booted again, or killed when all was done.
            return "result right"
        if not tool.refused(status, 125):
            raise Broken(f"the machine was killed: status {status}; {tool.message()}")
        return "said so"


CASES = [Run, Planner, Reporter, TaskProfile, Analyser, TaskRun, Lab]
