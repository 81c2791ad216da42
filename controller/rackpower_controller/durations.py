"""Durations counted in fixed, finely spaced classes: percentiles since the start in bounded memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

SMALLEST_S = 1e-6
STEP = 1.05
"""Two neighbouring classes differ by this factor: a percentile is right within 5 %, rounded up."""

CLASSES = 400
"""Covers 1 µs to about 300 s."""


@dataclass(slots=True)
class Durations:
    """How long something took since the start: its last, count and percentiles, in seconds."""

    last_s: float = 0.0
    count: int = 0
    total_s: float = 0.0
    _classes: list[int] = field(default_factory=lambda: [0] * CLASSES)

    def add(self, duration_s: float) -> None:
        """Count one duration in seconds."""
        self.last_s = duration_s
        self.count += 1
        self.total_s += duration_s
        steps = math.log(max(duration_s, SMALLEST_S) / SMALLEST_S) / math.log(STEP)
        self._classes[min(math.ceil(steps), CLASSES - 1)] += 1

    def percentile_s(self, percent: float) -> float:
        """Return the duration in seconds that `percent` of all did not pass, rounded up to its class; 0 without any."""
        wanted = math.ceil(self.count * percent / 100)
        seen = 0
        for number, count in enumerate(self._classes):
            seen += count
            if count and seen >= wanted:
                return float(SMALLEST_S * STEP**number)
        return 0.0
