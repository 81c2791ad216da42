"""Simulated inference servers: no token appears or vanishes, and queues are served in order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackpower_sim.traces import Mix, Request
from rackpower_sim.workloads import ReplicaBank
from support.sim_racks import counted, requests

STEP_S = 0.05


def run(bank: ReplicaBank, seconds: float, rate: float = 100.0, begin_s: float = 0.0) -> float:
    """Admit and serve at one rate for all; return the mean share that the first GPU was busy."""
    steps = round(seconds / STEP_S)
    busy = 0.0
    for step in range(steps):
        bank.admit(begin_s + (step + 1) * STEP_S)
        busy += float(bank.serve(np.full((1, len(bank._load[0])), rate), STEP_S)[0, 0])
    return busy / steps


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    requests_per_s=st.floats(0.2, 30.0),
    replicas=st.integers(1, 6),
    gpus=st.integers(1, 4),
    limit=st.sampled_from([2_000.0, 1e9]),
)
def test_tokens_are_served_waiting_or_refused(
    seed: int, requests_per_s: float, replicas: int, gpus: int, limit: float
) -> None:
    """Tokens that arrived = generated + outstanding, whatever is refused aside; requests add up as well."""
    seen: list[Request] = []
    arrivals = counted(Mix().requests(seed, requests_per_s), seen)
    groups = [range(first * gpus, (first + 1) * gpus) for first in range(replicas)]
    bank = ReplicaBank(groups, replicas * gpus, arrivals, queue_limit_tokens=limit)
    rates = np.random.default_rng(seed).uniform(0.0, 400.0, (200, 1, replicas * gpus))
    for step, rate in enumerate(rates):
        bank.admit((step + 1) * STEP_S)
        load = bank.serve(rate, STEP_S)
        assert ((load >= 0) & (load <= 1)).all()
    arrived = [request for request in seen if request.arrival_s < 200 * STEP_S]
    counts = bank.counts()
    refused = sum(count.refused for count in counts)
    assert bank.arrived == len(arrived)
    assert sum(count.completed + count.running + count.waiting for count in counts) + refused == len(arrived)
    handled = bank.generated.sum() + bank.outstanding.sum()
    wanted = sum(request.output_tokens for request in arrived)
    assert handled == pytest.approx(wanted) if refused == 0 else handled < wanted
    assert sum(count.generated_tokens for count in counts) == pytest.approx(bank.generated.sum())


def test_requests_are_served_in_order_and_at_the_rate() -> None:
    """100 tokens/s: 200 tokens take two seconds, and the next request waits for them."""
    bank = ReplicaBank([[0]], 1, requests((0.0, 200), (0.0, 100), (0.5, 50)))
    run(bank, 1.0)
    (count,) = bank.counts()
    assert (count.completed, count.running, count.waiting) == (0, 1, 2)
    assert count.generated_tokens == pytest.approx(100)
    assert count.prompt_tokens == 10
    run(bank, 1.0, begin_s=1.0)
    (count,) = bank.counts()
    assert (count.completed, count.running, count.waiting) == (1, 1, 1)
    run(bank, 2.0, begin_s=2.0)
    (count,) = bank.counts()
    assert (count.completed, count.running, count.waiting) == (3, 0, 0)
    assert count.generated_tokens == pytest.approx(350)
    assert count.prompt_tokens == 30


def test_a_server_is_busy_for_as_long_as_it_has_work() -> None:
    """30 tokens at 100 tokens/s in a second: three tenths of it."""
    bank = ReplicaBank([[0]], 1, requests((0.0, 30)))
    assert run(bank, 1.0) == pytest.approx(0.3)
    assert run(bank, 1.0, begin_s=1.0) == 0.0


def test_a_stalled_server_is_busy_and_gets_nowhere() -> None:
    """A cap so low that nothing is served does not make the GPU idle."""
    bank = ReplicaBank([[0]], 1, requests((0.0, 30)))
    assert run(bank, 1.0, rate=0.0) == 1.0
    assert bank.generated.sum() == 0


def test_gpus_of_a_replica_wait_for_their_slowest() -> None:
    """Four GPUs that gate each other: four times the slowest, and all are equally busy."""
    bank = ReplicaBank([[0, 1, 2, 3]], 5, requests((0.0, 1000)))
    bank.admit(STEP_S)
    load = bank.serve(np.array([[100.0, 40.0, 200.0, 80.0, 500.0]]), 1.0)
    assert bank.generated[0, 0] == pytest.approx(160.0)
    assert load.tolist() == [[1.0, 1.0, 1.0, 1.0, 0.0]]


def test_work_goes_where_the_least_is_waiting() -> None:
    """A long request takes one replica out; equals take turns."""
    bank = ReplicaBank([[0], [1], [2]], 3, requests((0.0, 900), *itertools.repeat((0.0, 10), 10)))
    bank.admit(STEP_S)
    assert bank.outstanding.tolist() == [[900.0, 50.0, 50.0]]


def test_a_full_queue_refuses_and_counts() -> None:
    """No token of a refused request is served."""
    bank = ReplicaBank([[0]], 1, requests((0.0, 80), (0.0, 80), (0.0, 80)), queue_limit_tokens=100.0)
    run(bank, 5.0)
    (count,) = bank.counts()
    assert (count.completed, count.refused) == (2, 1)
    assert count.generated_tokens == pytest.approx(160)


def test_servers_that_are_down_get_no_work_and_lose_none() -> None:
    """Their requests stay; new ones go to the others, or wait before the balancer when all are down."""
    bank = ReplicaBank([[0], [1]], 2, requests((0.0, 50), (0.0, 50), (0.2, 50), (0.9, 50)))
    run(bank, 0.1)
    bank.serving[0] = False
    run(bank, 0.2, begin_s=0.1)
    assert bank.generated[0].tolist() == pytest.approx([10.0, 30.0])
    assert bank.outstanding[0].tolist() == pytest.approx([40.0, 70.0])
    bank.serving[1] = False
    run(bank, 10.0, begin_s=0.3)
    assert bank.arrived == 3
    bank.serving[:] = True
    run(bank, 3.0, begin_s=10.3)
    assert bank.arrived == 4
    assert bank.generated.sum() == pytest.approx(200)


def test_lanes_are_served_as_if_alone() -> None:
    """Each lane has queues of its own behind the same arrivals."""

    def served(rates: list[float]) -> list[float]:
        bank = ReplicaBank([[0], [1]], 2, Mix().requests(5, 2.0), lanes=len(rates), records=False)
        for step in range(200):
            bank.admit((step + 1) * STEP_S)
            bank.serve(np.array([[rate, rate] for rate in rates]), STEP_S)
        return [float(tokens) for tokens in bank.generated.sum(axis=1)]

    assert served([60.0, 120.0, 500.0]) == [*served([60.0]), *served([120.0]), *served([500.0])]


def test_a_bank_without_records_says_so() -> None:
    """Instead of counting nothing."""
    with pytest.raises(ValueError, match="without records"):
        ReplicaBank([[0]], 1, requests(), records=False).counts()
