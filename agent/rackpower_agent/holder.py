"""The lease keeper with its hands: drivers, journal, log. Everything here happens in the order in which it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from rackpower_agent.background import Background
from rackpower_agent.devices.sampler import Sampler
from rackpower_agent.devices.worker import DeviceWorker, Sampled
from rackpower_agent.journal import Journal
from rackpower_agent.lease.events import (
    Action,
    Closing,
    Event,
    FormerWriterGone,
    JournalFailed,
    Journalled,
    Level,
    Note,
    ReadCap,
    ReportSoon,
    SaveJournal,
    Tell,
    Tick,
    WriteCap,
)
from rackpower_agent.lease.keeper import LeaseKeeper
from rackpower_agent.lease.memory import Memory
from rackpower_agent.lease.state import image_of
from rackpower_agent.lease.views import emergency_caps
from rackpower_common.clock import Clock
from rackpower_common.errors import InvariantError
from rackpower_common.model.identity import GpuId
from rackpower_common.model.messages import WriteError
from rackpower_common.tasks import beside

TICK_S: Final = 0.25
"""How often calls that take too long are looked for; a lease's end wakes earlier."""

READ_PERIOD_S: Final = 1.0
"""How often every cap is read back, so that an override is seen."""

SAVE_DEADLINE_S: Final = 1.0
"""A disk that takes longer has failed for now."""

CLOSE_S: Final = 1.5
"""How long the last save may take."""

EMERGENCY_S: Final = 2.0
"""How long the caps of a failed invariant get to reach the drivers."""

log = structlog.get_logger("rackpower.lease")


class LeaseHolder:
    """Keeps the leases of a node's GPUs.

    Args:
        workers: One a GPU.
        journal: Opened.
        memory: What the journal remembered.
        boot_id: Of this boot.
        clock: Time.
        sampler: Reads the GPUs' sensors.
    """

    def __init__(
        self,
        workers: dict[GpuId, DeviceWorker],
        journal: Journal,
        memory: Memory,
        boot_id: str,
        clock: Clock,
        sampler: Sampler,
    ) -> None:
        self._workers = workers
        self._journal = journal
        self._clock = clock
        self._sampler = sampler
        self._former_writer_alive = memory.former_writer_alive
        self._saver = Background("journal")
        self._to_save: SaveJournal | None = None
        self._save_due = asyncio.Event()
        self._broken: Exception | None = None
        self.keeper = LeaseKeeper([worker.device for worker in workers.values()], memory, boot_id, clock.now_s())
        self.tell: Callable[[WriteError], None] = _drop
        self.report_soon = asyncio.Event()
        self.kept = asyncio.Event()
        """Set at every tick: while it is, leases end in time. The watchdog is fed by nothing else."""

    @property
    def hung(self) -> frozenset[GpuId]:
        """Return the GPUs whose driver does not answer."""
        return frozenset(gpu for gpu, worker in self._workers.items() if worker.hung)

    def take_samples(self) -> dict[GpuId, Sampled]:
        """Return the newest sample of every GPU; highest draws count anew."""
        return {gpu: worker.take() for gpu, worker in self._workers.items()}

    def start(self) -> None:
        """Start the threads, journal what is remembered and read every cap."""
        for worker in self._workers.values():
            worker.start()
        self._sampler.start()
        self._carry_out(self.keeper.start(self._clock.now_s()))

    def handle(self, event: Event) -> None:
        """Tell the keeper what happened and do what it asks for."""
        if self._broken is not None:
            return
        try:
            self._carry_out(self.keeper.handle(event, self._clock.now_s()))
        except Exception as broken:  # noqa: BLE001 - a bug here leaves no cap above its fallback
            self.fail(broken)

    def fail(self, broken: Exception) -> None:
        """Take nothing in any more and lower every GPU to min(cap in force, fallback): a fact does not hold.

        `run` raises it once the drivers have had their time.
        """
        if self._broken is not None:
            return
        self._broken = broken
        caps_w = emergency_caps(self.keeper.state)
        bug = None if isinstance(broken, InvariantError) else broken
        log.critical("the leases cannot be kept, lowering", error=str(broken), caps_w=caps_w, exc_info=bug)
        for gpu, cap_w in caps_w.items():
            self._workers[gpu].write(cap_w, 0)

    async def run(self) -> None:
        """Keep time and the journal for ever.

        Raises:
            Exception: A fact of the safety argument does not hold, or a bug; every cap was lowered first.
        """
        await beside(self._save_what_is_due(), self._keep_time())

    async def _keep_time(self) -> None:
        read_due_s = 0.0
        while True:
            await asyncio.sleep(self._until_next_tick_s())
            now_s = self._clock.now_s()
            self._sampler.check(now_s)
            for worker in self._workers.values():
                for event in worker.check(now_s):
                    self.handle(event)
            self.handle(Tick())
            if self._broken is not None:
                await asyncio.sleep(EMERGENCY_S)
                raise self._broken
            if self._former_writer_alive and self._journal.try_lock():
                self._former_writer_alive = False
                self.handle(FormerWriterGone())
            if now_s >= read_due_s:
                read_due_s = now_s + READ_PERIOD_S
                for worker in self._workers.values():
                    worker.read()
            self.kept.set()

    def _until_next_tick_s(self) -> float:
        """Return seconds until the next lease ends, a tick at most."""
        grants = (gpu.grant for gpu in self.keeper.state.gpus.values())
        ends_s = [grant.deadline_s for grant in grants if grant is not None and not grant.expired]
        return min(TICK_S, max(0.0, min(ends_s, default=float("inf")) - self._clock.now_s()))

    async def close(self) -> None:
        """Put exact lease ends on the disk and end the threads; caps stay as they are. After `run` has ended."""
        self.handle(Closing())
        if self._broken is None:
            try:
                async with asyncio.timeout(CLOSE_S):  # in the saver's turn: after a save that is under way
                    await self._saver.call(self._journal.save, image_of(self.keeper.state))
            except (OSError, TimeoutError) as error:
                log.warning("the last lease ends are not in the journal", reason=_why(error, CLOSE_S))
        self._saver.stop()
        self._sampler.stop()
        for worker in self._workers.values():
            worker.stop()

    def _carry_out(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            match action:
                case WriteCap():
                    self._workers[action.gpu].write(action.cap_w, action.number)
                case ReadCap():
                    self._workers[action.gpu].read()
                case SaveJournal():
                    self._to_save = action  # the keeper asks for one at a time
                    self._save_due.set()
                case Tell():
                    self.tell(action.error)
                case ReportSoon():
                    self.report_soon.set()
                case Note():
                    _log(action)

    async def _save_what_is_due(self) -> None:
        while True:
            await self._save_due.wait()
            self._save_due.clear()
            action, self._to_save = self._to_save, None
            if action is not None:
                self.handle(await self._saved(action))

    async def _saved(self, action: SaveJournal) -> Journalled | JournalFailed:
        try:
            async with asyncio.timeout(SAVE_DEADLINE_S):
                await self._saver.call(self._journal.save, action.image)
        except (OSError, TimeoutError) as error:
            return JournalFailed(action.revision, _why(error, SAVE_DEADLINE_S))
        return Journalled(action.revision)


def _why(error: OSError, deadline_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"the disk took longer than {deadline_s:g} s"
    return error.strerror or str(error)


def _drop(error: WriteError) -> None:
    """Nobody is connected: the next report says it all."""


def _log(note: Note) -> None:
    say = {Level.INFO: log.info, Level.WARNING: log.warning, Level.ERROR: log.error}[note.level]
    if note.gpu is not None:
        say(note.message, reason=note.word, gpu=note.gpu)
    else:
        say(note.message, reason=note.word)
