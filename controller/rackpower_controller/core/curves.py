"""What a watt brings: a class's curve as tokens/s, and as a few segments with falling slopes for the planner."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

from rackpower_common.model.policy import Curve
from rackpower_controller.core.planning import Segment

SEGMENTS = 7
"""Segments a curve: more gained nothing that was measurable."""

REMEMBERED = 4096
"""Cut curves kept: every GPU of a rack asks for the same few, every tick."""


def rate_tokens_per_s(curve: Curve, cap_w: float) -> float:
    """Return the tokens/s that a busy GPU serves below a cap.

    Args:
        curve: r(P) = peak · (1 − b(1 − P/Pn)^c), flat above the natural draw Pn.
        cap_w: The cap in watts.

    Returns:
        Tokens/s, ≥ 0. Below the lowest watt that was seen nothing is promised: 0.
    """
    if cap_w < curve.lowest_w:
        return 0.0
    below = max(0.0, 1.0 - cap_w / curve.natural_draw_w)
    return max(0.0, curve.peak_tokens_per_s * (1.0 - curve.b * math.pow(below, curve.c)))


@lru_cache(maxsize=REMEMBERED)
def segments(curve: Curve, lo_w: int, hi_w: int, weight: float, count: int = SEGMENTS) -> tuple[Segment, ...]:
    """Cut a curve between two caps into segments with falling slopes: its concave envelope at whole watts.

    The segments end where a watt brings nothing more: at the natural draw. A range below the lowest watt seen lies on
    the straight line to where the curve is known, so that watts there still lead somewhere.

    Args:
        curve: The curve.
        lo_w: Where the first segment starts, in watts.
        hi_w: Where the last one ends at the latest, in watts.
        weight: What a token of this node counts.
        count: The most segments.

    Returns:
        Segments of whole watts; slopes in weighted tokens/s per watt, > 0, falling.
        Empty when nothing is gained.
    """
    natural_w = math.ceil(curve.natural_draw_w)
    end_w = min(hi_w, natural_w)
    if end_w <= lo_w or weight <= 0.0:
        return ()
    lowest_w = min(math.ceil(curve.lowest_w), natural_w)
    seen_only_above = lo_w < lowest_w
    watts = [lo_w, *_spaced(lowest_w, natural_w, count - 1)] if seen_only_above else _spaced(lo_w, end_w, count)
    corners = _envelope([(at_w, weight * rate_tokens_per_s(curve, at_w)) for at_w in watts])
    pieces: list[Segment] = []
    for (from_w, low), (to_w, high) in pairwise(corners):
        width_w = min(to_w, end_w) - from_w
        slope = (high - low) / (to_w - from_w)
        if width_w <= 0 or slope <= 0.0:
            break
        pieces.append(Segment(width_w, slope))
    return tuple(pieces)


def _spaced(from_w: int, to_w: int, count: int) -> list[int]:
    """Return whole watts from one end to the other in at most `count` even steps."""
    steps = max(1, min(count, to_w - from_w))
    return sorted({from_w + (to_w - from_w) * step // steps for step in range(steps + 1)})


def _envelope(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return the corners of the upper concave envelope, left to right."""
    corners: list[tuple[int, float]] = []
    for at_w, rate in points:
        while len(corners) >= 2:
            (first_w, first), (last_w, last) = corners[-2], corners[-1]
            if (last - first) * (at_w - last_w) > (rate - last) * (last_w - first_w):
                break
            corners.pop()
        corners.append((at_w, rate))
    return corners
