"""Curves: what a cap is worth, and the segments that a planner sees of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from rackpower_common.model.policy import Curve
from rackpower_controller.core.curves import rate_tokens_per_s, segments
from support.plans import CLASSES

B200 = Curve(natural_draw_w=900.0, b=1.9, c=2.2, peak_tokens_per_s=399.0, lowest_w=300.0)


def test_the_rate_is_the_curves_formula_between_lowest_and_natural_draw() -> None:
    """r(P) = peak · (1 − b(1 − P/Pn)^c)."""
    assert rate_tokens_per_s(B200, 600.0) == pytest.approx(399.0 * (1 - 1.9 * (1 / 3) ** 2.2))


def test_the_rate_is_flat_above_the_natural_draw() -> None:
    """A watt that the GPU would not draw brings nothing."""
    assert rate_tokens_per_s(B200, 900.0) == rate_tokens_per_s(B200, 1000.0) == 399.0


def test_nothing_is_promised_below_the_lowest_watt_seen() -> None:
    """The curve is never drawn on to where nobody measured, though its formula would give a figure."""
    assert rate_tokens_per_s(B200, 300.0) > 0.0
    assert rate_tokens_per_s(B200, 299.9) == 0.0


def test_a_rate_is_never_negative() -> None:
    """A steep shape crosses zero above its lowest watt: there it is 0."""
    assert rate_tokens_per_s(replace(B200, b=10.0), 300.0) == 0.0


def test_the_segments_end_at_the_natural_draw() -> None:
    """No cap beyond the natural draw is wanted."""
    assert sum(piece.width_w for piece in segments(B200, 300, 1000, 1.0)) == 600
    half = replace(B200, natural_draw_w=899.5)
    assert sum(piece.width_w for piece in segments(half, 300, 1000, 1.0)) == 600


def test_the_segments_end_at_the_highest_cap_below_it() -> None:
    """A range that ends earlier is cut there."""
    assert sum(piece.width_w for piece in segments(B200, 310, 777, 1.0)) == 467


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("from_w", [0, 57])
def test_slopes_fall_and_add_up_to_the_curve(name: str, from_w: int) -> None:
    """Segments are concave, at most seven, and worth what the curve is worth between their ends."""
    lo_w, hi_w, curve = CLASSES[name]
    pieces = segments(curve, lo_w + from_w, hi_w, 2.0)
    assert 1 <= len(pieces) <= 7
    assert all(left.slope > right.slope > 0.0 for left, right in pairwise(pieces))
    assert all(piece.width_w > 0 for piece in pieces)
    worth = sum(piece.width_w * piece.slope for piece in pieces)
    rise = rate_tokens_per_s(curve, hi_w) - rate_tokens_per_s(curve, lo_w + from_w)
    assert worth == pytest.approx(2.0 * rise)


def test_seven_segments_stay_close_to_the_curve() -> None:
    """Between its corners the line is never above the curve and at most 2 % of the peak below it."""
    worth, at_w = rate_tokens_per_s(B200, 300), 300
    for piece in segments(B200, 300, 1000, 1.0):
        for step_w in range(piece.width_w):
            off = rate_tokens_per_s(B200, at_w + step_w) - (worth + step_w * piece.slope)
            assert -1e-9 <= off <= 0.02 * 399.0
        worth, at_w = worth + piece.width_w * piece.slope, at_w + piece.width_w


def test_a_range_below_the_lowest_watt_still_leads_to_where_the_curve_is_known() -> None:
    """A GPU that may only be raised within the unseen part is raised: the straight line to the known part counts."""
    (piece,) = segments(B200, 220, 280, 1.0)
    assert piece.width_w == 60
    assert piece.slope > 0.0
    assert piece.slope >= segments(B200, 220, 1000, 1.0)[0].slope - 1e-12


def test_a_flat_curve_wants_no_watt() -> None:
    """Where caps cost no tokens, the lowest cap is the plan."""
    assert segments(replace(B200, b=0.0), 300, 1000, 1.0) == ()


def test_an_empty_range_or_no_weight_wants_no_watt() -> None:
    """Nothing to choose, or nothing to gain."""
    assert segments(B200, 500, 500, 1.0) == ()
    assert segments(B200, 900, 1000, 1.0) == ()
    assert segments(B200, 300, 900, 0.0) == ()


def test_a_range_of_few_watts_has_no_empty_segments() -> None:
    """Three watts make at most three segments."""
    assert [piece.width_w for piece in segments(B200, 500, 503, 1.0)] == [1, 1, 1]
