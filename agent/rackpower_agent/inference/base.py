"""Where tokens are counted: one source per kind of inference server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rackpower_common.model.device import Workload


class WorkloadSource(Protocol):
    """Tells the workloads on this node's GPUs. Loaded by entry point `rackpower.workloads`."""

    name: str

    async def open(self, options: Mapping[str, str]) -> None:
        """Get ready."""
        ...

    async def read(self) -> tuple[Workload, ...]:
        """Return what runs now; unknown numbers are None, never 0."""
        ...
