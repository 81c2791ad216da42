"""Events: news once, conditions that go on folded, a store that is down costs history only."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from rackpower_common.model.identity import NodeName
from rackpower_controller.core.decision import Event, Severity
from rackpower_controller.events_log import (
    BACKLOG_LIMIT,
    BATCH_LIMIT,
    FOLLOWER_BACKLOG_LIMIT,
    PAST_LIMIT,
    REMIND_S,
    REPEAT_S,
    EventLog,
    rank,
)
from rackpower_controller.store.base import EventRecord, StoreError
from support.shell import FakeClock
from support.store_fake import FakeStore
from support.waiting import async_wait_until

pytestmark = pytest.mark.anyio
DOWN = StoreError("the store is down")


def site() -> tuple[EventLog, FakeStore, FakeClock]:
    """Return a log with its store and clock."""
    store, clock = FakeStore(), FakeClock()
    return EventLog(store, clock), store, clock


def event(reason: str = "applied", severity: Severity = Severity.INFO, node: str = "") -> Event:
    """Return an event."""
    return Event(severity, reason, f"{reason} happened", node=NodeName(node) if node else None)


def words(records: list[EventRecord]) -> list[str]:
    """Return the reasons of records."""
    return [record.reason for record in records]


async def test_every_info_is_news() -> None:
    """What happened twice is told twice; ids rise and never repeat, also when the wall clock steps back."""
    log, _, clock = site()
    log.add([event(), event()])
    clock.time_s -= 500.0
    log.add([event()])
    past = log.past(10)
    assert words(past) == ["applied"] * 3
    ids = [tuple(map(int, record.id.split("-"))) for record in past]
    assert ids == sorted(set(ids))
    assert log.counts == {("info", "applied"): 3}


async def test_a_condition_that_goes_on_is_told_once_and_then_reminded_of() -> None:
    """Told every tick, kept once a minute; another node, or the same after a pause, is news."""
    log, _, clock = site()
    down = event("store_down", Severity.ERROR)
    for _ in range(round(REMIND_S)):
        log.add([down])
        clock.time_s += 1.0
    assert len(log.past(100)) == 1
    log.add([down])
    assert len(log.past(100)) == 2
    log.add([replace(down, node=NodeName("gpu-01"))])
    assert len(log.past(100)) == 3
    clock.time_s += REPEAT_S + 1.0
    assert len(log.add([down])) == 1


async def test_the_past_is_bounded_and_filtered() -> None:
    """The newest stay; a severity hides what is less severe, and an unknown word counts as the most severe."""
    log, _, _ = site()
    log.add(event(f"r{number}") for number in range(PAST_LIMIT + 5))
    assert len(log.past(PAST_LIMIT * 2)) == PAST_LIMIT
    assert words(log.past(1)) == [f"r{PAST_LIMIT + 4}"]
    log.add([event("bad", Severity.ERROR), event("fine")])
    assert words(log.past(10, Severity.WARNING)) == ["bad"]
    assert rank("calamity") == rank("error")


async def test_events_reach_the_store_in_order() -> None:
    """Batches, oldest first, each once."""
    log, store, _ = site()
    log.add(event(f"r{number}") for number in range(BATCH_LIMIT + 5))
    assert await log.flush()
    assert await log.flush()
    assert words(store.memory.events) == [f"r{number}" for number in range(BATCH_LIMIT + 5)]
    assert store.trace == ["add_events", "add_events"]


async def test_a_store_that_is_down_gets_them_later_and_the_oldest_are_lost() -> None:
    """The backlog has an end; what it drops is counted."""
    log, store, _ = site()
    store.fails["add_events"] = DOWN
    log.add(event(f"r{number}") for number in range(BACKLOG_LIMIT + 3))
    assert not await log.flush()
    assert log.dropped == 3
    store.fails.clear()
    assert await log.flush()
    assert words(store.memory.events)[0] == "r3"
    assert len(store.memory.events) == BACKLOG_LIMIT


async def test_events_are_written_beside_the_loop() -> None:
    """The writer wakes when there is something to write."""
    log, store, _ = site()
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(log.write())
        log.add([event()])
        await async_wait_until(lambda: store.memory.events, within_s=5, what="the event")
        writing.cancel()


async def test_the_store_s_events_are_recalled_in_their_place() -> None:
    """Those of earlier controllers come before ours, none twice; a store that is down recalls nothing."""
    log, store, clock = site()
    earlier = EventRecord("1-0", clock.unix_s() - 100.0, "info", "earlier", "it was")
    later = EventRecord("2-0", clock.unix_s() + 100.0, "info", "later", "it will be")
    log.add([event("ours")])
    await log.flush()
    store.memory.events = [earlier, *store.memory.events, later]
    await log.recall()
    assert words(log.past(10)) == ["earlier", "ours", "later"]
    await log.recall()
    assert words(log.past(10)) == ["earlier", "ours", "later"]
    store.fails["events"] = DOWN
    await log.recall()
    assert words(log.past(10)) == ["earlier", "ours", "later"]


async def test_followers_hear_what_is_news_from_now_on() -> None:
    """Past events are not told again; a follower that is done is forgotten."""
    log, _, _ = site()
    log.add([event("before")])
    heard: list[str] = []

    async def follow() -> None:
        async for record in log.follow(Severity.WARNING):
            heard.append(record.reason)  # noqa: PERF401 - one at a time, while the log goes on

    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow())
        await async_wait_until(lambda: log._followers, within_s=5, what="the follower")
        log.add([event("quiet"), event("loud", Severity.WARNING)])
        await async_wait_until(lambda: heard, within_s=5, what="the event")
        following.cancel()
    assert heard == ["loud"]
    await async_wait_until(lambda: not log._followers, within_s=5, what="the end")


async def test_a_follower_that_does_not_read_misses_the_oldest() -> None:
    """Its queue has an end, and the log never waits for it."""
    log, _, _ = site()
    with log._following() as waiting:
        log.add(event(f"r{number}") for number in range(FOLLOWER_BACKLOG_LIMIT + 2))
        assert waiting.qsize() == FOLLOWER_BACKLOG_LIMIT
        assert waiting.get_nowait().reason == "r2"


async def test_the_memory_of_what_was_told_is_bounded() -> None:
    """Conditions that ended are forgotten."""
    log, _, clock = site()
    for number in range(50):
        log.add([event("node_left", Severity.WARNING, f"n{number}")])
        clock.time_s += 1.0
    assert len(log._told) <= REPEAT_S + 2
