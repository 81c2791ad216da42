"""A policy that may be used, beside where it came from. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rackpower_common.model.policy import Policy
from rackpower_common.policy.problems import Place, Problem

Places = Mapping[tuple[str, ...], Place]
"""Where things were written, by path: `("domains", "rack-1", "limit")`, `("nodes", "gpu-01")`."""


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy that may be used, with its warnings and the files that it came from.

    `files` are (name, bytes). `places` tells where parts were written, by path: `("domains", "rack-1", "limit")`.
    `author` is who gave it, empty for files of this machine.
    """

    policy: Policy
    problems: tuple[Problem, ...]
    files: tuple[tuple[str, bytes], ...]
    places: Places = field(default_factory=dict, repr=False)
    author: str = ""
