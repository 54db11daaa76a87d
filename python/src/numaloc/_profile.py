"""Profiles: tables, matrices, metrics, verdicts."""

from __future__ import annotations

import html
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

from . import _numaloc
from ._machine import MachineLike, as_machine

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ._numaloc import Table
    from ._program import Advice


@dataclass(frozen=True)
class Verdict:
    """Whether one kind of placement is likely to help, and why."""

    #: What is judged, for example ``page placement``.
    measure: str
    #: ``likely``, ``unlikely`` or ``cannot tell``.
    verdict: str
    #: The figures that decide, in a sentence.
    reason: str
    #: What to do; `None` if nothing.
    action: Optional[str]
    #: Policy to use; ``None`` if there is none to recommend.
    policy: Optional[str]

    @property
    def is_likely(self) -> bool:
        """Whether the measure is worth trying."""
        return self.verdict.startswith("likely")


class Verdicts(list):
    """The verdicts on a profile, a :class:`Verdict` for each measure."""

    def __getitem__(self, key):
        if isinstance(key, str):
            for verdict in self:
                if verdict.measure == key:
                    return verdict
            known = ", ".join(verdict.measure for verdict in self)
            raise KeyError(f"there is no verdict on {key!r}: expected one of {known}")
        return super().__getitem__(key)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(v.measure)}</td><td><b>{html.escape(v.verdict)}</b></td>"
            f"<td style='text-align:left'>{html.escape(v.reason)}</td></tr>"
            for v in self
        )
        return f"<table><tr><th>measure</th><th>verdict</th><th>reason</th></tr>{rows}</table>"


class Metrics(dict):
    """Metrics by name (``docs/metrics.md``); ``None`` where not observed. ``units`` has the unit of each."""

    def __init__(self, values: dict[str, Optional[float]], units: dict[str, str]):
        super().__init__(values)
        self.units = units

    def _repr_html_(self) -> str:
        def shown(value: Optional[float]) -> str:
            return "-" if value is None else f"{value:,.6g}"

        rows = "".join(
            f"<tr><td style='text-align:left'>{html.escape(name)}</td><td>{shown(value)}</td>"
            f"<td>{html.escape(self.units[name])}</td></tr>"
            for name, value in self.items()
        )
        return f"<table><tr><th>metric</th><th>value</th><th>unit</th></tr>{rows}</table>"


class Profile:
    """A recorded run: the folder that ``numaloc record`` wrote.

    Opening reads ``meta.json``. A table is read when it is first asked for, column by column, and kept. It is an Arrow
    table: ``pandas.DataFrame.from_arrow(profile.communication)``, ``polars.DataFrame(profile.communication)``,
    ``pyarrow.table(profile.communication)`` and DuckDB use its memory without copies. Columns and units are those of
    ``docs/formats/profile.md``. :meth:`metrics`, :meth:`verdict`, :func:`numaloc.plan` and drawings read and check all
    tables once.
    """

    def __init__(self, path: "str | os.PathLike[str]"):
        self._profile = _numaloc.Profile(os.fspath(path))
        self._shown: dict[Any, tuple[dict, str]] = {}

    @classmethod
    def open(cls, path: "str | os.PathLike[str]") -> "Profile":
        """Opens a profile folder.

        :raises NumalocError: if there is no profile, or its ``meta.json`` is damaged.
        """
        return cls(path)

    def __reduce__(self):
        return (Profile, (self.path,))

    @property
    def path(self) -> str:
        """Where the profile is."""
        return os.fspath(self._profile.path)

    @property
    def meta(self) -> dict[str, Any]:
        """Origin and limits: command, frontend, clock, environment, sizes of lines and pages in bytes."""
        return json.loads(self._profile.meta())

    def table(self, name: str) -> "Table":
        """The table of that name, as an Arrow table."""
        return self._profile.table(name)

    threads = property(lambda self: self.table("threads"), doc="Threads, tasks or ranks: paths, times, accesses, bytes.")
    slices = property(lambda self: self.table("slices"), doc="Time slices: start and end in the profile's clock.")
    communication = property(
        lambda self: self.table("communication"), doc="Events and bytes by slice, layer and pair of threads."
    )
    objects = property(lambda self: self.table("objects"), doc="Memory objects: kind, name, size in bytes.")
    variables = property(lambda self: self.table("variables"), doc="Variables within objects.")
    pages = property(lambda self: self.table("pages"), doc="Reads and writes by page and thread; the first toucher.")
    page_slices = property(lambda self: self.table("page_slices"), doc="Accesses by slice, page and thread.")
    cell_errors = property(lambda self: self.table("cell_errors"), doc="Standard errors of sampled cells, as shares.")
    shared_lines = property(lambda self: self.table("shared_lines"), doc="Lines with most communication.")
    contended_lines = property(
        lambda self: self.table("contended_lines"), doc="Lines for which threads contend if they run at the same time."
    )
    contended_visits = property(lambda self: self.table("contended_visits"), doc="When threads visit contended lines.")
    marks = property(lambda self: self.table("marks"), doc="Passes of marks.")
    slow_loads = property(lambda self: self.table("slow_loads"), doc="Long loads by page and thread.")
    mpi_calls = property(
        lambda self: self.table("mpi_calls"), doc="Time in MPI by rank, operation, call site and size; waiting, in ns."
    )
    mpi_waits = property(lambda self: self.table("mpi_waits"), doc="Which ranks waited for which, why, and how long (ns).")

    @property
    def layers(self) -> list[str]:
        """Communication layers with at least one row."""
        return self._profile.layers()

    def matrix(self, layer: Optional[str] = None, unit: Optional[str] = None) -> "NDArray[np.float64]":
        """The communication of the whole run.

        :param layer: for example ``write_read`` or ``sent``; by default the one that ``numaloc show`` uses.
        :param unit: ``events``, ``bytes`` or ``lines`` (cache lines moved); by default bytes for messages, events for
            memory.
        :returns: shape (threads, threads), float64; row: the thread that wrote or sent, column: the thread that read or
            received; the diagonal is 0. The array owns its memory and may be changed.
        """
        return self._profile.matrix(layer, unit)

    def shown(
        self, machine: Optional[MachineLike] = None, nodes: Optional[int] = None, layer: Optional[str] = None
    ) -> dict[str, Any]:
        """The object that ``numaloc show --json`` prints (``docs/commands/show.md``)."""
        return self._characterised(machine, nodes, layer)[0]

    def markdown(
        self, machine: Optional[MachineLike] = None, nodes: Optional[int] = None, layer: Optional[str] = None
    ) -> str:
        """Verdict and metrics as Markdown, as ``numaloc report -o report.md`` writes them."""
        return self._characterised(machine, nodes, layer)[1]

    def metrics(
        self, machine: Optional[MachineLike] = None, nodes: Optional[int] = None, layer: Optional[str] = None
    ) -> Metrics:
        """Metrics by name, with ``.units``; ``None`` where not observed.

        :param machine: machine whose nodes the page metrics are for; by default this one, or 4 nodes if it has one.
        :param nodes: number of nodes instead of a machine.
        """
        shown = self.shown(machine, nodes, layer)
        return Metrics(shown["metrics"], shown["units"])

    def verdict(
        self, machine: Optional[MachineLike] = None, nodes: Optional[int] = None, layer: Optional[str] = None
    ) -> Verdicts:
        """Which kinds of placement are likely to help on a machine, and why. Parameters: see :meth:`metrics`."""
        return Verdicts(Verdict(**verdict) for verdict in self.shown(machine, nodes, layer)["verdicts"])

    def advise(self, machine: MachineLike, *, jobs: Optional[int] = None) -> Advice:
        """Which lines of the program to change, and what that saves: :func:`numaloc.advise`."""
        from ._program import advise

        return advise(self, machine, jobs=jobs)

    def _characterised(self, machine, nodes, layer) -> tuple[dict, str]:
        machine = None if machine is None else as_machine(machine)
        key = (machine and machine.fingerprint, nodes, layer)
        if key not in self._shown:
            text, page = self._profile.shown(layer, machine, nodes)
            self._shown[key] = (json.loads(text), page)
        return self._shown[key]

    def __repr__(self) -> str:
        command = " ".join(self.meta["command"])
        return f"<numaloc.Profile {self.path}: {len(self.threads)} threads, {command}>"

    def _repr_html_(self) -> str:
        title = html.escape(" ".join(self.meta["command"]) or self.path)
        matrix = self._profile.matrix_svg()
        return f"<h4>{title}</h4>{self.verdict()._repr_html_()}<div style='max-width:560px'>{matrix}</div>"
