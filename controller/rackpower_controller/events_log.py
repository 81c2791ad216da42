"""Events: kept in memory for who asks, written to the store beside the loop, told to who follows.

The loop never waits for the store here: a store that is down costs history, never a decision.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass

import structlog

from rackpower_common.clock import Clock
from rackpower_controller.core.decision import Event, Severity
from rackpower_controller.store.base import EventRecord, Store, StoreError

PAST_LIMIT = 1000
"""Events kept in memory."""

BACKLOG_LIMIT = 1000
"""Events that wait for the store at most; beyond, the oldest are dropped and counted."""

BATCH_LIMIT = 100
"""Events written in one call."""

FOLLOWER_BACKLOG_LIMIT = 256
"""Events that wait for a follower at most; beyond, it misses the oldest."""

REPEAT_S = 3.0
"""A condition that is told again within so many seconds is the same one, still going on."""

REMIND_S = 60.0
"""A condition that goes on is told again after so many seconds."""

RETRY_S = 2.0

_RANKS = {severity.value: rank for rank, severity in enumerate((Severity.INFO, Severity.WARNING, Severity.ERROR))}


@dataclass(slots=True)
class _Told:
    first_s: float
    last_s: float


class EventLog:
    """The events of this controller and of those before it.

    Args:
        store: Where history is kept.
        clock: For the time of events and for folding repeats.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._past: deque[EventRecord] = deque(maxlen=PAST_LIMIT)
        self._unwritten: deque[EventRecord] = deque()
        self._written = asyncio.Event()
        self._followers: set[asyncio.Queue[EventRecord]] = set()
        self._told: dict[tuple[str, ...], _Told] = {}
        self._last_id = (0, 0)
        self.dropped = 0
        self.counts: dict[tuple[str, str], int] = {}

    def add(self, events: Iterable[Event]) -> list[EventRecord]:
        """Take in events; returns those that are news, without repeats of a condition that goes on."""
        now_s = self._clock.now_s()
        news = [self._keep(event) for event in events if self._is_news(event, now_s)]
        self._forget_told(now_s)
        for record in news:
            for follower in self._followers:
                _put_newest(follower, record)
        return news

    def past(self, limit: int, at_least: Severity = Severity.INFO) -> list[EventRecord]:
        """Return the newest `limit` events at least this severe, oldest first."""
        chosen = [record for record in self._past if rank(record.severity) >= rank(at_least.value)]
        return chosen[-limit:] if limit > 0 else chosen

    async def follow(self, at_least: Severity = Severity.INFO) -> AsyncIterator[EventRecord]:
        """Yield every event from now on; one that reads too slowly misses the oldest."""
        with self._following() as queue:
            while True:
                record = await queue.get()
                if rank(record.severity) >= rank(at_least.value):
                    yield record

    async def recall(self) -> None:
        """Take the store's newest events in among ours, by time; nothing happens when the store fails."""
        with contextlib.suppress(StoreError):
            stored = await self._store.events(PAST_LIMIT)
            known = {record.id for record in self._past}
            both = [*self._past, *(record for record in stored if record.id not in known)]
            both.sort(key=lambda record: record.unix_s)  # stable: those of one instant keep their order
            self._past.clear()
            self._past.extend(both)

    async def write(self) -> None:
        """Write events to the store as they come, for ever; keeps trying while it fails."""
        while True:
            await self._written.wait()
            if not await self.flush():
                await asyncio.sleep(RETRY_S)

    async def flush(self) -> bool:
        """Write what waits; False when the store failed and something still waits."""
        while self._unwritten:
            batch = [self._unwritten[i] for i in range(min(BATCH_LIMIT, len(self._unwritten)))]
            try:
                await self._store.add_events(batch)
            except StoreError:
                return False
            for record in batch:
                # the backlog may have dropped some of them meanwhile
                if self._unwritten and self._unwritten[0] is record:
                    self._unwritten.popleft()
        self._written.clear()
        return True

    @contextlib.contextmanager
    def _following(self) -> Iterator[asyncio.Queue[EventRecord]]:
        queue: asyncio.Queue[EventRecord] = asyncio.Queue(FOLLOWER_BACKLOG_LIMIT)
        self._followers.add(queue)
        try:
            yield queue
        finally:
            self._followers.discard(queue)

    def _keep(self, event: Event) -> EventRecord:
        record = EventRecord(
            id=self._next_id(),
            unix_s=self._clock.unix_s(),
            severity=event.severity.value,
            reason=event.reason,
            message=event.message,
            node=event.node or "",
            gpu=event.gpu or "",
            domain=event.domain or "",
        )
        self._past.append(record)
        if len(self._unwritten) >= BACKLOG_LIMIT:
            self._unwritten.popleft()
            self.dropped += 1
        self._unwritten.append(record)
        self._written.set()
        key = (record.severity, record.reason)
        self.counts[key] = self.counts.get(key, 0) + 1
        _log(record)
        return record

    def _is_news(self, event: Event, now_s: float) -> bool:
        key = (event.severity.value, event.reason, event.node or "", event.gpu or "", event.domain or "")
        told = self._told.get(key)
        if event.severity is not Severity.INFO and told is not None:
            goes_on = now_s - told.last_s <= REPEAT_S
            told.last_s = now_s
            if goes_on and now_s - told.first_s < REMIND_S:
                return False
        self._told[key] = _Told(now_s, now_s)
        return True

    def _forget_told(self, now_s: float) -> None:
        old = [key for key, told in self._told.items() if now_s - told.last_s > REPEAT_S]
        for key in old:
            del self._told[key]

    def _next_id(self) -> str:
        """Return an id that sorts by time and never repeats, also when the wall clock steps back."""
        milliseconds = max(int(self._clock.unix_s() * 1000), self._last_id[0])
        number = self._last_id[1] + 1 if milliseconds == self._last_id[0] else 0
        self._last_id = (milliseconds, number)
        return f"{milliseconds}-{number}"


def rank(severity: str) -> int:
    """Return how severe a word is, from 0; an unknown word counts as the most severe."""
    return _RANKS.get(severity, len(_RANKS) - 1)


def _put_newest(queue: asyncio.Queue[EventRecord], record: EventRecord) -> None:
    if queue.full():
        queue.get_nowait()
    queue.put_nowait(record)


def _log(record: EventRecord) -> None:
    log = structlog.get_logger("rackpower.events")
    fields = {
        name: word for name, word in (("node", record.node), ("gpu", record.gpu), ("domain", record.domain)) if word
    }
    level = {"info": log.info, "warning": log.warning}.get(record.severity, log.error)
    level(record.message, reason=record.reason, **fields)
