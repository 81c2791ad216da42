"""Clocks, behind a Protocol so that the simulator can own time.

Every time inside the daemons is in seconds of one monotonic clock that also
counts suspend (CLOCK_BOOTTIME), so that a lease survives a restart of the
process and is comparable within one boot. Wall time is for people only.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the shells need of time."""

    def now_s(self) -> float:
        """Return seconds of the boot clock; never goes backwards within a boot."""
        ...

    def unix_s(self) -> float:
        """Return seconds since the epoch, for people; may jump."""
        ...


class BootClock:
    """The real clock."""

    def now_s(self) -> float:
        """Return seconds since boot, suspend included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def unix_s(self) -> float:
        """Return seconds since the epoch."""
        return time.time()
