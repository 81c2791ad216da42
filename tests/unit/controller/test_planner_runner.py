"""The planner's thread: the newest question wins, and one that fails or hangs costs plans, never a tick."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from rackpower_common.model.identity import Revision
from rackpower_controller.core.decision import Event
from rackpower_controller.core.planning import Plan, PlanRequest
from rackpower_controller.planner_runner import PlannerRunner
from support.plans import WaterfillPlanner, mixed_rack
from support.shell import FakeClock
from support.waiting import async_wait_until

pytestmark = pytest.mark.anyio
HUNG_S = 0.05


@dataclass
class FakePlanner:
    """A planner that remembers its questions, and answers when it is let, or fails."""

    let: threading.Event = field(default_factory=threading.Event)
    fails: Exception | None = None
    asked: list[tuple[PlanRequest, float]] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)

    def plan(self, request: PlanRequest, deadline_s: float) -> Plan:
        """Answer."""
        self.asked.append((request, deadline_s))
        self.threads.add(threading.current_thread().name)
        assert self.let.wait(20.0)
        if self.fails is not None:
            raise self.fails
        return WaterfillPlanner().plan(request, deadline_s)


@dataclass
class Running:
    """A runner at work, its planner and what it told."""

    runner: PlannerRunner
    planner: FakePlanner
    told: list[Event]


@asynccontextmanager
async def running() -> AsyncIterator[Running]:
    """Run a planner's runner; at the end its thread may go."""
    planner, told = FakePlanner(), list[Event]()
    runner = PlannerRunner(planner, FakeClock(), told.append, deadline_s=0.3, hung_s=HUNG_S)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(runner.run())
        try:
            yield Running(runner, planner, told)
        finally:
            planner.let.set()
            task.cancel()


def question(number: int) -> PlanRequest:
    """Return one of many questions."""
    return replace(mixed_rack(), revision=Revision(f"r{number}"))


async def asked(now: Running, count: int) -> None:
    """Wait until the planner was asked so often."""
    await async_wait_until(lambda: len(now.planner.asked) == count, within_s=10, what=f"question {count}")


async def test_an_answer_becomes_the_plan() -> None:
    """The plan is there once the thread has answered, and its duration is counted."""
    async with running() as now:
        now.planner.let.set()
        now.runner.submit(question(1))
        await async_wait_until(lambda: now.runner.plan, within_s=10, what="the plan")
        assert now.runner.plan is not None
        assert now.runner.plan.revision == "r1"
        assert now.runner.durations.count == 1
        assert now.planner.asked[0][1] == 0.3
        assert now.planner.threads == {"planner"}


async def test_the_same_question_is_asked_once() -> None:
    """A rack that stands still costs no solving."""
    async with running() as now:
        now.planner.let.set()
        for _ in range(3):
            now.runner.submit(question(1))
            await async_wait_until(lambda: now.runner.plan, within_s=10, what="the plan")
        assert len(now.planner.asked) == 1


async def test_while_one_is_answered_only_the_newest_question_waits() -> None:
    """Questions that were overtaken are dropped."""
    async with running() as now:
        now.runner.submit(question(1))
        await asked(now, 1)
        for number in (2, 3, 4):
            now.runner.submit(question(number))
        now.planner.let.set()
        await asked(now, 2)
        assert now.planner.asked[1][0].revision == "r4"


async def test_a_planner_that_fails_is_told_and_asked_again() -> None:
    """A bug of a planner is an event; the last plan stays, and the same question may be asked again."""
    async with running() as now:
        now.planner.let.set()
        now.runner.submit(question(1))
        await async_wait_until(lambda: now.runner.plan, within_s=10, what="the plan")
        now.planner.fails = RuntimeError("no basis")
        now.runner.submit(question(2))
        await async_wait_until(lambda: now.told, within_s=10, what="the event")
        assert now.told[0].reason == "planner_failed"
        assert "no basis" in now.told[0].message
        assert now.runner.failures == 1
        assert now.runner.plan is not None
        assert now.runner.plan.revision == "r1"
        now.planner.fails = None
        now.runner.submit(question(2))
        await async_wait_until(lambda: now.runner.plan.revision == "r2", within_s=10, what="the plan")  # type: ignore[union-attr]


async def test_a_planner_that_hangs_is_told_and_may_still_answer() -> None:
    """The event repeats while it hangs; a late answer counts."""
    async with running() as now:
        now.runner.submit(question(1))
        await async_wait_until(lambda: len(now.told) > 1, within_s=10, what="two events")
        assert {event.reason for event in now.told} == {"planner_hung"}
        assert now.runner.plan is None
        now.planner.let.set()
        await async_wait_until(lambda: now.runner.plan, within_s=10, what="the plan")


async def test_a_planner_that_hangs_does_not_keep_the_process() -> None:
    """The runner ends at once, and the thread is a daemon, for which Python does not wait."""
    async with running() as now:
        now.runner.submit(question(1))
        await asked(now, 1)
        (thread,) = (thread for thread in threading.enumerate() if thread.name == "planner")
        assert thread.daemon
