"""Terms: taken, kept, lost, given way (invariants 8 and 9), between two controllers on one store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rackpower_common.model.identity import GpuId, NodeName, Term
from rackpower_common.model.messages import GoodbyeReason, Welcome
from rackpower_controller.core.facts import ExposuresRecalled, PolicyChanged
from rackpower_controller.reign import Acceded, Begun
from rackpower_controller.store.base import Exposure, StoreError
from support.policies import loaded
from support.shell import GPUS, Shell
from support.store_fake import FakeStore

pytestmark = pytest.mark.anyio
DOWN = StoreError("the store is down")
TTL_S = 5.0


def two() -> tuple[Shell, Shell]:
    """Return two controllers that share a store, and time."""
    first = Shell(name="first:1")
    second = Shell(store=FakeStore(first.store.memory), name="second:1")
    return first, second


async def step(*shells: Shell, after_s: float = 1.0) -> None:
    """Let each controller tick and then take or keep the lead."""
    for shell in shells:
        await shell.tick(after_s=after_s)
        await shell.lead()


async def test_nothing_is_granted_without_a_term() -> None:
    """Before the first term a tick decides nothing, and agents are not welcome."""
    shell = Shell()
    ticked = await shell.tick()
    assert ticked.decision.sentence.startswith("No term from the store yet")
    assert not shell.controller.leads()
    assert not ticked.recorded
    term = await shell.reign_begins()
    assert term.number == 1
    assert shell.controller.leads()


async def test_every_process_start_is_another_instance() -> None:
    """Two controllers that start never share an instance id."""
    first, second = Shell(), Shell()
    assert (await first.reign_begins()).instance != (await second.reign_begins()).instance


async def test_a_reign_begins_with_what_the_store_remembers() -> None:
    """Exposures, former places, the policy in force and its change are absorbed before the term, in this order."""
    shell = Shell()
    memory = shell.store.memory
    memory.exposures = {GpuId("GPU-x"): Exposure(650, NodeName("gpu-01"))}
    lower = loaded(loaded().files[0][1].decode(), ("60 kW", "30 kW")).policy
    shell.begun = Begun(shell.policy, PolicyChanged(lower, "policy files", shell.clock.now_s()))
    await shell.reign_begins()
    state = shell.controller.state
    assert state.recalled_w == {"gpu-01": 650}
    assert state.limits_lowered
    assert shell.controller.policy is lower
    assert [call for call in shell.trace if call != "ensure"] == ["take_term", "recall_exposures", "recall_former"]


@pytest.mark.parametrize("call", ["ensure", "take_term", "recall_exposures", "recall_former"])
async def test_invariant_09_a_reign_begins_only_with_everything_the_store_knows(call: str) -> None:
    """A recall that fails is no empty store: no term is used until all was recalled."""
    shell = Shell()
    shell.store.memory.exposures = {GpuId("GPU-x"): Exposure(650, NodeName("gpu-01"))}
    shell.store.fails[call] = DOWN
    await step(shell)
    assert not shell.controller.leads()
    assert shell.reign.detail == "the store is down"
    await step(shell)
    assert shell.ticks[-1].decision.sentence.startswith("No term from the store yet: the store is down")
    shell.store.fails.clear()
    await step(shell)
    assert shell.controller.state.recalled_w == {"gpu-01": 650}
    assert shell.reign.detail == ""


async def test_a_second_controller_stands_by_and_says_who_leads() -> None:
    """While the first leads, the second has no term, tells where the leader is, and counts its store as fine."""
    first, second = two()
    await step(first, second)
    await step(first, second)
    assert first.controller.leads()
    assert not second.controller.leads()
    assert second.controller.leader() == "first:1"
    assert second.ticks[-1].decision.sentence.startswith("Standing by: controller")
    assert second.controller.state.store_detail == ""


async def test_a_standby_takes_over_when_the_lead_runs_out() -> None:
    """A leader that no longer ticks loses the lead after its TTL; the next takes a higher term."""
    first, second = two()
    await step(first, second)
    for _ in range(int(TTL_S) + 1):
        await step(second)
    assert second.controller.state.term == Term(2, second.store.memory.instance)


async def test_invariant_08_a_fenced_controller_raises_nothing_and_leaves_after_one_ttl() -> None:
    """Fenced: no record, no raise, renewals go on; after one leader TTL one goodbye, no term, and an empty mind."""
    shell = Shell()
    agent = await shell.settled()
    shell.plan(500)
    await shell.tick()
    usurper = await FakeStore(shell.store.memory, now_s=1e9).take_term("usurper", above=0, ttl_s=1e9, leader="new:1")
    renewals, raises = shell.controller.sent.renewals, shell.controller.sent.raises
    shell.plan(600)
    for _ in range(int(TTL_S)):
        ticked = await shell.tick()
        assert not ticked.recorded
        await shell.lead()
        assert not shell.streams.goodbyes
    assert shell.controller.sent.renewals > renewals
    assert shell.controller.sent.raises == raises
    await step(shell)
    await step(shell)
    assert [goodbye.reason for goodbye in shell.streams.goodbyes] == [GoodbyeReason.FENCED]
    assert not shell.controller.leads()
    assert shell.store.memory.instance == usurper.instance
    assert set(agent.caps_w.values()) == {500}
    assert "deposed" in {record.reason for record in shell.events.past(100)}


async def test_a_deposed_controller_leads_again_as_another_instance() -> None:
    """Once the lead is free, the deposed one begins a new reign: higher term, new instance, books from the store."""
    shell = Shell()
    agent = await shell.settled()
    before = shell.controller.state.term
    assert before is not None
    other = FakeStore(shell.store.memory, now_s=1e9)
    await other.take_term("usurper", above=0, ttl_s=1e9, leader="new:1")
    for _ in range(int(TTL_S) + 2):
        await step(shell)
    assert not shell.controller.leads()
    shell.store.memory.leader = ""
    await step(shell)
    after = shell.controller.state.term
    assert after is not None
    assert after.number > before.number + 1
    assert after.instance != before.instance
    assert shell.controller.state.recalled_w == {"gpu-01": sum(agent.caps_w.values())}
    assert len(agent.caps_w) == GPUS


async def test_a_store_that_went_back_is_given_a_higher_term() -> None:
    """A store that lost its data knows a lower term than ours: we take one above our own, and stay."""
    shell = Shell()
    await shell.settled()
    shell.store.memory.number = 7
    shell.store.memory.instance = "nobody"
    shell.store.memory.forget()
    before = shell.controller.state.term
    assert before is not None
    ticked = await shell.tick()
    assert not ticked.recorded
    await shell.lead()
    after = shell.controller.state.term
    assert after == Term(before.number + 1, before.instance)
    assert not shell.streams.goodbyes
    ticked = await shell.tick()
    assert ticked.recorded
    welcomes = [message for _, message in shell.streams.sent if isinstance(message, Welcome)]
    assert welcomes[-1].term == after


async def test_an_agent_that_knows_a_higher_term_makes_us_take_one_above_it() -> None:
    """A report with a term above ours: no raises, a term above it, once, in the same reign."""
    shell = Shell()
    agent = await shell.settled()
    mine = shell.controller.state.term
    assert mine is not None
    agent.term = Term(41, "somebody")
    ticked = await shell.tick()
    assert ticked.decision.needs_term_above == 41
    await shell.lead()
    assert shell.controller.state.term == Term(42, mine.instance)
    shell.trace.clear()
    await shell.lead()
    assert "take_term" not in shell.trace


async def test_the_same_number_from_another_instance_makes_us_take_a_higher_term() -> None:
    """An agent that heard our number from somebody else refuses us: a number above it is taken."""
    shell = Shell()
    agent = await shell.settled()
    mine = shell.controller.state.term
    assert mine is not None
    agent.term = replace(mine, instance="twin")
    await shell.tick()
    await shell.lead()
    assert shell.controller.state.term == Term(mine.number + 1, mine.instance)


async def test_only_who_ticks_keeps_the_lead() -> None:
    """Without a completed tick the lead is not kept: `run` waits for one."""
    shell = Shell()
    await shell.reign_begins()
    shell.reign._ticked.clear()
    assert not shell.reign._ticked.is_set()
    await shell.tick()
    assert shell.reign._ticked.is_set()


async def test_a_record_made_while_a_new_term_comes_lets_nothing_rise() -> None:
    """A term taken while the record was under way: its raises would be the old term's, so none is sent."""
    shell = Shell()
    await shell.settled()
    shell.plan(500)

    async def lead() -> None:
        shell.reign.ticked(50, TTL_S)
        await shell.reign.step(shell.begin)

    shell.store.meanwhile = lead
    ticked = await shell.tick()
    assert not ticked.recorded
    assert shell.controller.sent.raises == 0
    shell.controller.take_in()
    assert shell.controller.state.term is not None
    assert shell.controller.state.term.number == 51


async def test_a_lead_given_up_is_free_at_once() -> None:
    """An orderly end lets the standby begin with its next tick; a store that is down does not disturb the end."""
    first, second = two()
    await step(first, second)
    await first.reign.give_up()
    await step(second)
    assert second.controller.leads()
    second.store.fails[""] = DOWN
    await second.reign.give_up()
    assert second.reign.detail == "the store is down"


async def test_news_is_told_once_and_wakes_the_owner() -> None:
    """Each piece of news is taken once."""
    shell = Shell()
    await shell.tick()
    await shell.reign.step(shell.begin)
    assert shell.wakes == 1
    (news,) = shell.reign.news()
    assert isinstance(news, Acceded)
    assert isinstance(news.recalled, ExposuresRecalled)
    assert shell.reign.news() == []
