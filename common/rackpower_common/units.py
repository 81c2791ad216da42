"""Conversions between whole watts and the wire's milliwatts; rounding is always to the safe side.

Caps round down (a cap may only become stricter), readings and exposures round
up (a draw may only be believed higher).
"""

from __future__ import annotations

import math

MILLI = 1000


def cap_w_from_mw(cap_mw: int) -> int:
    """Return whole watts of a cap, rounded down."""
    return cap_mw // MILLI


def draw_w_from_mw(draw_mw: int) -> int:
    """Return whole watts of a reading or exposure, rounded up."""
    return -(-draw_mw // MILLI)


def mw_from_w(power_w: float) -> int:
    """Return milliwatts, exact for whole watts, else rounded up."""
    return math.ceil(power_w * MILLI)


def ms_from_s(duration_s: float) -> int:
    """Return milliseconds, rounded down: a lease or an age may only be stated shorter.

    But for the noise of floats: 1.001 s are 1001 ms.
    """
    return math.floor(round(duration_s * MILLI, 6))


def ms_up_from_s(duration_s: float) -> int:
    """Return milliseconds, rounded up, but for the noise of floats."""
    return math.ceil(round(duration_s * MILLI, 6))


def s_from_ms(duration_ms: int) -> float:
    """Return seconds."""
    return duration_ms / MILLI
