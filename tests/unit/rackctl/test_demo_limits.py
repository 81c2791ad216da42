"""What draws are held against while limits change."""

from __future__ import annotations

from rackpower_ctl.demo.limits import Limits


def test_a_lowered_limit_counts_once_caps_had_time_to_follow() -> None:
    """Until then the older, higher one is held against."""
    limits = Limits({"rack": 100}, follow_s=10)
    limits.change({"rack": 80}, now_s=50.0)
    assert limits.in_force == {"rack": 80}
    assert [limits.at(time_s)["rack"] for time_s in (49.0, 50.0, 59.9, 60.0)] == [100, 100, 100, 80]


def test_a_raised_limit_counts_at_once() -> None:
    """A draw under the new limit is no breach, one before the raise is."""
    limits = Limits({"rack": 100}, follow_s=10)
    limits.change({"rack": 120}, now_s=50.0)
    assert [limits.at(time_s)["rack"] for time_s in (49.9, 50.0)] == [100, 120]


def test_domains_that_are_not_measured_are_left_alone() -> None:
    """A new policy may name more domains than the hardware has."""
    limits = Limits({"rack": 100}, follow_s=10)
    limits.change({"rack": 100, "pdu": 5}, now_s=1.0)
    limits.change({}, now_s=2.0)
    assert limits.in_force == {"rack": 100}


def test_several_changes_within_the_time_hold_the_highest() -> None:
    """Two edits in a row: each older limit has its own time to run out."""
    limits = Limits({"rack": 100}, follow_s=10)
    limits.change({"rack": 80}, now_s=50.0)
    limits.change({"rack": 60}, now_s=55.0)
    assert [limits.at(time_s)["rack"] for time_s in (56.0, 61.0, 65.0)] == [100, 80, 60]
