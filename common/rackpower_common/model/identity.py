"""One type per kind of name, so that they are never mixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

GpuId = NewType("GpuId", str)
NodeName = NewType("NodeName", str)
DomainName = NewType("DomainName", str)
ClassName = NewType("ClassName", str)
WorkloadName = NewType("WorkloadName", str)
StreamId = NewType("StreamId", int)
Revision = NewType("Revision", str)


@dataclass(frozen=True, slots=True)
class Term:
    """One controller's reign: the number is handed out once by the store, the instance is new at every start."""

    number: int
    instance: str

    def __str__(self) -> str:
        return f"{self.number}/{self.instance[:8]}"
