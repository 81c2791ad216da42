"""The limits that the hardware is measured against: those in force, a lowered one once its caps had time to follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FOLLOW_S: Final = 10.0
"""After a limit is lowered: caps follow within 5 s, draws within 4 s more (the boards' settle time), plus a tick."""


class Limits:
    """Limits by domain over time.

    Args:
        limits_w: Those at the start.
        follow_s: See `FOLLOW_S`.
    """

    def __init__(self, limits_w: Mapping[str, int], follow_s: float = FOLLOW_S) -> None:
        self._follow_s = follow_s
        self._in_force = dict(limits_w)
        self._before: list[tuple[float, dict[str, int]]] = []

    @property
    def in_force(self) -> Mapping[str, int]:
        """Return the limits in force, watts by domain."""
        return self._in_force

    def change(self, limits_w: Mapping[str, int], now_s: float) -> None:
        """Take in the limits that the controller says are in force; domains that it does not name keep theirs."""
        fresh = self._in_force | {name: limits_w[name] for name in limits_w if name in self._in_force}
        if fresh == self._in_force:
            return
        self._before = [entry for entry in self._before if now_s - entry[0] < self._follow_s]
        self._before.append((now_s, self._in_force))
        self._in_force = fresh

    def at(self, time_s: float) -> dict[str, int]:
        """Return what a draw at that time is held against: the highest that was in force within `follow_s`."""
        recent = [limits for until_s, limits in self._before if until_s <= time_s < until_s + self._follow_s]
        earlier = [limits for until_s, limits in self._before if time_s < until_s]
        if earlier:
            recent.append(earlier[0])
        else:
            recent.append(self._in_force)
        return {name: max(limits[name] for limits in recent) for name in self._in_force}
