"""What is read beside the GPUs: one broken source never silences another, and old facts are forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from rackpower_agent import facts as facts_module
from rackpower_agent.facts import STALE_S, Facts
from rackpower_agent.meters.base import MeterReading
from rackpower_common.errors import RackpowerError
from rackpower_common.model.device import Workload
from rackpower_common.model.identity import GpuId
from rackpower_common.tasks import beside
from support.gpu_fake import HandClock
from support.link_fake import PATIENCE_S
from support.waiting import async_wait_until

pytestmark = pytest.mark.anyio


class Unreachable(RackpowerError):
    """A source that does not answer."""


@dataclass
class FakeSource:
    """A workload source with a memory."""

    name: str = "fake"
    fails: Exception | None = None
    hangs: bool = False
    opened: list[Mapping[str, str]] = field(default_factory=list)
    read_count: int = 0

    async def open(self, options: Mapping[str, str]) -> None:
        """Remember the options."""
        self.opened.append(options)

    async def read(self) -> tuple[Workload, ...]:
        """Tell one workload."""
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails is not None:
            raise self.fails
        self.read_count += 1
        return (Workload(self.name, (GpuId("GPU-0"),)),)


@dataclass
class FakeMeter:
    """A meter with one reading."""

    name: str = "fake"
    reading: MeterReading | None = MeterReading(2400, 0.5)

    async def open(self, options: Mapping[str, str]) -> None:
        """Get ready."""

    async def read(self) -> MeterReading | None:
        """Return it."""
        return self.reading


async def known(facts: Facts, source: str) -> None:
    """Wait until a source has answered or failed."""
    await async_wait_until(
        lambda: (health := facts.health.get(source)) is not None and (health.up or health.failures),
        within_s=PATIENCE_S,
        what=source,
    )


async def test_a_broken_source_silences_no_other() -> None:
    """One raises what it likes; the other's workloads and the meter are told, the failure counted and named."""
    clock = HandClock()
    broken, fine = FakeSource(fails=ZeroDivisionError("bug")), FakeSource("vllm")
    facts = Facts(clock, {"broken": (broken, {}), "fine": (fine, {"url": "x"})}, (FakeMeter(), {}))

    async def all_known() -> None:
        for name in ("workloads/broken", "workloads/fine", "meter/fake"):
            await known(facts, name)

    await beside(facts.run(), all_known())
    assert [workload.name for workload in facts.workloads(clock.now_s())] == ["vllm"]
    assert facts.node_power(clock.now_s()) == MeterReading(2400, 0.5)
    assert facts.health["workloads/broken"].detail == "ZeroDivisionError: bug"
    assert (facts.health["workloads/broken"].up, facts.health["workloads/fine"].up) == (False, True)
    assert fine.opened == [{"url": "x"}]


async def test_a_source_that_hangs_is_given_up_after_its_deadline() -> None:
    """It counts as down, in words."""
    facts = Facts(HandClock(), {"slow": (FakeSource(hangs=True), {})}, None)
    await beside(facts.run(), known(facts, "workloads/slow"))
    assert facts.health["workloads/slow"].detail == f"no answer within {facts_module.DEADLINE_S:g} s"


async def test_what_a_source_says_for_people_is_told_as_it_is() -> None:
    """An error with a hint keeps it."""
    facts = Facts(HandClock(), {"down": (FakeSource(fails=Unreachable("no server", "start it")), {})}, None)
    await beside(facts.run(), known(facts, "workloads/down"))
    assert facts.health["workloads/down"].detail == "no server (start it)"


async def test_old_facts_are_forgotten_and_readings_grow_older() -> None:
    """Unknown is better than old."""
    clock = HandClock()
    facts = Facts(clock, {"fine": (FakeSource(), {})}, (FakeMeter(), {}))

    async def both() -> None:
        await known(facts, "workloads/fine")
        await known(facts, "meter/fake")

    await beside(facts.run(), both())
    later_s = clock.now_s() + STALE_S
    assert facts.workloads(later_s)
    assert facts.node_power(later_s) == MeterReading(2400, 0.5 + STALE_S)
    assert facts.workloads(later_s + 0.1) == ()
    assert facts.node_power(later_s + 0.1) is None


async def test_a_meter_without_a_reading_is_unknown() -> None:
    """None, never 0 W."""
    clock = HandClock()
    facts = Facts(clock, {}, (FakeMeter(reading=None), {}))
    await beside(facts.run(), known(facts, "meter/fake"))
    assert facts.node_power(clock.now_s()) is None


async def test_a_node_without_sources_has_none() -> None:
    """Running without any is no error and no end."""
    facts = Facts(HandClock(), {}, None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await facts.run()
    assert (facts.workloads(0.0), facts.node_power(0.0), facts.health) == ((), None, {})
