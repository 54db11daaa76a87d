"""Machines: this one, described ones, synthetic ones."""

from __future__ import annotations

from typing import Sequence, Union

from . import _numaloc


class Machine(_numaloc.Machine):
    """A machine: ``this``, an hwloc XML file, a ``.toml`` machine file, a described machine, or a synthetic string such
    as ``"numa:4 core:8 pu:2"``.

    PUs and nodes have logical numbers from 0. Attributes: ``name``, ``spec``, ``summary``, ``fingerprint``, ``pus`` and
    ``nodes`` (their numbers), ``is_simulated`` (whether :func:`numaloc.simulate` has its hardware figures).

    ==================  ==================  ===========================================
    method              shape, type         content
    ==================  ==================  ===========================================
    ``node_of_pu()``    (pus,), uint32      logical node of each PU
    ``core_of_pu()``    (pus,), uint32      core of each PU, numbered from 0
    ``os_pus()``        (pus,), uint32      the kernel's number of each PU
    ``distances()``     (pus, pus), float64 distance; 10 is local memory, not nanoseconds
    ==================  ==================  ===========================================
    """

    def __reduce__(self):
        return (Machine, (self.spec,))

    def __repr__(self) -> str:
        return f"<numaloc.Machine {self.name}: {self.summary}>"

    def _repr_svg_(self) -> str:
        return self.svg()


MachineLike = Union[Machine, str]


def as_machine(machine: MachineLike) -> Machine:
    """The machine that a name or a :class:`Machine` means."""
    return machine if isinstance(machine, Machine) else Machine(machine)


def described_machines() -> dict[str, str]:
    """Names of the built-in machines, and what each is."""
    return dict(_numaloc.described_machines())


def drawn(machine: Machine, pu: Sequence[int]) -> str:
    """The machine with thread numbers on their PUs, as SVG."""
    return machine.svg([int(at) for at in pu])
