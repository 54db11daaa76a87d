"""Policies: mappings of matrices, plans of profiles. Functions are policies next to numaloc's."""

from __future__ import annotations

import html
import json
import os
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Sequence, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _numaloc
from ._machine import Machine, MachineLike, as_machine, drawn
from ._numaloc import NumalocError
from ._output import appearing
from ._profile import Profile

#: A policy: a name, or a function of the matrix (tasks, tasks; symmetric, float64) and the machine that returns a
#: logical PU for each task. A machine of ``pus`` PUs takes at most ``ceil(tasks / pus)`` tasks on each.
Policy = Union[str, Callable[[NDArray[np.float64], Machine], Sequence[int]]]


@dataclass(frozen=True)
class Mapping:
    """A policy's answer for a matrix and a machine."""

    #: The policy.
    policy: str
    #: Logical PU of each task: shape (tasks,), int64.
    pu: NDArray[np.int64]
    #: Sum over pairs of amount x distance.
    cost: float
    #: No mapping can have a lower cost.
    lower_bound: float
    #: Amount between NUMA nodes, in the unit of the matrix.
    remote: float
    #: Amount of all pairs.
    total: float
    #: Load of each node with PUs: the given load, or the communication of its tasks.
    node_load: NDArray[np.float64]
    #: Standard deviation of ``node_load``.
    load_std: float
    #: Largest of ``node_load`` over their mean.
    node_imbalance: float
    #: Tasks that were moved because the policy overloaded a PU.
    repaired: int
    #: What the policy remarks.
    remarks: list[str]
    machine: Machine = field(repr=False)

    @property
    def remote_share(self) -> float:
        """Share of the communication that is between NUMA nodes, 0 to 1."""
        return self.remote / self.total if self.total else 0.0

    @property
    def node(self) -> NDArray[np.uint32]:
        """Logical node of each task: shape (tasks,)."""
        return self.machine.node_of_pu()[self.pu]

    def _repr_svg_(self) -> str:
        return drawn(self.machine, self.pu)


class Mappings(list):
    """Answers of several policies, in the order in which they were asked. ``failed``: policy -> why, of those that have
    no answer."""

    def __init__(self, answers: Sequence[Mapping], failed: dict[str, str]):
        super().__init__(answers)
        self.failed = failed

    def best(self) -> Mapping:
        """The answer with the lowest cost, the first of equals."""
        if not self:
            raise NumalocError("no policy has an answer: " + "; ".join(f"{p}: {w}" for p, w in self.failed.items()))
        return min(self, key=lambda answer: answer.cost)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(a.policy)}</td><td>{a.cost:,.0f}</td><td>{100 * a.remote_share:.1f} %</td>"
            f"<td>{a.node_imbalance:.2f}</td></tr>"
            for a in self
        )
        return f"<table><tr><th>policy</th><th>cost</th><th>remote</th><th>imbalance</th></tr>{rows}</table>"


def map(  # noqa: A001 - the command's name
    matrix: ArrayLike,
    machine: MachineLike = "this",
    policy: "Policy | Sequence[Policy]" = "numaloc",
    *,
    load: Optional[ArrayLike] = None,
    directed: bool = False,
    spread: str = "auto",
    seed: int = 1,
) -> "Mapping | Mappings":
    """Maps tasks to PUs, as ``numaloc map``.

    :param matrix: amounts of each pair, shape (tasks, tasks), at least 0; the two cells of a pair are one flow if they
        are equal, unless ``directed``.
    :param machine: a :class:`Machine` or its name.
    :param policy: a policy (a name or a function), or several, or ``"all"``.
    :param load: each task's load on memory, shape (tasks,), any unit.
    :param spread: which PUs stay empty if there are fewer tasks: ``auto``, ``spread`` or ``compact``.
    :returns: a :class:`Mapping` for one policy, :class:`Mappings` for several.
    :raises NumalocError: if the only policy fails; what a function raised is its ``__cause__``.
    """
    machine = as_machine(machine)
    amounts = np.ascontiguousarray(matrix, dtype=np.float64)
    if amounts.ndim != 2:
        raise NumalocError(f"cannot map an array of shape {amounts.shape}: expected (tasks, tasks)")
    loads = None if load is None else np.ascontiguousarray(load, dtype=np.float64)
    several = policy == "all" if isinstance(policy, str) else not callable(policy)
    asked = list(policy) if several and not isinstance(policy, str) else [policy]
    rows = json.loads(_numaloc.map(amounts, machine, asked, loads, directed, spread, seed))
    answers = [
        Mapping(
            machine=machine,
            **{
                **row,
                "pu": np.asarray(row["pu"], dtype=np.int64),
                "node_load": np.asarray(row["node_load"], dtype=np.float64),
            },
        )
        for row in rows
        if "error" not in row
    ]
    if not several:
        return answers[0]
    return Mappings(answers, {row["policy"]: row["error"] for row in rows if "error" in row})


@dataclass(frozen=True)
class Plan:
    """A plan: where the threads and pages of a recorded program should live on a machine."""

    #: The thread policy.
    policy: str
    #: Paths of the planned threads.
    threads: list[str]
    #: Logical PU of each: shape (threads,), int64.
    pu: NDArray[np.int64]
    #: Layer and unit of the amounts.
    layer: str
    unit: str
    cost: float
    lower_bound: float
    remote: float
    total: float
    remarks: list[str]
    #: For first touch and for the page policy: ``remote_accesses`` and ``accesses`` (counts of accesses beyond private
    #: caches), ``remote_share`` (0 to 1), ``spilled_pages``.
    pages: list[dict[str, Any]]
    #: Pages that belong to no known object and follow first touch.
    nameless_pages: int
    #: What the plan is worth by the model, as ``worth`` of ``numaloc plan --json``: seconds ``as_it_is`` and with the
    #: ``plan``, their ``error``; ``None`` if the model does not apply.
    worth: Optional[dict[str, Any]]
    #: The same for ranks on a cluster by the model of networks, as ``rank_worth`` of ``numaloc plan --json``.
    rank_worth: Optional[dict[str, Any]]
    machine: Machine = field(repr=False)
    #: The file's text (``docs/formats/plan.md``).
    text: str = field(repr=False)

    @property
    def remote_access_share(self) -> Optional[float]:
        """Share of the page accesses beyond private caches that are to another node under this plan, 0 to 1; ``None``
        without page usage."""
        last = self.pages[-1]
        return last["remote_share"] if last["accesses"] else None

    @property
    def loses(self) -> bool:
        """Whether the program takes longer with this plan than as it is, beyond the error of the model."""
        worth = self.worth or self.rank_worth
        return worth is not None and bool(worth["loses"])

    def to_dict(self) -> dict[str, Any]:
        """The content of the file."""
        return json.loads(self.text)

    def save(self, path: "str | os.PathLike[str]", *, force: bool = False, anyway: bool = False) -> str:
        """Writes the plan for ``numaloc run --plan``; an existing file is replaced only with ``force``, and a plan that
        :attr:`loses` only with ``anyway`` or ``force``."""
        path = os.fspath(path)
        worth = self.worth or self.rank_worth
        if worth is not None and self.loses and not (anyway or force):
            as_it_is, planned = worth["as_it_is"]["seconds"], worth["plan"]["seconds"]
            raise NumalocError(
                f"the plan loses: as it is {as_it_is:.3g} s, with it {planned:.3g} s; anyway=True writes it"
            )
        with appearing(path, force=force) as file:
            file.write(self.text.encode())
        return path

    def _repr_svg_(self) -> str:
        return drawn(self.machine, self.pu)


def plan(
    profile: "Profile | str | os.PathLike[str]",
    machine: MachineLike = "this",
    threads: Optional[Policy] = None,
    pages: Optional[str] = None,
    *,
    layer: Optional[str] = None,
    exclude_helpers: bool = False,
    spread: str = "auto",
    page_size: Optional[int] = None,
    min_exclusivity: Optional[float] = None,
    in_flight: Optional[float] = None,
    seed: int = 1,
    weights: Optional[Sequence[int]] = None,
    capacity: Optional[Sequence[int]] = None,
) -> Plan:
    """Decides where threads and pages should live, as ``numaloc plan``.

    What is not named is the best by its worth; leaving the program as it is is a candidate.

    :param threads: a policy (a name or a function), ``joint``, ``shared-pages`` or ``os``.
    :param pages: a page policy, or ``joint``.
    :param page_size: bytes per placed page; by default the profile's.
    :param weights: for ``weighted-interleave``: one for each node; by default by the machine's bandwidths.
    :param capacity: bytes of pages that each node takes; by default as much as its memory holds.
    :raises NumalocError: if a policy fails; what a function raised is its ``__cause__``.
    """
    machine = as_machine(machine)
    profile = profile if isinstance(profile, Profile) else Profile(profile)
    summary, text = _numaloc.plan(
        profile._profile,
        machine,
        threads,
        pages,
        layer,
        exclude_helpers,
        spread,
        page_size,
        min_exclusivity,
        in_flight,
        seed,
        weights,
        capacity,
    )
    answer = json.loads(summary)
    answer["pu"] = np.asarray(answer["pu"], dtype=np.int64)
    return Plan(machine=machine, text=text, **answer)


def policies(kind: str = "threads", place: str = "profile") -> dict[str, str]:
    """Names of the policies, and what each does and where it comes from.

    :param kind: ``threads`` or ``pages``.
    :param place: what they work on: ``matrix``, ``profile`` or ``simulation``.
    """
    return {name: f"{summary} ({source})" for name, summary, source in _numaloc.policies(kind, place)}
