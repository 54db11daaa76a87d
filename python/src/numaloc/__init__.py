"""numaloc in Python: profiles as Arrow tables and NumPy matrices, policies, plans, simulations, sweeps and stores.

>>> import numaloc
>>> profile = numaloc.Profile.open("app.numaloc")        # doctest: +SKIP
>>> profile.matrix("write_read", "events")               # doctest: +SKIP
>>> numaloc.map(profile.matrix(), "numa:4 core:8 pu:1")  # doctest: +SKIP

``record``, ``run``, ``simulate``, ``advise`` and ``check`` start the installed program ``numaloc``; all else works without it.
"""

import sys as _sys

from . import _numaloc
from ._machine import Machine, described_machines
from ._numaloc import NumalocError, Table, __version__
from ._plans import Mapping, Mappings, Plan, Policy, map, plan, policies
from ._profile import Profile, Verdict, Verdicts
from ._program import Advice, Change, Check, Simulation, advise, check, record, run, simulate
from .fleet import Fleet, store_add
from .sweeps import sweep

if _sys.executable:
    _numaloc.isolate_xml(_sys.executable)

__all__ = [
    "Advice",
    "Change",
    "Check",
    "Fleet",
    "Machine",
    "Mapping",
    "Mappings",
    "NumalocError",
    "Plan",
    "Policy",
    "Profile",
    "Simulation",
    "Table",
    "Verdict",
    "Verdicts",
    "__version__",
    "advise",
    "check",
    "described_machines",
    "map",
    "plan",
    "policies",
    "record",
    "run",
    "simulate",
    "store_add",
    "sweep",
]
