"""How long an agent waits before it dials again."""

from __future__ import annotations

from random import Random

from rackpower_agent.backoff import FIRST_S, LONGEST_S, backoff_s


def test_a_first_dial_does_not_wait() -> None:
    """Nothing has failed yet."""
    assert backoff_s(0, Random(1)) == 0.0


def test_waits_double_up_to_a_longest_that_leaves_time_within_a_lease() -> None:
    """Each wait lies between half and the whole of its doubling time; never above 5 s, however often it failed."""
    random = Random(1)
    for failures in (*range(1, 12), 10_000):
        whole_s = min(LONGEST_S, FIRST_S * 2.0 ** min(failures - 1, 20))
        waits = [backoff_s(failures, random) for _ in range(200)]
        assert whole_s / 2 <= min(waits) <= max(waits) <= whole_s


def test_a_rack_of_agents_does_not_dial_in_step() -> None:
    """Seventy-two agents that failed together spread over the time."""
    waits = {round(backoff_s(5, Random(seed)), 3) for seed in range(72)}
    assert len(waits) > 60
