"""Policy files: YAML in, a compiled `model.policy.Policy` out, or every error with its place and what to do.

What lives here: the YAML's models, the loader, the compile step, the built-in GPU classes, the JSON schema, the
fit of a policy's wishes, curve files, the text form of problems.
What must never: decisions, sockets, clocks. Files are read by `load` and `load_curves` only.
"""

from __future__ import annotations

from rackpower_common.policy.fit import domain_loads_w, judge
from rackpower_common.policy.loaded import LoadedPolicy
from rackpower_common.policy.loader import load, load_files
from rackpower_common.policy.problems import Place, PolicyError, Problem, Severity

__all__ = [
    "LoadedPolicy",
    "Place",
    "PolicyError",
    "Problem",
    "Severity",
    "domain_loads_w",
    "judge",
    "load",
    "load_files",
]
