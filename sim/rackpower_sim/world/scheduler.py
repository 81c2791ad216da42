"""Virtual time: a heap of events; equal times go in the order of their making."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random


class Scheduler:
    """Runs events in virtual time. `now_s` is the time of the running event, in seconds."""

    def __init__(self, seed: int) -> None:
        self.now_s = 0.0
        self.random = Random(seed)
        self.after_each: Callable[[], None] = lambda: None
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._made = 0

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        """Do something at a time, or now where that is past."""
        self._made += 1
        heapq.heappush(self._heap, (max(time_s, self.now_s), self._made, action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do something after a delay."""
        self.at(self.now_s + delay_s, action)

    def between(self, low_s: float, high_s: float) -> float:
        """Return a random duration."""
        return self.random.uniform(low_s, high_s)

    def run_until(self, end_s: float) -> None:
        """Run every event up to a time."""
        while self._heap and self._heap[0][0] <= end_s:
            self.now_s, _, action = heapq.heappop(self._heap)
            action()
            self.after_each()
        self.now_s = end_s
        self.after_each()
