from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from rackpower_common.model.identity import NodeName, StreamId
from rackpower_common.model.messages import Report, WriteError, WriteFailure
from rackpower_controller import inbox as inbox_module
from rackpower_controller.core.facts import NodeConnected, NodeLeft, NodeReported, StoreHealth, WriteFailed
from rackpower_controller.inbox import Inbox
from support.books import TERM, gpu_id, hello, report

NODE = NodeName("gpu-01")


def reported(stream: int, sequence: int, said: Report | None = None) -> NodeReported:
    """Return a report as a fact."""
    return NodeReported(StreamId(stream), NODE, said or replace(report("gpu-01"), sequence=sequence), 1.0)


def failed(stream: int, sequence: int) -> WriteFailed:
    """Return a write error as a fact."""
    error = WriteError(gpu_id("gpu-01", 0), TERM, sequence, 400, WriteFailure.REFUSED)
    return WriteFailed(StreamId(stream), NODE, error, 1.0)


def test_the_newest_report_of_a_stream_wins_and_keeps_its_turn() -> None:
    """Of three reports of one stream one is drained, the newest, before what came after the first."""
    box = Inbox()
    left = NodeLeft(StreamId(9), NODE, None, 1.0)
    for fact in (reported(1, 1), left, reported(1, 3), reported(1, 2), reported(2, 1)):
        assert box.put(fact)
    assert box.drain() == [reported(1, 3), left, reported(2, 1)]
    assert box.drain() == []


def test_write_errors_of_one_gpu_do_not_pile_up() -> None:
    """The newest write error of a GPU takes the place of the one before."""
    box = Inbox()
    for sequence in range(100):
        box.put(failed(1, sequence))
    assert box.drain() == [failed(1, 99)]


def test_a_full_inbox_refuses_agents_and_never_the_controller() -> None:
    """Hellos and reports of new streams are refused and counted; ends of streams and the store's health are taken."""
    box = Inbox()
    for stream in range(inbox_module.FACTS_LIMIT):
        assert box.put(reported(stream, 1))
    connected = NodeConnected(StreamId(99_999), "a", "a", hello("gpu-01"), 1.0)
    assert not box.put(connected)
    assert not box.put(reported(99_999, 1))
    assert box.dropped == 2
    assert box.put(reported(5, 2))
    assert box.put(NodeLeft(StreamId(1), NODE, None, 1.0))
    assert box.put(StoreHealth("down", 1.0))
    assert len(box) == inbox_module.FACTS_LIMIT + 2


@pytest.mark.anyio
async def test_what_somebody_waits_for_wakes_the_owner_and_a_quiet_report_does_not() -> None:
    """A report waits for the tick; one that tells of an override, and any other fact, does not."""
    box = Inbox()
    box.put(reported(1, 1))
    assert not await box.wait(0.01)
    quiet = report("gpu-01")
    override = replace(quiet, sequence=2, gpus=(replace(quiet.gpus[0], override_w=700), *quiet.gpus[1:]))
    for fact in (reported(1, 2, override), failed(1, 1), StoreHealth("", 1.0)):
        box.put(fact)
        async with asyncio.timeout(5):
            assert await box.wait(60)
        box.drain()
        assert not await box.wait(0)
