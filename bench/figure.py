"""A figure that we promise: what was measured, in what, and the budget that it must keep."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table.

    `budget` is the most that is allowed, None for a row that only informs. `times` compares the figure with another
    one measured in the same run, named by `than`.
    """

    name: str
    value: float
    unit: str
    budget: float | None = None
    times: float | None = None
    than: str = ""

    @property
    def broken(self) -> bool:
        """Whether the budget is passed; no number is no pass."""
        return self.budget is not None and not self.value <= self.budget


class BenchFailed(Exception):
    """A figure could not be measured; the message says why and what to do."""


ROUNDS = 3
"""Other work on the machine disturbs some rounds: the quietest one counts."""


def durations_s(work: Sequence[Callable[[], object]], rounds: int = ROUNDS) -> list[float]:
    """Return how long each piece of work took in the quietest of several rounds, in seconds, shortest first.

    Args:
        work: What to time, each piece on its own, in order.
        rounds: How often to go through all of it.
    """
    best: list[float] = []
    for _ in range(rounds):
        gc.collect()
        taken = sorted(_once_s(piece) for piece in work)
        if not best or percentile(taken, 99) < percentile(best, 99):
            best = taken
    return best


def _once_s(piece: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    piece()
    return time.perf_counter() - started_s


def percentile(ascending: Sequence[float], percent: float) -> float:
    """Return the value that `percent` of all do not pass."""
    return ascending[max(0, math.ceil(len(ascending) * percent / 100) - 1)]


def yardstick_s() -> float:
    """Return the seconds that a fixed piece of plain Python takes here and now: figures in it compare machines."""

    def work() -> int:
        words = {str(number): number * number for number in range(4000)}
        return sum(words[str(number)] % 7 for number in range(4000))

    return percentile(durations_s([work] * 50), 50)
