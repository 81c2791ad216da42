"""The lease keeper with its hands: drivers, journal, log. Everything here happens in the order in which it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from rackpower_agent.devices.worker import DeviceWorker, Sampled
from rackpower_agent.journal import Journal
from rackpower_agent.lease.events import (
    Action,
    BatchReceived,
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
from rackpower_agent.lease.views import emergency_caps
from rackpower_common.clock import Clock
from rackpower_common.errors import InvariantError
from rackpower_common.model.identity import GpuId
from rackpower_common.model.messages import WriteError

TICK_S: Final = 0.25
"""How exactly a lease's end is kept."""

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
    """

    def __init__(
        self, workers: dict[GpuId, DeviceWorker], journal: Journal, memory: Memory, boot_id: str, clock: Clock
    ) -> None:
        self._workers = workers
        self._journal = journal
        self._clock = clock
        self._former_writer_alive = memory.former_writer_alive
        self._saver = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._saves: set[asyncio.Task[None]] = set()
        self._broken: InvariantError | None = None
        self.keeper = LeaseKeeper([worker.device for worker in workers.values()], memory, boot_id, clock.now_s())
        self.tell: Callable[[WriteError], None] = _drop
        self.report_soon = asyncio.Event()
        self.changed = asyncio.Event()

    @property
    def hung(self) -> frozenset[GpuId]:
        """Return the GPUs whose driver does not answer."""
        return frozenset(gpu for gpu, worker in self._workers.items() if worker.hung)

    def take_samples(self) -> dict[GpuId, Sampled]:
        """Return the newest sample of every GPU; highest draws count anew."""
        return {gpu: worker.take() for gpu, worker in self._workers.items()}

    def start(self) -> None:
        """Journal what is remembered and read every cap."""
        self._carry_out(self.keeper.start(self._clock.now_s()))

    def handle(self, event: Event) -> None:
        """Tell the keeper what happened and do what it asks for."""
        if self._broken is not None:
            return
        try:
            actions = self.keeper.handle(event, self._clock.now_s())
        except InvariantError as broken:
            self._broken = broken
            self._emergency(broken)
            return
        self._carry_out(actions)
        if isinstance(event, BatchReceived):
            self.changed.set()

    async def run(self) -> None:
        """Keep time for ever.

        Raises:
            InvariantError: A fact of the safety argument does not hold; every cap was lowered first.
        """
        read_due_s = 0.0
        while True:
            await asyncio.sleep(TICK_S)
            now_s = self._clock.now_s()
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
            self.changed.set()

    async def close(self) -> None:
        """Put exact lease ends on the disk; caps stay as they are."""
        self.handle(Closing())
        if self._saves:
            await asyncio.wait(self._saves, timeout=CLOSE_S)
        self._saver.shutdown(wait=False, cancel_futures=True)
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
                    task = asyncio.get_running_loop().create_task(self._save(action))
                    self._saves.add(task)
                    task.add_done_callback(self._saves.discard)
                case Tell():
                    self.tell(action.error)
                case ReportSoon():
                    self.report_soon.set()
                case Note():
                    _log(action)

    async def _save(self, action: SaveJournal) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(SAVE_DEADLINE_S):
                await loop.run_in_executor(self._saver, self._journal.save, action.image)
        except TimeoutError:
            self.handle(JournalFailed(action.revision, f"the disk took longer than {SAVE_DEADLINE_S:g} s"))
        except OSError as error:
            self.handle(JournalFailed(action.revision, error.strerror or str(error)))
        else:
            self.handle(Journalled(action.revision))

    def _emergency(self, broken: InvariantError) -> None:
        """Lower every GPU to min(cap in force, fallback): the one write that no grant asked for."""
        caps_w = emergency_caps(self.keeper.state)
        log.critical("a fact of the safety argument does not hold, lowering", error=str(broken), caps_w=caps_w)
        for gpu, cap_w in caps_w.items():
            self._workers[gpu].write(cap_w, 0)


def _drop(error: WriteError) -> None:
    """Nobody is connected: the next report says it all."""


def _log(note: Note) -> None:
    say = {Level.INFO: log.info, Level.WARNING: log.warning, Level.ERROR: log.error}[note.level]
    if note.gpu is not None:
        say(note.message, reason=note.word, gpu=note.gpu)
    else:
        say(note.message, reason=note.word)
