"""The stream to a controller: whom an agent dials, when it gives one up, and what it says meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from rackpower_agent import dialling
from rackpower_agent.dialling import Dialler, Patience
from rackpower_common.errors import InvariantError
from rackpower_common.model.identity import Term
from rackpower_common.model.messages import (
    AgentGoodbye,
    ControllerGoodbye,
    GoodbyeReason,
    Grant,
    GrantBatch,
    Hello,
    Report,
    WriteError,
    WriteFailure,
)
from rackpower_common.tasks import beside, run_until
from support.gpu_fake import FakeGpu
from support.held import Held, held
from support.lease_node import grant
from support.link_fake import PATIENCE_S, FakeLink
from support.waiting import async_wait_until

pytestmark = pytest.mark.anyio

ONE, TWO = "127.0.0.1:7001", "127.0.0.1:7002"
TERM = Term(3, "c0ffee")
AS_SHIPPED = Patience()


class Fixed(Random):
    """Jitter without chance: the first address first, the shortest wait."""

    def randrange(self, *arguments: object) -> int:
        """Return the first."""
        return 0

    def random(self) -> float:
        """Return the least."""
        return 0.0


@asynccontextmanager
async def dialling_agent(
    folder: Path, link: FakeLink, *controllers: str, patience: Patience = AS_SHIPPED
) -> AsyncIterator[tuple[Held, Dialler]]:
    """Run holder and dialler; the block's end says goodbye."""
    async with held(folder, FakeGpu()) as node:
        addresses, now = controllers or (ONE,), node.clock
        dialler = Dialler(link, addresses, node.holder, node.hello, node.report, now, Fixed(), patience)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            jobs = (node.holder.run(), dialler.run())
            running = group.create_task(run_until(stop, jobs, lambda: dialler.say_goodbye("the agent stops")))
            await async_wait_until(node.holder.keeper.ready, within_s=PATIENCE_S, what="safe caps")
            try:
                yield node, dialler
            finally:
                stop.set()
                await asyncio.wait({running})


async def test_a_stream_begins_with_a_hello_and_a_report(tmp_path: Path) -> None:
    """The hello says who calls and what it holds; after the welcome the first report does not wait for its period."""
    link = FakeLink()
    async with dialling_agent(tmp_path, link) as (_, dialler):
        session = await link.dial()
        hello = await session.welcome(TERM)
        assert [device.gpu for device in hello.devices] == ["GPU-0"]
        assert (await session.next(Report)).sequence == 1
        await async_wait_until(lambda: dialler.standing.reports, within_s=PATIENCE_S, what="a report")
        assert (dialler.standing.peer, dialler.standing.term) == (ONE, TERM)


async def test_a_grant_reaches_the_driver_and_its_acknowledgement_comes_before_the_period(tmp_path: Path) -> None:
    """A cap that was read back is told at once: the controller waits for it to raise others."""
    link = FakeLink()
    async with dialling_agent(tmp_path, link) as (node, _):
        session = await link.dial()
        await session.welcome(TERM)
        session.tell(GrantBatch(TERM, (grant(5, 400),)))
        async with asyncio.timeout(PATIENCE_S):
            while (await session.next(Report)).gpus[0].holding.applied_sequence != 5:
                pass
        assert node.gpus[0].requested_w == 400


async def test_reports_that_come_early_do_not_put_off_the_next(tmp_path: Path) -> None:
    """Ten early reports in a period leave the eleventh where it was: a node never looks silent for being busy."""
    link = FakeLink()
    async with dialling_agent(tmp_path, link) as (node, _):
        session = await link.dial()
        await session.welcome(TERM, period_s=0.3)
        loop = asyncio.get_running_loop()
        for _ in range(10):
            await session.next(Report)
            node.holder.report_soon.set()
        last_s = loop.time()
        await session.next(Report)
        await session.next(Report)
        assert loop.time() - last_s < 1.5


@pytest.mark.parametrize("reason", [GoodbyeReason.FENCED, GoodbyeReason.NOT_LEADER])
async def test_a_fenced_controller_sends_the_agent_to_the_next_at_once(tmp_path: Path, reason: GoodbyeReason) -> None:
    """However long it asks for patience: it is not the one that leads."""
    link = FakeLink()
    async with dialling_agent(tmp_path, link, ONE, TWO):
        first = await link.dial()
        await first.welcome(TERM)
        await first.next(Report)
        first.tell(ControllerGoodbye(reason, retry_after_s=3600.0))
        second = await link.dial()
        assert (first.peer, second.peer) == (ONE, TWO)
        assert first.closed


async def test_the_leader_that_a_goodbye_names_is_dialled_next_if_it_is_one_of_ours(tmp_path: Path) -> None:
    """An address that the settings do not name is not believed."""
    link = FakeLink()
    async with dialling_agent(tmp_path, link, ONE, TWO, "127.0.0.1:7003"):
        first = await link.dial()
        await first.next(Hello)
        first.tell(ControllerGoodbye(GoodbyeReason.NOT_LEADER, leader="127.0.0.1:7003"))
        second = await link.dial()
        await second.next(Hello)
        second.tell(ControllerGoodbye(GoodbyeReason.NOT_LEADER, leader="192.0.2.66:1"))
        third = await link.dial()
        assert [first.peer, second.peer, third.peer] == [ONE, "127.0.0.1:7003", ONE]


@pytest.mark.parametrize(
    ("goodbye", "patience_s"),
    [
        (ControllerGoodbye(GoodbyeReason.REPLACED, retry_after_s=0.0), dialling.DISPLACED_S),
        (ControllerGoodbye(GoodbyeReason.REPLACED, retry_after_s=30.0), 30.0),
        (ControllerGoodbye(GoodbyeReason.FENCED, retry_after_s=30.0), 0.0),
        (ControllerGoodbye(GoodbyeReason.NODE_UNKNOWN, retry_after_s=30.0), 30.0),
        (ControllerGoodbye(GoodbyeReason.TOO_MANY, retry_after_s=1e9), dialling.LONGEST_PATIENCE_S),
        (ControllerGoodbye(GoodbyeReason.TOO_MANY, retry_after_s=float("nan")), 0.0),
        (ControllerGoodbye(GoodbyeReason.TOO_MANY, retry_after_s=-1.0), 0.0),
    ],
)
def test_patience_after_a_goodbye_has_a_floor_and_a_ceiling(goodbye: ControllerGoodbye, patience_s: float) -> None:
    """Two agents that replace each other do not do so in a tight loop, and no controller silences an agent for ever."""
    assert dialling._patience_s(goodbye) == patience_s


async def test_a_controller_that_nobody_is_at_is_passed_over(tmp_path: Path) -> None:
    """The next address is dialled, and the standing says what was wrong until then."""
    link = FakeLink(ONE)
    async with dialling_agent(tmp_path, link, ONE, TWO) as (_, dialler):
        session = await link.dial()
        assert session.peer == TWO
        assert link.dialled == [ONE, TWO]
        assert dialler.standing.detail == f"cannot connect to {ONE}: nobody listens there"


async def test_a_controller_that_answers_no_hello_is_given_up(tmp_path: Path) -> None:
    """A port that takes connections and says nothing is no controller."""
    link = FakeLink()
    async with dialling_agent(tmp_path, link, ONE, TWO, patience=Patience(welcome_s=0.05)) as (_, dialler):
        first = await link.dial()
        assert (await link.dial()).peer == TWO
        assert first.closed
        assert dialler.standing.detail == f"{ONE} answers no hello"


async def test_a_controller_that_falls_silent_is_given_up(tmp_path: Path) -> None:
    """One that renews nothing any more is left for the next, well inside a lease."""
    link = FakeLink()
    async with dialling_agent(tmp_path, link, ONE, TWO, patience=Patience(silence_s=0.05)) as (_, dialler):
        first = await link.dial()
        await first.welcome(TERM)
        await first.next(Report)
        assert (await link.dial()).peer == TWO
        assert dialler.standing.detail == f"{ONE} says nothing for 0.05 s"
        assert dialler.standing.connected_since_s is None


async def test_a_controller_that_takes_no_reports_is_given_up(tmp_path: Path) -> None:
    """Back-pressure without end is a broken stream."""
    link = FakeLink()
    async with dialling_agent(tmp_path, link, ONE, TWO, patience=Patience(send_s=0.05)) as (_, dialler):
        first = await link.dial()
        await first.welcome(TERM)
        first.taking.clear()
        assert (await link.dial()).peer == TWO
        assert dialler.standing.detail == f"{ONE} takes no reports"


async def test_a_hello_answered_with_anything_else_ends_the_stream(tmp_path: Path) -> None:
    """Grants before a welcome are nobody's."""
    link = FakeLink()
    async with dialling_agent(tmp_path, link, ONE, TWO) as (node, dialler):
        session = await link.dial()
        await session.next(Hello)
        session.tell(GrantBatch(TERM, (grant(1, 900),)))
        assert (await link.dial()).peer == TWO
        assert "something else than a welcome" in dialler.standing.detail
        assert node.gpus[0].requested_w == 200


async def test_a_grant_that_cannot_be_applied_is_told_before_the_report(tmp_path: Path) -> None:
    """The controller learns of a refusal with GPU, sequence and reason."""
    link = FakeLink()
    async with dialling_agent(tmp_path, link) as _:
        session = await link.dial()
        await session.welcome(TERM)
        session.tell(GrantBatch(TERM, (replace(grant(5, 400), cap_w=-1),)))
        error = await session.next(WriteError)
        assert (error.gpu, error.sequence, error.reason) == ("GPU-0", 5, WriteFailure.REFUSED)


async def test_errors_of_another_stream_are_not_told_to_the_next_controller(tmp_path: Path) -> None:
    """What was refused of one term is nothing to the next; the hello says what is held."""
    link = FakeLink()
    async with dialling_agent(tmp_path, link, ONE, TWO) as (node, _):
        first = await link.dial()
        await first.welcome(TERM)
        await first.next(Report)
        first.taking.clear()
        first.tell(GrantBatch(TERM, (Grant(node.gpus[0].device.gpu, -1, 300, 15.0, 5),)))
        await async_wait_until(lambda: first.under_way, within_s=PATIENCE_S, what="the error to be under way")
        first.tell(ControllerGoodbye(GoodbyeReason.FENCED))
        second = await link.dial()
        await second.welcome(Term(4, "beef"))
        async with asyncio.timeout(PATIENCE_S):
            message = await second.said.get()
        assert isinstance(message, Report)


async def test_a_highest_cap_seen_while_a_report_leaves_waits_for_the_next_one(tmp_path: Path) -> None:
    """What a report did not tell is not forgotten when it has left."""
    link = FakeLink()
    async with dialling_agent(tmp_path, link) as (node, _):
        session = await link.dial()
        await session.welcome(TERM)
        await session.next(Report)
        session.taking.clear()
        node.holder.report_soon.set()
        await async_wait_until(lambda: session.under_way, within_s=PATIENCE_S, what="a report under way")
        gpu = node.gpus[0]
        gpu.requested_w = gpu.enforced_w = 900
        await async_wait_until(lambda: gpu.writes[-1:] == [200], within_s=PATIENCE_S, what="the override put right")
        await async_wait_until(node.holder.keeper.ready, within_s=PATIENCE_S, what="the read-back")
        session.taking.set()
        highest = [(await session.next(Report)).gpus[0].holding.highest_enforced_w for _ in range(2)]
        assert highest == [200, 900]


async def test_a_stopping_agent_says_goodbye_with_the_caps_it_leaves_and_dials_no_more(tmp_path: Path) -> None:
    """Its last words name every cap in force; nothing was written for it."""
    link = FakeLink()
    async with dialling_agent(tmp_path, link) as (node, _):
        session = await link.dial()
        await session.welcome(TERM)
        session.tell(GrantBatch(TERM, (grant(5, 400),)))
        await async_wait_until(lambda: node.gpus[0].writes[-1:] == [400], within_s=PATIENCE_S, what="the cap")
        await async_wait_until(node.holder.keeper.ready, within_s=PATIENCE_S, what="the read-back")
        writes = list(node.gpus[0].writes)
    goodbye = await session.next(AgentGoodbye)
    assert goodbye.reason == "the agent stops"
    assert goodbye.holdings[0].enforced_w == 400
    assert node.gpus[0].writes == writes
    assert link.dialled == [ONE]
    assert session.closed


async def test_a_goodbye_waits_its_turn_behind_a_report_under_way(tmp_path: Path) -> None:
    """A stream takes one message at a time, also at the end."""
    link = FakeLink()
    async with dialling_agent(tmp_path, link) as (node, dialler):
        session = await link.dial()
        await session.welcome(TERM)
        await session.next(Report)
        session.taking.clear()
        node.holder.report_soon.set()
        await async_wait_until(lambda: session.under_way, within_s=PATIENCE_S, what="a report under way")
        async with asyncio.TaskGroup() as group:
            group.create_task(dialler.say_goodbye("stop"))
            await asyncio.sleep(0)
            session.taking.set()
        await session.next(Report)
        await session.next(AgentGoodbye)


async def test_a_fact_that_does_not_hold_in_a_report_is_no_broken_link(tmp_path: Path) -> None:
    """It lowers every cap and ends the agent, instead of being dialled around for ever."""
    link = FakeLink()
    async with held(tmp_path, FakeGpu()) as node:

        def report(sequence: int) -> Report:
            raise InvariantError("invariant 2 does not hold: acknowledged what was never taken")

        dialler = Dialler(link, (ONE,), node.holder, node.hello, report, node.clock, Fixed())
        jobs = (node.holder.run(), dialler.run())
        with pytest.raises(InvariantError, match="invariant 2"):
            await asyncio.wait_for(beside(welcomed(link), run_until(asyncio.Event(), jobs)), PATIENCE_S)
        assert node.gpus[0].requested_w == 200
    assert link.dialled == [ONE]


async def welcomed(link: FakeLink) -> None:
    """Welcome the agent that dials."""
    await (await link.dial()).welcome(TERM)
