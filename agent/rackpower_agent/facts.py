"""What is read beside the GPUs: workloads and the node's meter; one broken source never silences another."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from rackpower_agent.inference.base import WorkloadSource
from rackpower_agent.meters.base import MeterReading, NodeMeter
from rackpower_common.clock import Clock
from rackpower_common.errors import RackpowerError
from rackpower_common.model.device import Workload

READ_PERIOD_S: Final = 1.0
DEADLINE_S: Final = 2.0
RETRY_S: Final = 5.0
STALE_S: Final = 5.0
"""Older facts are forgotten: unknown is better than old."""

WORKLOADS_LIMIT: Final = 256

log = structlog.get_logger("rackpower.sources")


@dataclass(slots=True)
class SourceHealth:
    """How a source does, for metrics."""

    up: bool = False
    duration_s: float = 0.0
    failures: int = 0
    detail: str = "not read yet"


@dataclass(slots=True)
class Facts:
    """The newest facts beside the GPUs.

    Args:
        clock: Time.
        sources: Workload sources with their options, by name.
        meter: The node's meter with its options.
    """

    clock: Clock
    sources: Mapping[str, tuple[WorkloadSource, Mapping[str, str]]]
    meter: tuple[NodeMeter, Mapping[str, str]] | None
    health: dict[str, SourceHealth] = field(default_factory=dict)
    _workloads: dict[str, tuple[float, tuple[Workload, ...]]] = field(default_factory=dict)
    _reading: tuple[float, MeterReading] | None = None

    def workloads(self, now_s: float) -> tuple[Workload, ...]:
        """Return what runs, as far as it was read lately."""
        fresh = [workloads for at_s, workloads in self._workloads.values() if now_s - at_s <= STALE_S]
        return tuple(workload for workloads in fresh for workload in workloads)[:WORKLOADS_LIMIT]

    def node_power(self, now_s: float) -> MeterReading | None:
        """Return the node's draw with the age that it has now, None when it was not read lately."""
        if self._reading is None or now_s - self._reading[0] > STALE_S:
            return None
        at_s, reading = self._reading
        return replace(reading, age_s=reading.age_s + now_s - at_s)

    async def run(self) -> None:
        """Read everything for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.Event().wait())  # also without any source
            for name, (source, options) in self.sources.items():
                group.create_task(self._follow(f"workloads/{name}", source, options))
            if self.meter is not None:
                group.create_task(self._follow(f"meter/{self.meter[0].name}", *self.meter))

    async def _follow(self, name: str, source: WorkloadSource | NodeMeter, options: Mapping[str, str]) -> None:
        health = self.health.setdefault(name, SourceHealth())
        is_open = False
        while True:
            began_s = self.clock.now_s()
            try:
                async with asyncio.timeout(DEADLINE_S):
                    if not is_open:
                        await source.open(options)
                        is_open = True
                    await self._read(name, source)
            except Exception as error:  # noqa: BLE001 - one broken source never silences another
                late = isinstance(error, TimeoutError)
                words = f"no answer within {DEADLINE_S:g} s" if late else _words(error)
                if words != health.detail:
                    log.warning("a source does not answer", source=name, reason=words)
                health.up, health.detail, health.failures = False, words, health.failures + 1
                is_open = False
                await asyncio.sleep(RETRY_S)
                continue
            if not health.up:
                log.info("a source answers", source=name)
            health.up, health.detail, health.duration_s = True, "", self.clock.now_s() - began_s
            await asyncio.sleep(max(0.0, READ_PERIOD_S - health.duration_s))

    async def _read(self, name: str, source: WorkloadSource | NodeMeter) -> None:
        answer = await source.read()
        now_s = self.clock.now_s()
        if isinstance(answer, tuple):
            self._workloads[name] = (now_s, answer)
        else:
            self._reading = (now_s, answer) if answer is not None else None


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, RackpowerError) else f"{type(error).__name__}: {error}"
