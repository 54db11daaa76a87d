"""`numaloc record` with each frontend: the program, a process of it, a launcher or the recorder is killed; a full disk."""

import json
import subprocess
import time

from processes import Broken, NUMALOC, TooLate, Tool, check, kill, name, numaloc, words

# Three processes, two of them with threads of their own, writing to files of their own.
PROGRAM = ["sh", "-c", "xz -T2 -1 --block-size=64KiB -c first > a & pigz -p 2 -n -c second > b; wait"]


def inputs(folder):
    for file, first in (("first", 1), ("second", 20001)):
        (folder / file).write_text("\n".join(map(str, range(first, first + 20000))))


def result(folder):
    """What the program wrote."""
    return [(folder / file).read_bytes() if (folder / file).exists() else None for file in "ab"]


def whole_profile(profile):
    """Absent, or whole. Returns its meta.json or None."""
    if not profile.exists():
        return None
    shown = subprocess.run([NUMALOC, "show", profile, "--matrix", "csv"], capture_output=True)
    if shown.returncode != 0:
        raise Broken(f"profile cannot be read: {shown.stderr.decode(errors='replace').strip()}")
    rows = shown.stdout.decode().splitlines()
    if any(len(row.split(",")) != len(rows) for row in rows) or not rows:
        raise Broken("matrix is not square")
    return json.loads((profile / "meta.json").read_text())


def left_behind(folder):
    return list(folder.glob(".p.numaloc.recording-*"))


def salvage(folders, profile):
    """Salvages what a recorder left; returns `salvaged` or `nothing to salvage`."""
    for left in folders:
        done = subprocess.run([NUMALOC, "record", "--salvage", left, "-o", profile], capture_output=True)
        if done.returncode == 0:
            if whole_profile(profile) is None:
                raise Broken("--salvage says it wrote a profile, there is none")
            return "salvaged"
        if not done.stderr.startswith(b"error: ") or profile.exists():
            raise Broken(f"--salvage: {done.returncode} {done.stderr.decode(errors='replace')}")
    return "nothing to salvage"


# How long a launcher may go on after one of its ranks was killed; it usually takes less than a second.
LAUNCHER_PATIENCE = 60


class Recording:
    """What all recordings have in common; a frontend says what it records and what the program's result is."""

    kinds = ["program", "recorder"]
    options = []
    environment = {}

    def record(self, folder, where):
        return Tool(
            folder, "record", *self.options, "-o", where / "p.numaloc", "--", *self.program,
            environment=self.environment,
        )

    def set_up(self, folder):
        """Makes what is needed; returns how long a run without a fault takes."""
        self.make(folder)
        began = time.monotonic()
        tool = self.record(folder, folder)
        status = tool.wait()
        self.want = self.result(folder)
        if status != 0 or whole_profile(folder / "p.numaloc") is None or not self.right(folder):
            raise Broken(f"without a fault: status {status}; {tool.message()}")
        return time.monotonic() - began

    def prepare(self, folder):
        pass

    def result(self, folder):
        return (folder / "stdout").read_bytes()

    def right(self, folder):
        return self.result(folder) == self.want

    def started(self, tool):
        """The program, if it was started, and what it has started."""
        return tool.started()

    def victims(self, kind, tool, chance):
        return self.started(tool)[:1]

    def struck(self, kind, tool):
        """Called after a fault."""

    def fault(self, kind, moment, folder, chance):
        self.prepare(folder)
        tool = self.record(folder, folder)
        tool.run_for(moment)
        if kind == "recorder":
            begun = bool(self.started(tool))
            tool.strike_itself()
            # Killed before it had started the program, it leaves none to finish.
            if begun and not self.right(folder):
                raise Broken(f"recorder killed: the program's output differs; {tool.message()}")
            if whole_profile(folder / "p.numaloc") is not None:
                return "whole"
            return salvage(left_behind(folder), folder / "p.numaloc")
        tool.strike(self.victims(kind, tool, chance))
        self.struck(kind, tool)
        status = tool.wait()
        meta = whole_profile(folder / "p.numaloc")
        if meta is None:
            if not tool.refused(status, 125) and not (kind in ("launcher", "rank") and self.not_begun(status, tool)):
                raise Broken(f"{kind} killed: no profile, status {status}, {tool.message()}")
            return "no profile, said so"
        if kind in ("program", "launcher") and status != 137:
            # It had ended since it was looked for.
            if status == 0 and meta["complete"]:
                raise TooLate
            raise Broken(f"{kind} killed: status {status}; {tool.message()}")
        if kind == "program" and meta["complete"]:
            raise Broken("the program was killed and the profile calls itself complete")
        return "whole" if meta["complete"] else "cut short"


class Emulated(Recording):
    """The qemu frontend, over three processes."""

    command = "record"
    options = ["--frontend", "qemu"]
    kinds = ["program", "child", "recorder", "disk"]
    program = PROGRAM

    def make(self, folder):
        inputs(folder)
        check(*PROGRAM, cwd=folder)
        native = result(folder)
        tool = self.record(folder, folder)
        peak = 0
        while not tool.ended():
            peak = max(peak, bytes_of(left_behind(folder)))
            time.sleep(0.002)
        tool.wait()
        if result(folder) != native:
            raise Broken("without a fault: the program's output differs from a native run's")
        self.needed = peak + bytes_of([folder / "p.numaloc"])
        subprocess.run(["rm", "-r", folder / "p.numaloc"], check=True)

    def prepare(self, folder):
        inputs(folder)

    def result(self, folder):
        return result(folder)

    def victims(self, kind, tool, chance):
        others = tool.started()
        if kind == "program":
            return others[:1]
        return [chance.choice(others[1:])] if others[1:] else []

    def fault(self, kind, moment, folder, chance):
        if kind == "disk":
            return self.full_disk(folder, chance)
        return super().fault(kind, moment, folder, chance)

    def full_disk(self, folder, chance):
        self.prepare(folder)
        disk = folder / "disk"
        disk.mkdir()
        size = chance.randrange(16 << 10, int(self.needed * 2.5)) // 4096 * 4096
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", disk], check=True)
        try:
            tool = self.record(folder, disk)
            status = tool.wait()
            said = f"disk of {size} bytes: status {status}; {tool.message()}"
            if not self.right(folder):
                raise Broken(f"the program's output differs; {said}")
            meta = whole_profile(disk / "p.numaloc")
            if meta is None and (status != 125 or "error: " not in tool.message()):
                raise Broken(f"no profile and no word of it; {said}")
            if status not in (0, 125):
                raise Broken(said)
            if meta is None:
                # What was written before the disk was full is kept beside, and can be had elsewhere.
                return "no profile, said so; " + salvage(left_behind(disk), folder / "p.numaloc")
            return "whole" if meta["complete"] else "cut short"
        finally:
            subprocess.run(["umount", "-l", disk], check=True)


class Translated(Emulated):
    """The native frontend, over the same processes."""

    command = "record, native"
    options = ["--frontend", "native"]


class Instrumented(Recording):
    """A program built with `numaloc cc`, which writes its own journal."""

    command = "record, instrumented"
    options = ["--frontend", "instrument"]
    environment = {"OMP_NUM_THREADS": "4"}

    def make(self, folder):
        ring = folder / "ring"
        numaloc("cc", "--", "gcc", "-O2", "-g", "-fopenmp", "workloads/ring.c", "-o", ring)
        self.program = [ring, "2048", "400"]


class Launched(Recording):
    """Ranks under mpirun."""

    command = "record --mpi"
    kinds = ["launcher", "rank", "recorder"]
    options = ["--mpi"]

    def make(self, folder):
        program = "target/workloads/mpi/openmpi/pairs"
        check("make", "-s", program)
        ranks = folder / "pairs"
        ranks.write_bytes(open(program, "rb").read())
        ranks.chmod(0o755)
        self.program = [
            "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "4", ranks, "2000", "50", "500",
        ]

    @staticmethod
    def not_begun(status, tool):
        """The launcher's own status, if there were no ranks yet."""
        return status == 137 and "no profile: no rank started MPI" in tool.message()

    def started(self, tool):
        # The launcher is asked for its version first; that is no program yet.
        return [pid for pid in tool.started() if (said := words(pid)) and "--version" not in said]

    def struck(self, kind, tool):
        """Ends a launcher that waits although no rank is left.

        Open MPI 4.1 does that, without numaloc as well, in one of 250 runs in which a rank is killed while it connects.
        """
        if kind != "rank":
            return
        deadline = time.monotonic() + LAUNCHER_PATIENCE
        while not tool.ended() and time.monotonic() < deadline:
            time.sleep(0.02)
        left = self.started(tool)
        if not tool.ended() and all(any("mpirun" in word for word in words(pid)) for pid in left):
            for pid in left:
                kill(pid)

    def victims(self, kind, tool, chance):
        if kind == "launcher":
            return self.started(tool)[:1]
        ranks = [pid for pid in tool.started() if name(pid) == "pairs"]
        return [chance.choice(ranks)] if ranks else []


class LaunchedEmulated(Launched):
    """Ranks under mpirun, each with threads, each in an emulator of its own: messages and memory accesses in one profile."""

    command = "record --mpi, emulated"
    options = ["--mpi", "--frontend", "qemu"]
    environment = {"OMP_NUM_THREADS": "2"}

    def make(self, folder):
        program = "target/workloads/mpi/openmpi/hybrid"
        check("make", "-s", program)
        self.ranks(folder / "hybrid", open(program, "rb").read())

    def ranks(self, program, content):
        program.write_bytes(content)
        program.chmod(0o755)
        self.program = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2", program]

    def result(self, folder):
        # Ranks speak in any order.
        return sorted(super().result(folder).splitlines())

    def victims(self, kind, tool, chance):
        if kind == "launcher":
            return self.started(tool)[:1]
        # An emulator is named after its program or after itself, by how far it is; names have 15 bytes.
        ranks = [pid for pid in tool.started() if name(pid) in ("hybrid", "qemu-x86_64", "numaloc-native")]
        return [chance.choice(ranks)] if ranks else []


class LaunchedTranslated(LaunchedEmulated):
    """The same by the native frontend."""

    command = "record --mpi, native"
    options = ["--mpi", "--frontend", "native"]


class LaunchedInstrumented(LaunchedEmulated):
    """The same with ranks that were built with `numaloc cc`."""

    command = "record --mpi, instrumented"
    options = ["--mpi", "--frontend", "instrument"]

    def make(self, folder):
        program = folder / "built"
        numaloc("cc", "--", "mpicc.openmpi", "-O2", "-g", "-fopenmp", "-std=gnu11", "workloads/mpi/hybrid.c", "-o", program)
        self.ranks(folder / "hybrid", program.read_bytes())


def bytes_of(folders):
    total = 0
    for folder in folders:
        for file in folder.glob("*"):
            try:
                total += file.stat().st_size
            except OSError:
                pass  # Gone since the listing.
    return total


CASES = [Emulated, Translated, Instrumented, Launched, LaunchedEmulated, LaunchedTranslated, LaunchedInstrumented]
