"""How long to wait before dialling again: longer each time, never in step with other agents."""

from __future__ import annotations

from random import Random
from typing import Final

FIRST_S: Final = 0.25
LONGEST_S: Final = 5.0
"""A lease is 15 s: whoever comes back within it is found by then."""


def backoff_s(failures: int, random: Random) -> float:
    """Return seconds to wait after so many failures in a row: between half and the whole of a doubling time."""
    if failures <= 0:
        return 0.0
    whole_s = min(LONGEST_S, FIRST_S * 2.0 ** min(failures - 1, 16))
    return whole_s * (0.5 + 0.5 * random.random())
