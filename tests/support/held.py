"""A lease holder with fake GPUs, a journal in a folder and the real clock: the agent without link and process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rackpower_agent.devices.sampler import Sampler
from rackpower_agent.devices.worker import DeviceWorker
from rackpower_agent.holder import LeaseHolder
from rackpower_agent.journal import Journal
from rackpower_agent.lease.events import Event
from rackpower_agent.lease.memory import JournalImage, Memory
from rackpower_agent.reporting import build_hello, build_report
from rackpower_common.clock import BootClock, Clock
from rackpower_common.model.identity import GpuId, NodeName
from rackpower_common.model.messages import Hello, Report
from support.gpu_fake import FakeGpu, Gate

SAMPLING_NEVER_S = 3600.0


class SlowJournal(Journal):
    """A journal on a disk that the test can make slow or full; it remembers every image that reached the disk."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.saved: list[JournalImage] = []
        self.fails: OSError | None = None
        self.disk = Gate()

    def save(self, image: JournalImage) -> None:
        """Save, hang, or fail as told."""
        self.disk()
        if self.fails is not None:
            raise self.fails
        super().save(image)
        self.saved.append(image)


@dataclass
class Held:
    """A running holder and what it holds."""

    holder: LeaseHolder
    gpus: list[FakeGpu]
    journal: SlowJournal
    clock: Clock

    def hello(self) -> Hello:
        """Return the agent's first message."""
        devices = [gpu.device for gpu in self.gpus]
        return build_hello(
            self.holder.keeper, devices, complete=True, node=NodeName("gpu-01"), version="1", boot_id="boot-1",
            instance="i1", now_s=self.clock.now_s(),
        )  # fmt: skip

    def report(self, sequence: int) -> Report:
        """Return a report."""
        holder = self.holder
        return build_report(holder.keeper, holder.take_samples(), holder.hung, (), None, sequence, self.clock.now_s())


@asynccontextmanager
async def held(folder: Path, *gpus: FakeGpu, clock: Clock | None = None) -> AsyncIterator[Held]:
    """Hold GPUs; the test runs `holder.run()` itself where time matters. Threads end with it."""
    loop = asyncio.get_running_loop()
    journal = SlowJournal(folder)
    memory: Memory = journal.open()
    holders: list[LeaseHolder] = []

    def post(event: Event) -> None:
        loop.call_soon_threadsafe(lambda: holders[0].handle(event))

    clock = clock or BootClock()
    mine = list(gpus) or [FakeGpu()]
    workers = {GpuId(gpu.device.gpu): DeviceWorker(gpu, clock, post) for gpu in mine}
    sampler = Sampler(workers.values(), clock, SAMPLING_NEVER_S)
    holder = LeaseHolder(workers, journal, memory, "boot-1", clock, sampler)
    holders.append(holder)
    holder.start()
    try:
        yield Held(holder, mine, journal, clock)
    finally:
        for gpu in mine:
            gpu.writing.open()
            gpu.sampling.open()
        sampler.stop()
        for worker in workers.values():
            worker.stop()
            worker._thread.join(5.0)
        journal.close()
