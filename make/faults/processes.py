"""Processes that are started, struck and watched until nothing of them is left."""

import ctypes
import os
import pathlib
import signal
import subprocess
import time

NUMALOC = str(pathlib.Path(os.environ.get("NUMALOC", "target/debug/numaloc")).resolve())
PR_SET_CHILD_SUBREAPER = 36
# A bound for what never ends, not a measure: everything that is started here ends within seconds.
PATIENCE = 180


class Broken(Exception):
    """What must hold does not."""


class TooLate(Exception):
    """What was to be struck had ended by then."""


class TooEarly(Exception):
    """What was to be struck had not begun yet."""


def adopt_orphans():
    """From now on processes that lose their parent are children of this script, so that none is overlooked."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def children(pid):
    found = []
    try:
        threads = list(pathlib.Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return found  # Ended since it was listed itself.
    for thread in threads:
        try:
            found += [int(word) for word in (thread / "children").read_text().split()]
        except OSError:
            pass  # Ended since the listing.
    return found


def descendants(pid):
    found = children(pid)
    for child in list(found):
        found += descendants(child)
    return [child for child in found if alive(child)]


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def words(pid):
    """Its command line; empty if it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def name(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def settle():
    """Waits until every process that this script started, or inherited, has ended."""
    deadline = time.monotonic() + PATIENCE
    while left := children(os.getpid()):
        for pid in left:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass
        if time.monotonic() > deadline:
            orphans = descendants(os.getpid())
            names = ", ".join(sorted(name(pid) for pid in orphans))
            for pid in orphans:
                kill(pid)
            raise Broken(f"still running after {PATIENCE} s: {names}")
        time.sleep(0.01)


class Tool:
    """One `numaloc` command in a folder of its own."""

    def __init__(self, folder, *arguments, environment=None):
        self.folder = folder
        self.output = folder / "stdout"
        self.errors = folder / "stderr"
        self.seen = False
        with self.output.open("wb") as output, self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [NUMALOC, *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                env=os.environ | (environment or {}),
            )

    def started(self):
        """The processes that the command has started, first the first."""
        return descendants(self.process.pid)

    def wait(self):
        """Its status, once nothing of it runs any more."""
        try:
            status = self.process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            orphans = descendants(self.process.pid)
            for pid in orphans + [self.process.pid]:
                kill(pid)
            self.process.wait()
            raise Broken(f"still running after {PATIENCE} s; {self.message()}") from None
        settle()
        if "a defect in numaloc" in self.message() or "panicked" in self.message():
            raise Broken(f"a panic: {self.message()}")
        return status

    def run_for(self, seconds):
        """Lets it run, and sees whether it starts anything meanwhile."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.005))
            self.seen = self.seen or bool(self.started())

    def strike(self, victims):
        """kill -9 of processes that it started; without any the moment was the wrong one."""
        if not victims:
            late = self.ended() or self.seen
            self.give_up()
            raise TooLate if late else TooEarly
        for pid in victims:
            kill(pid)

    def ended(self):
        return self.process.poll() is not None

    def strike_itself(self):
        """kill -9 of the command; returns when nothing of it runs any more."""
        kill(self.process.pid)
        if self.wait() != -signal.SIGKILL:
            raise TooLate

    def give_up(self):
        """Ends what a wrong moment left to run."""
        for pid in descendants(os.getpid()):
            kill(pid)
        self.process.wait()
        settle()

    def message(self):
        return self.errors.read_text(errors="replace").strip().replace("\n", " / ")[-400:]

    def refused(self, status, expected):
        """One line of error and the status of numaloc's own failures."""
        lines = [line for line in self.errors.read_text(errors="replace").splitlines() if line.startswith("error: ")]
        return status == expected and len(lines) == 1


def check(*arguments, cwd=None):
    """Runs a command that has to succeed; its output."""
    done = subprocess.run(arguments, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode != 0:
        words = (done.stdout + done.stderr).decode(errors="replace").strip()
        raise Broken(f"{' '.join(map(str, arguments))}: status {done.returncode}: {words}")
    return done.stdout


def numaloc(*arguments, cwd=None):
    return check(NUMALOC, *arguments, cwd=cwd)
