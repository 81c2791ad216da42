"""Watts through losses and shares without floating point: exact fractions, rounded up once at the end.

A policy holds losses as floats. `94 %` becomes 1/0.94, which no float holds; the fraction meant (50/47) is found
again here, so that 940 W at 94 % is 1,000 W and not 1,001 W.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Final

_SIMPLE: Final = 1_000_000
"""Largest denominator of a fraction that a person may have meant."""
_ULPS: Final = Fraction(4)


@functools.lru_cache(maxsize=4096)
def loss_of(value: float) -> Fraction:
    """Return the fraction that a float stands for: the simple one within its rounding, else the float itself."""
    exact = Fraction(value)
    simple = exact.limit_denominator(_SIMPLE)
    return simple if abs(simple - exact) <= _ULPS * Fraction(math.ulp(value)) else exact


share_of = loss_of
"""Return the fraction that a share's float stands for: 1/3 for 0.333…"""


def times_loss_w(output_w: int | Fraction, loss: Fraction) -> int:
    """Return the whole watts at the input of a conversion, rounded up."""
    return math.ceil(output_w * loss)
