"""Percentiles in bounded memory."""

from __future__ import annotations

import pytest

from rackpower_controller.durations import CLASSES, STEP, Durations


def test_percentiles_are_right_within_a_class() -> None:
    """Of 1 to 1000 ms, each percentile is at least the true one and at most 5 % above it."""
    durations = Durations()
    for milliseconds in range(1, 1001):
        durations.add(milliseconds / 1000)
    for percent in (1.0, 50.0, 99.0, 100.0):
        true_s = percent / 100
        assert true_s <= durations.percentile_s(percent) * (1 + 1e-9)
        assert durations.percentile_s(percent) <= true_s * STEP * (1 + 1e-9)
    assert (durations.count, durations.last_s) == (1000, 1.0)
    assert durations.total_s == pytest.approx(500.5)


def test_nothing_counted_is_nothing() -> None:
    """Without a duration every percentile is 0."""
    assert Durations().percentile_s(99.0) == 0.0


@pytest.mark.parametrize("duration_s", [0.0, -1.0, 1e9])
def test_what_no_class_holds_is_put_into_the_nearest(duration_s: float) -> None:
    """A clock that stands still or a day of hanging breaks nothing."""
    durations = Durations()
    durations.add(duration_s)
    assert sum(durations._classes) == 1
    assert len(durations._classes) == CLASSES
