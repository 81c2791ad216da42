"""Where a node's whole draw is measured: BMC, PDU, hwmon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class MeterReading:
    """A node's whole draw at its supplies' input, watts, `age_s` old."""

    power_w: int
    age_s: float


class NodeMeter(Protocol):
    """Reads the node's draw. Loaded by entry point `rackpower.meters`."""

    name: str

    async def open(self, options: Mapping[str, str]) -> None:
        """Get ready."""
        ...

    async def read(self) -> MeterReading | None:
        """Return the newest reading, None when there is none."""
        ...
