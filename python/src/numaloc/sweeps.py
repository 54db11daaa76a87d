"""Sweeps: plans and simulations of many combinations, as tasks on this machine or on any Dask cluster."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional, Sequence, Union

from ._machine import MachineLike, as_machine
from ._numaloc import NumalocError, __version__
from ._plans import Policy, plan
from ._profile import Profile
from ._program import Path, simulate

if TYPE_CHECKING:
    import pandas

#: Columns that name a combination, in their order.
KEYS = ["profile", "machine", "threads", "pages", "seed"]


@dataclass(frozen=True)
class Combination:
    """A task: what is planned or simulated."""

    profile: str
    machine: str
    threads: Policy
    pages: str
    seed: int
    kind: str

    def names(self) -> dict[str, Any]:
        """The combination as columns of a row."""
        threads = self.threads if isinstance(self.threads, str) else self.threads.__name__
        return {
            "profile": self.profile,
            "machine": self.machine,
            "threads": threads,
            "pages": self.pages,
            "seed": self.seed,
            "kind": self.kind,
        }


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple, range, set)) else [given]


@functools.lru_cache(maxsize=4)
def _opened(path: str, stamp: int) -> Profile:
    """A profile that a worker reads once for all its tasks; ``stamp``: when its ``meta.json`` was written."""
    return Profile(path)


def run_one(task: Combination) -> dict[str, Any]:
    """Plans or simulates a combination; the figures of its row. Runs in a worker, which needs the profile's folder."""
    start = time.monotonic()
    if task.kind == "simulate":
        found = simulate(task.profile, task.machine, [task.threads], [task.pages], seed=task.seed, jobs=1)
        name = task.names()["threads"]
        rows = [row for row in found.rows if row["threads"] == name and row["pages"] == task.pages]
        # Policy `os` has a row for each of its random draws: the median.
        row = rows[len(rows) // 2]
        figures = {k: v for k, v in row.items() if isinstance(v, (int, float))}
    else:
        stamp = os.stat(os.path.join(task.profile, "meta.json")).st_mtime_ns
        planned = plan(_opened(task.profile, stamp), task.machine, task.threads, task.pages, seed=task.seed)
        last = planned.pages[-1]
        figures = {
            "cost": planned.cost,
            "lower_bound": planned.lower_bound,
            "remote_communication": planned.remote,
            "communication": planned.total,
            "remote_accesses": last["remote_accesses"],
            "accesses": last["accesses"],
        }
    return {**figures, "seconds": time.monotonic() - start}


def run_batch(tasks: Sequence[Combination]) -> "list[dict[str, Any] | str]":
    """The figures of each combination, or why it failed. One message to a worker and one answer for all of them."""
    rows: list[dict[str, Any] | str] = []
    for task in tasks:
        try:
            rows.append(run_one(task))
        except Exception as error:
            rows.append(f"{type(error).__name__}: {error}")
    return rows


#: How long a batch should keep a worker: long against the time between two batches, short against the whole sweep.
BATCH_SECONDS = 1.0
#: Batches that a worker has or waits for; with one more than it runs, it never waits for the next.
AHEAD = 2


class _Batches:
    """Which tasks go to the workers together: so many that they take about :data:`BATCH_SECONDS`."""

    def __init__(self, tasks: "dict[str, Combination]", retries: int):
        self.open = list(tasks.items())[::-1]
        self.again: list[tuple[str, Combination]] = []
        self.tries = dict.fromkeys(tasks, retries)
        self.seconds = 0.0
        self.measured = 0

    def next(self, workers: int) -> list[tuple[str, Combination]]:
        """The next batch, empty if there is none. What failed runs alone, so that it costs nothing else."""
        if self.again:
            return [self.again.pop()]
        # Until a task was measured, batches have one. At the end they get smaller, so that all workers end together.
        each = self.seconds / self.measured if self.measured else BATCH_SECONDS
        fitting = int(BATCH_SECONDS / max(each, 1e-6))
        count = max(1, min(fitting, len(self.open) // (2 * max(workers, 1))))
        return [self.open.pop() for _ in range(min(count, len(self.open)))]

    def done(self, seconds: float) -> None:
        self.seconds += seconds
        self.measured += 1

    def failed(self, one: tuple[str, Combination]) -> bool:
        """Whether the task runs again."""
        self.tries[one[0]] -= 1
        if self.tries[one[0]] < 0:
            return False
        self.again.append(one)
        return True


def _run_all(client: Any, tasks: "dict[str, Combination]", retries: int) -> Iterator[tuple[str, Any, Optional[str]]]:
    """Digest, figures and error of each task, as they finish."""
    from distributed import as_completed

    batches = _Batches(tasks, retries)
    running: dict[str, list[tuple[str, Combination]]] = {}
    finishing = as_completed()

    def submit() -> None:
        # A cluster may grow and shrink while the sweep runs.
        workers = sum(client.nthreads().values())
        while len(running) < AHEAD * max(workers, 1):
            batch = batches.next(workers)
            if not batch:
                return
            future = client.submit(run_batch, [task for _, task in batch], pure=False)
            running[future.key] = batch
            finishing.add(future)

    submit()
    for future in finishing:
        batch = running.pop(future.key)
        try:
            # Waits once more where the worker that had the result was killed: the batch runs again.
            answers = future.result()
        except Exception as error:
            # One of them kills every worker, or the cluster is gone: each shows by itself.
            answers = [f"{type(error).__name__}: {error}"] * len(batch)
            if len(batch) > 1:
                batches.again.extend(batch)
                answers = []
        # A worker's memory of the result is given back.
        future.release()
        for one, answer in zip(batch, answers):
            if not isinstance(answer, str):
                batches.done(answer["seconds"])
                yield one[0], answer, None
            elif not batches.failed(one):
                yield one[0], None, answer
        submit()


def _kind(kind: str, profile: str, machine: Any) -> str:
    if kind != "auto":
        return kind
    has_trace = os.path.isdir(os.path.join(profile, "accesses"))
    return "simulate" if has_trace and machine.is_simulated else "plan"


class _Digests:
    """What results depend on: the files of the profile (by the checksums in ``meta.json``), machine, policy, seed,
    version. Files and functions are looked at once."""

    def __init__(self) -> None:
        self.known: dict[Any, bytes] = {}

    def _of(self, key: Any, content: Callable[[], bytes]) -> bytes:
        if key not in self.known:
            self.known[key] = hashlib.sha256(content()).digest()
        return self.known[key]

    def of(self, task: Combination) -> str:
        digest = hashlib.sha256(f"{__version__};{task.names()}".encode())
        digest.update(self._of(("profile", task.profile), lambda: _content(os.path.join(task.profile, "meta.json"))))
        digest.update(self._of(("machine", task.machine), lambda: _machine(task.machine)))
        if not isinstance(task.threads, str):
            digest.update(self._of(("policy", id(task.threads)), lambda: _pickled(task.threads)))
        return digest.hexdigest()[:32]


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _machine(spec: str) -> bytes:
    return as_machine(spec).fingerprint.encode() + (_content(spec) if os.path.isfile(spec) else b"")


def _pickled(function: Callable) -> bytes:
    import cloudpickle

    return cloudpickle.dumps(function)


class _Results:
    """Finished rows in a file: a JSON object per line, in the order in which they finished."""

    def __init__(self, path: Optional[Path]):
        self.path = None if path is None else os.fspath(path)
        self.rows: dict[str, dict[str, Any]] = {}
        self.file = None
        if self.path is None:
            return
        whole = 0
        if os.path.exists(self.path):
            with open(self.path, "rb") as file:
                for number, line in enumerate(file, 1):
                    if not line.endswith(b"\n"):
                        break  # The writer was interrupted: the row is computed again.
                    try:
                        saved = json.loads(line)
                        self.rows[saved["digest"]] = saved["row"]
                    except (ValueError, KeyError, TypeError):
                        raise NumalocError(
                            f"cannot continue from {self.path}: line {number} is no finished row of a sweep; "
                            "expected a file that an earlier sweep wrote, or a new name"
                        ) from None
                    whole += len(line)
        self.file = open(self.path, "ab")
        self.file.truncate(whole)

    def add(self, digest: str, row: dict[str, Any]) -> None:
        self.rows[digest] = row
        if self.file is not None:
            self.file.write(json.dumps({"digest": digest, "row": row}).encode() + b"\n")
            self.file.flush()

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


class _Progress:
    """A line on standard error that is written again."""

    def __init__(self, total: int, resumed: int, shown: bool):
        self.total, self.resumed, self.shown = total, resumed, shown
        self.done = self.failed = 0
        self.start = self.last = time.monotonic()

    def step(self, failed: bool) -> None:
        self.done += 1
        self.failed += failed
        now = time.monotonic()
        if self.shown and (now - self.last > 0.2 or self.done == self.total):
            self.last = now
            left = (now - self.start) / self.done * (self.total - self.done)
            filled = 30 * self.done // max(self.total, 1)
            bar = "#" * filled + "." * (30 - filled)
            failed = f", {self.failed} failed" if self.failed else ""
            resumed = f", {self.resumed} from before" if self.resumed else ""
            sys.stderr.write(f"\rsweep [{bar}] {self.done} of {self.total}{failed}{resumed}, {left:.0f} s left ")
            sys.stderr.flush()

    def end(self) -> None:
        if self.shown and self.done:
            sys.stderr.write("\n")


class _Cluster:
    """A client of a cluster; what we start, we stop."""

    def __init__(self, cluster: Any, workers: Optional[int]):
        import dask
        from distributed import Client, LocalCluster

        self.own: list[Any] = []
        if isinstance(cluster, Client):
            self.client = cluster
            return
        if cluster is None:
            # Tasks need no memory while they wait: the worker has its next one before it asks.
            with dask.config.set({"distributed.scheduler.worker-saturation": "inf"}):
                cluster = LocalCluster(
                    n_workers=1,
                    threads_per_worker=workers or os.cpu_count() or 1,
                    processes=False,
                    # Nothing listens on other addresses; scheduler and worker are in this process.
                    dashboard_address="127.0.0.1:0",
                    worker_dashboard_address="127.0.0.1:0",
                )
            self.own.append(cluster)
        self.client = Client(cluster)
        self.own.insert(0, self.client)

    def close(self) -> None:
        for one in self.own:
            one.close()


def _combinations(profiles, machines, threads, pages, seeds, kind) -> Iterator[Combination]:
    if kind not in ("auto", "plan", "simulate"):
        raise NumalocError(f"there is no kind {kind!r} of sweep: expected auto, plan or simulate")
    paths = [one.path if isinstance(one, Profile) else os.fspath(one) for one in _listed(profiles)]
    for path in paths:
        Profile(path)
    resolved = [as_machine(one) for one in _listed(machines)]
    for path, machine in itertools.product([os.path.abspath(path) for path in paths], resolved):
        spec = os.path.abspath(machine.spec) if os.path.isfile(machine.spec) else machine.spec
        chosen = _kind(kind, path, machine)
        for policy, page, seed in itertools.product(_listed(threads), _listed(pages), _listed(seeds)):
            yield Combination(path, spec, policy, page, int(seed), chosen)


def sweep(
    profiles: "Profile | Path | Sequence[Profile | Path]",
    machines: "MachineLike | Sequence[MachineLike]",
    threads: "Policy | Sequence[Policy]" = "numaloc",
    pages: "str | Sequence[str]" = "locality",
    seeds: "int | Sequence[int]" = 1,
    *,
    kind: str = "auto",
    cluster: Any = None,
    workers: Optional[int] = None,
    results: Optional[Path] = None,
    retries: int = 2,
    progress: Optional[bool] = None,
) -> "pandas.DataFrame":
    """Plans or simulates every combination of profiles, machines, policies and seeds, as tasks.

    :param profiles: profile folders; workers read them under the same paths.
    :param machines: machines, by name or as :class:`Machine`. Machine files too are read by workers.
    :param threads, pages: policies; functions are sent to the workers.
    :param kind: ``plan``, ``simulate`` (needs an access trace and a machine with hardware figures), or ``auto``: simulate
        where that is possible.
    :param cluster: where tasks run: ``None`` (threads of this machine), the address of a Dask scheduler, a Dask cluster
        such as ``LocalCluster`` or ``dask_jobqueue.SLURMCluster``, or a ``distributed.Client``.
    :param workers: threads on this machine, without ``cluster``; by default one for each PU.
    :param results: file of finished rows; with the same file, an interrupted sweep continues, and only what is new or
        failed is computed.
    :param retries: how often a task that failed runs again.
    :param progress: show a progress bar on standard error; by default if that is a terminal.
    :returns: a row for each combination, in their order: ``profile``, ``machine``, ``threads``, ``pages``, ``seed``,
        ``kind``, the figures (``time_ns`` and others of ``numaloc simulate --json``, or ``cost``, ``remote_accesses`` and
        others of a plan), ``seconds`` (of the task), and ``error``: why a task failed, else missing.
    """
    import pandas

    tasks = list(_combinations(profiles, machines, threads, pages, seeds, kind))
    finished = _Results(results)
    known = _Digests()
    digests = [known.of(task) for task in tasks]
    open_tasks = {digest: task for digest, task in zip(digests, tasks) if digest not in finished.rows}
    bar = _Progress(len(open_tasks), len(tasks) - len(open_tasks), sys.stderr.isatty() if progress is None else progress)
    failed: dict[str, str] = {}
    try:
        if open_tasks:
            with_cluster = _Cluster(cluster, workers)
            try:
                for digest, row, error in _run_all(with_cluster.client, open_tasks, retries):
                    if error is None:
                        finished.add(digest, row)
                    else:
                        failed[digest] = error
                    bar.step(digest in failed)
            finally:
                with_cluster.close()
    finally:
        bar.end()
        finished.close()
    rows = [
        {**task.names(), **finished.rows.get(digest, {}), "error": failed.get(digest)}
        for task, digest in zip(tasks, digests)
    ]
    frame = pandas.DataFrame(rows)
    frame.attrs.update(resumed=bar.resumed, failed=len(failed))
    for task, digest in zip(tasks, digests):
        if digest in failed:
            sys.stderr.write(f"sweep: {task.names()} failed: {failed[digest]}\n")
    return frame
