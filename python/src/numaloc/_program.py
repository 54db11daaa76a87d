"""What the installed program ``numaloc`` does: recording, running, simulating, checking."""

from __future__ import annotations

import collections
import html
import json
import os
import shutil
import subprocess
import sysconfig
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from typing import Any, Mapping as Dict, Optional, Sequence, TypedDict, Union

from ._machine import MachineLike, as_machine
from ._numaloc import NumalocError
from ._plans import Plan, Policy, plan as make_plan
from ._profile import Profile

Path = Union[str, "os.PathLike[str]"]
#: Lines of standard error that are kept for an error message.
_KEPT = 40


def program() -> str:
    """The program ``numaloc``: ``$NUMALOC`` if set, otherwise the one that a wheel installed with this package, otherwise
    the one on ``PATH``."""
    named = os.environ.get("NUMALOC")
    if named:
        found = shutil.which(named)
    else:
        found = shutil.which("numaloc", path=sysconfig.get_path("scripts")) or shutil.which("numaloc")
    if found is None:
        where = f"NUMALOC={named}" if named else "PATH"
        raise NumalocError(
            f"cannot find the program numaloc by {where}: install it (docs/install.md) or set NUMALOC to its path"
        )
    return found


def _words(command: Sequence[Any]) -> list[str]:
    if isinstance(command, (str, bytes)):
        raise NumalocError(f"the command {command!r} is one text: expected a list of words")
    return [os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in command]


def _error(lines: Sequence[str], status: int, what: str) -> NumalocError:
    """The error that the program printed last: ``error: ...`` and the lines that belong to it."""
    starts = [at for at, line in enumerate(lines) if line.startswith("error: ")]
    if not starts:
        return NumalocError(f"numaloc {what} ended with status {status} and no message")
    first = starts[-1]
    parts = [lines[first][len("error: ") :].strip()]
    parts += [line.strip() for line in lines[first + 1 :] if line.startswith("  ")]
    return NumalocError("; ".join(parts))


def _passed_on(
    arguments: list[str], own: Sequence[int], env: Optional[Dict[str, str]], cwd: Optional[Path]
) -> int:
    """Runs the program with our standard input and output, and returns its status, which may be that of the program it
    started; ``own`` are statuses that are failures of numaloc itself."""
    kept: collections.deque[str] = collections.deque(maxlen=_KEPT)
    child = subprocess.Popen([program(), *arguments], stderr=subprocess.PIPE, env=env, cwd=cwd)

    def pass_on() -> None:
        assert child.stderr is not None
        for line in child.stderr:
            text = line.decode("utf-8", "replace")
            kept.append(text)
            sys.stderr.write(text)

    reader = threading.Thread(target=pass_on, daemon=True)
    reader.start()
    try:
        status = child.wait()
    except BaseException:
        child.terminate()
        child.wait()
        raise
    reader.join()
    if status in own:
        raise _error(list(kept), status, arguments[0])
    return status


def _answered(arguments: list[str], accepted: Sequence[int] = (0,)) -> tuple[dict[str, Any], int]:
    """The JSON object that a command prints, and its status."""
    done = subprocess.run([program(), "--json", "--quiet", *arguments], capture_output=True, text=True)
    if done.returncode not in accepted:
        raise _error(done.stderr.splitlines(), done.returncode, arguments[0])
    try:
        return json.loads(done.stdout), done.returncode
    except ValueError as error:
        raise NumalocError(f"numaloc {arguments[0]} printed no JSON object: {error}") from error


def record(
    command: Sequence[Any],
    output: Path,
    *,
    options: Sequence[str] = (),
    force: bool = False,
    check: bool = True,
    env: Optional[Dict[str, str]] = None,
    cwd: Optional[Path] = None,
) -> Profile:
    """Runs a program and records it, as ``numaloc record -o OUTPUT [OPTIONS] -- COMMAND``.

    :param command: the program and its arguments.
    :param output: profile folder to write; replaced only with ``force``.
    :param options: further options of ``numaloc record``, for example ``["--trace"]``.
    :param check: raise if the program's exit status is not 0; its profile is kept.
    :raises NumalocError: if the program cannot be recorded.
    """
    arguments = ["record", "-o", os.fspath(output), *(["--force"] if force else []), *options, "--", *_words(command)]
    status = _passed_on(arguments, (125, 126, 127), env, cwd)
    if check and status != 0:
        raise NumalocError(f"{_words(command)[0]} ended with status {status}; its profile is {os.fspath(output)}")
    return Profile(os.path.join(cwd, output) if cwd is not None else output)


def _file_of(plan: "Plan | Path", path: str) -> str:
    """The file of a plan; one without a file is written to ``path``, whatever it is worth."""
    return plan.save(path, anyway=True) if isinstance(plan, Plan) else os.fspath(plan)


def run(
    command: Sequence[Any],
    plan: "Plan | Path",
    *,
    options: Sequence[str] = (),
    env: Optional[Dict[str, str]] = None,
    cwd: Optional[Path] = None,
) -> dict[str, Any]:
    """Runs a program under a plan, as ``numaloc run --plan PLAN -- COMMAND``.

    :returns: what was applied (``docs/commands/run.md``, ``--json``) and ``status``, the exit status.
    :raises NumalocError: if the program cannot be run under the plan.
    """
    with tempfile.TemporaryDirectory(prefix="numaloc-") as folder:
        path = os.path.abspath(_file_of(plan, os.path.join(folder, "plan.json")))
        answer = os.path.join(folder, "run.json")
        arguments = [f"--json={answer}", "run", "--plan", path, *options, "--", *_words(command)]
        status = _passed_on(arguments, (125, 126, 127), env, cwd)
        try:
            with open(answer, encoding="utf-8") as file:
                shown = json.load(file)
        except (OSError, ValueError) as error:
            raise NumalocError(f"numaloc run left no answer in {answer}: {error}") from error
    return {**shown, "status": status}


@dataclass
class Simulation:
    """Simulated runs. ``rows``: one for each combination, the fastest first, with the fields of ``numaloc simulate
    --json`` (``docs/commands/simulate.md``): ``machine``, ``threads``, ``pages``, ``time_ns``, ``remote_percent``..."""

    rows: list[dict[str, Any]]
    #: The rest of the object: accesses, records, private cache, bytes per page.
    about: dict[str, Any] = field(repr=False)

    @property
    def best(self) -> dict[str, Any]:
        """The fastest row."""
        return self.rows[0]

    def dataframe(self):
        """The figures that are numbers or words, as a pandas DataFrame with a row for each combination."""
        import pandas

        plain = (int, float, str, bool, type(None))
        return pandas.DataFrame([{k: v for k, v in row.items() if isinstance(v, plain)} for row in self.rows])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(str(r['machine']))}</td><td>{html.escape(str(r['threads']))}</td>"
            f"<td>{html.escape(str(r['pages']))}</td><td>{r['time_ns'] / 1e6:,.3f} ms</td>"
            f"<td>{r['remote_percent']:.1f} %</td></tr>"
            for r in self.rows
        )
        head = "<tr><th>machine</th><th>threads</th><th>pages</th><th>time</th><th>remote</th></tr>"
        return f"<table>{head}{rows}</table>"


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]


def simulate(
    profile: "Profile | Path",
    machine: "MachineLike | Sequence[MachineLike]",
    threads: "Policy | Sequence[Policy]" = ("scatter", "numaloc"),
    pages: "str | Sequence[str]" = ("first-touch", "interleave", "locality"),
    *,
    plans: "Sequence[Plan | Path]" = (),
    seed: int = 1,
    jobs: Optional[int] = None,
    options: Sequence[str] = (),
) -> Simulation:
    """Simulates a recorded program on machines, as ``numaloc simulate``. The profile needs an access trace
    (``numaloc record --trace``).

    Each function among ``threads`` is made a plan for each machine and page policy. If there are only functions, the row
    of policies ``scatter`` and ``first-touch`` is simulated with them, as a baseline.

    :param jobs: simulations at one time; by default one for each PU.
    :param options: further options of ``numaloc simulate``.
    """
    profile = profile if isinstance(profile, Profile) else Profile(profile)
    machines = [as_machine(one) for one in _listed(machine)]
    named = [policy for policy in _listed(threads) if isinstance(policy, str)]
    functions = [policy for policy in _listed(threads) if not isinstance(policy, str)]
    page_policies = _listed(pages)
    rows: list[dict[str, Any]] = []
    about: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="numaloc-") as folder:
        for at, target in enumerate(machines):
            arguments = ["simulate", profile.path, "--machine", target.spec, "--seed", str(seed)]
            arguments += ["--threads", ",".join(named or ["scatter"])]
            arguments += ["--pages", ",".join(page_policies if named else ["first-touch"])]
            if jobs is not None:
                arguments += ["--jobs", str(jobs)]
            made = {}
            for number, (function, page) in enumerate((f, p) for f in functions for p in page_policies):
                planned = make_plan(profile, target, function, page, seed=seed)
                stem = f"plan-{at}-{number}"
                made[f"{page} ({stem})"] = page
                arguments += ["--plan", planned.save(os.path.join(folder, f"{stem}.json"), anyway=True)]
            for number, given in enumerate(plans):
                stem = f"given-{at}-{number}"
                arguments += ["--plan", _file_of(given, os.path.join(folder, f"{stem}.json"))]
            shown, _ = _answered([*arguments, *options])
            for row in shown.pop("rows"):
                rows.append({**row, "pages": made.get(row["pages"], row["pages"])})
            about = shown
    rows.sort(key=lambda row: row["time_ns"])
    return Simulation(rows, about)


class Place(TypedDict):
    """A place in the program's code, as far as known."""

    function: Optional[str]
    #: ``FILE:LINE``.
    source: Optional[str]


class Use(TypedDict):
    """A place that uses memory."""

    place: Place
    #: Whether it stores; otherwise it loads.
    stores: bool
    accesses: int
    #: Number of threads.
    threads: int


class Change(TypedDict):
    """A change of a program, and what it is worth: the fields of ``numaloc advise --json``."""

    #: Its name: ``touch_by_users``, ``separate``...
    change: str
    #: What to do, in a clause.
    what: str
    #: What it is made to.
    subject: str
    #: Whether the source has to be changed; otherwise ``commands`` make it.
    in_source: bool
    #: Seconds of the run before and after it, and their difference.
    before_s: float
    after_s: float
    saves_s: float
    #: Where the memory is initialised, or written.
    places: list[Place]
    #: The path of the thread that initialises it.
    first_thread: Optional[str]
    uses: list[Use]
    #: What to write, line by line.
    write: list[str]
    commands: list[str]
    #: What the rating assumes.
    assumes: str


@dataclass
class Advice:
    """What to change in a program. ``changes``: the best set, each change with its time before and after it; ``alone``:
    each change for itself, the fastest first. Both have the fields of ``numaloc advise --json``
    (``docs/commands/advise.md``): ``change``, ``subject``, ``places``, ``before_s``, ``after_s``, ``write``..."""

    changes: list[Change]
    alone: list[Change] = field(repr=False)
    #: Seconds of the run as it is, with all changes, and without any other node's memory, queue or line.
    as_it_is_s: float
    best_s: float
    bound_s: float
    #: By how much the difference of the first two may be off, in seconds.
    plus_minus_s: float
    #: What the times come from: ``access_trace``, or ``model`` if the profile has none.
    basis: str
    #: The whole object that ``numaloc advise --json`` prints.
    shown: dict[str, object] = field(repr=False)

    def dataframe(self):
        """The changes for themselves, as a pandas DataFrame with a row for each."""
        import pandas

        columns = ("change", "subject", "in_source", "before_s", "after_s", "saves_s")
        return pandas.DataFrame([{name: row[name] for name in columns} for row in self.alone])

    def _repr_html_(self) -> str:
        def row(change: Change) -> str:
            code = html.escape("\n".join(change["write"] or change["commands"]))
            return (
                f"<tr><td>{html.escape(change['what'])}</td><td>{html.escape(change['subject'])}</td>"
                f"<td>{change['before_s'] * 1e3:,.3f} ms</td><td>{change['after_s'] * 1e3:,.3f} ms</td>"
                f"<td><pre>{code}</pre></td></tr>"
            )

        head = "<tr><th>change</th><th>what</th><th>before</th><th>after</th><th>how</th></tr>"
        rows = "".join(map(row, self.changes)) or "<tr><td colspan=5>nothing to change</td></tr>"
        return f"<table>{head}{rows}</table>"


def advise(profile: "Profile | Path", machine: MachineLike, *, jobs: Optional[int] = None) -> Advice:
    """Says which lines of a program to change, as ``numaloc advise``. A profile without an access trace
    (``numaloc record --advise``) is rated by a model.

    :param jobs: simulations at one time; by default one for each PU.
    """
    path = profile.path if isinstance(profile, Profile) else os.fspath(profile)
    arguments = ["advise", path, "--machine", as_machine(machine).spec]
    if jobs is not None:
        arguments += ["--jobs", str(jobs)]
    shown, _ = _answered(arguments)
    times = {name: shown[name] for name in ("as_it_is_s", "best_s", "bound_s", "plus_minus_s")}
    return Advice(shown["changes"], shown["alone"], **times, basis=shown["basis"], shown=shown)


@dataclass
class Check:
    """The answer of :func:`check`."""

    #: Whether no limit is exceeded beyond the spread of the runs.
    passed: bool
    #: The object that ``numaloc check --json`` prints (``docs/commands/check.md``).
    shown: dict[str, Any] = field(repr=False)

    def _repr_markdown_(self) -> str:
        return self.shown["markdown"]


def check(
    profiles: "Profile | Path | Sequence[Profile | Path]",
    against: "Profile | Path | Sequence[Profile | Path]",
    limits: Optional[Dict[str, str]] = None,
    *,
    machine: Optional[MachineLike] = None,
    nodes: Optional[int] = None,
) -> Check:
    """Compares profiles with a baseline, as ``numaloc check``.

    :param limits: largest change of each figure, for example ``{"remote": "+5%"}``.
    """

    def paths(given: Any) -> list[str]:
        return [one.path if isinstance(one, Profile) else os.fspath(one) for one in _listed(given)]

    arguments = ["check", *paths(profiles)]
    for path in paths(against):
        arguments += ["--against", path]
    for name, limit in (limits or {}).items():
        arguments += ["--max", f"{name}={limit}"]
    if machine is not None:
        arguments += ["--machine", as_machine(machine).spec]
    if nodes is not None:
        arguments += ["--nodes", str(nodes)]
    shown, status = _answered(arguments, accepted=(0, 3))
    return Check(status == 0, shown)
