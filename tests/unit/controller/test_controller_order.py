"""The order of one tick: lowers at once, then the record, then raises; and what a store that fails may hold up."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from rackpower_common.model.identity import NodeName
from rackpower_controller.core.decision import Decision
from rackpower_controller.core.facts import NodeLeft, PolicyChanged
from rackpower_controller.store.base import StoreError
from support.policies import NODES, RACK, loaded
from support.shell import GPUS, RECORD_S, Shell

pytestmark = pytest.mark.anyio
DOWN = StoreError("the store is down")
UP_W = 500
DOWN_W = 300


async def ready_to_raise() -> Shell:
    """Return a shell whose next tick raises every GPU of one node."""
    shell = Shell()
    await shell.settled()
    shell.plan(UP_W)
    shell.trace.clear()
    return shell


def raised(decision: Decision) -> int:
    """Return how many raises a decision holds."""
    return sum(len(batch.grants) for batch in decision.raises.values())


async def test_lowers_then_record_then_raises() -> None:
    """One tick that lowers one node and raises the other: lowers, record, raises, in this order, each sent once."""
    shell = await ready_to_raise()
    shell.connect("gpu-02")
    for _ in range(3):
        await shell.tick()
    plan = shell.plan(UP_W)
    low = {gpu: DOWN_W for gpu in plan.targets_w if gpu.startswith("GPU-gpu-01")}
    shell.planner.plan = replace(plan, targets_w={**plan.targets_w, **low})
    shell.trace.clear()
    already = len(shell.streams.batches)
    ticked = await shell.tick()
    assert shell.trace == ["grants", "renewals", "record_exposures", "grants"]
    lowering, renewing, raising = shell.streams.batches[already:]
    assert {grant.cap_w for grant in lowering.grants} == {DOWN_W}
    assert {grant.cap_w for grant in raising.grants} == {UP_W}
    assert len(renewing.renewals) == raised(ticked.decision) == GPUS
    await shell.tick()
    assert set(shell.agents["gpu-01"].caps_w.values()) == {DOWN_W}
    assert set(shell.agents["gpu-02"].caps_w.values()) == {UP_W}


async def test_invariant_01_what_a_raise_makes_a_gpu_draw_is_recorded_before_it_is_sent() -> None:
    """When the raise leaves, the store already counts the GPU at its new cap."""
    shell = await ready_to_raise()
    ticked = await shell.tick()
    assert raised(ticked.decision) == GPUS
    assert ticked.recorded
    assert shell.trace.index("record_exposures") < shell.trace.index("grants")
    assert all(exposure.power_w >= UP_W for exposure in shell.store.memory.exposures.values())
    assert len(shell.store.memory.exposures) == GPUS


async def test_invariant_08_a_store_that_refuses_a_record_lets_nothing_rise() -> None:
    """The decision holds raises, none is sent or committed; the sequence numbers are not used up; it says so."""
    shell = await ready_to_raise()
    shell.store.fails["record_exposures"] = DOWN
    before = dict(shell.controller.state.gpus)
    ticked = await shell.tick()
    assert raised(ticked.decision) == GPUS
    assert not ticked.recorded
    assert "grants" not in shell.trace
    assert {gpu: book.sequence for gpu, book in shell.controller.state.gpus.items()} == {
        gpu: book.sequence for gpu, book in before.items()
    }
    await shell.tick()
    assert shell.controller.state.store_detail == "the store is down"
    assert [record.reason for record in shell.events.past(10)][-1] == "store_down"


async def test_a_store_that_comes_back_lets_the_next_tick_raise() -> None:
    """Nobody has to do anything: the next record that is accepted carries the raises, and the event says so."""
    shell = await ready_to_raise()
    shell.store.fails["record_exposures"] = DOWN
    await shell.tick()
    del shell.store.fails["record_exposures"]
    await shell.tick()
    await shell.tick()
    assert set(shell.agents["gpu-01"].caps_w.values()) == {UP_W}
    assert shell.events.past(10)[-1].reason == "store_ok"


async def test_lowers_and_renewals_go_on_without_the_store() -> None:
    """With a store that fails every call, leases are renewed and a plan below the caps is carried out."""
    shell = Shell()
    await shell.settled()
    shell.plan(UP_W)
    for _ in range(3):
        await shell.tick()
        await shell.lead()
    shell.store.fails[""] = DOWN
    sent = shell.controller.sent
    renewals = sent.renewals
    await shell.tick()
    assert sent.renewals == renewals + GPUS
    shell.plan(DOWN_W)
    await shell.tick()
    await shell.tick()
    assert set(shell.agents["gpu-01"].caps_w.values()) == {DOWN_W}


async def test_a_store_that_hangs_holds_a_tick_up_for_its_deadline_only() -> None:
    """The record has a deadline; lowers were sent before it began, raises are not sent."""
    shell = await ready_to_raise()
    shell.store.hangs.add("record_exposures")
    began_s = time.monotonic()
    ticked = await shell.tick()
    took_s = time.monotonic() - began_s
    assert RECORD_S <= took_s < 1.0
    assert not ticked.recorded
    assert "grants" not in shell.trace
    await shell.tick()
    assert shell.controller.state.store_detail == f"it did not take the record within {RECORD_S:g} s"


async def test_a_store_that_failed_the_lead_is_not_asked_for_a_record() -> None:
    """What is known to be down costs the tick nothing, however long each call would take."""
    shell = await ready_to_raise()
    shell.store.fails["keep_lead"] = DOWN
    await shell.lead()
    shell.trace.clear()
    ticked = await shell.tick()
    assert not ticked.recorded
    assert "record_exposures" not in shell.trace


async def test_nothing_is_absorbed_between_a_decision_and_its_raises() -> None:
    """A policy that arrives while the record is under way waits for the next tick, and the raises leave unchanged."""
    shell = await ready_to_raise()
    lower = loaded(RACK + NODES, ("60 kW", "30 kW")).policy

    async def arrive() -> None:
        shell.inbox.put(PolicyChanged(lower, "ann", shell.clock.now_s()))

    shell.store.meanwhile = arrive
    ticked = await shell.tick()
    assert ticked.policy is shell.policy
    assert raised(ticked.decision) == GPUS
    assert shell.trace[-2:] == ["record_exposures", "grants"]
    assert shell.controller.take_in()  # urgent: the limit came down
    assert shell.controller.policy is lower


async def test_a_stream_that_ended_takes_nothing() -> None:
    """The node of a stream that is gone is granted nothing, and counts as before."""
    shell = await ready_to_raise()
    agent = shell.agents.pop("gpu-01")
    before_w = sum(exposure.power_w for exposure in shell.store.memory.exposures.values())
    shell.inbox.put(NodeLeft(agent.stream, NodeName("gpu-01"), None, shell.clock.now_s()))
    already = len(shell.streams.sent)
    await shell.tick()
    assert shell.streams.sent[already:] == []
    assert sum(exposure.power_w for exposure in shell.store.memory.exposures.values()) == before_w


async def test_what_was_sent_is_counted() -> None:
    """Lowers, raises and renewals are counted by GPU, for the metrics."""
    shell = await ready_to_raise()
    await shell.tick()
    assert (shell.controller.sent.raises, shell.controller.sent.lowers) == (GPUS, GPUS)
    before = shell.controller.sent.renewals
    await shell.tick()
    assert shell.controller.sent.renewals == before + GPUS
