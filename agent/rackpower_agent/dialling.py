"""The stream to a controller: dial, hello, reports out, grants in; when it breaks, the next one, never in step."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, TypeVar

import structlog

from rackpower_agent.backoff import backoff_s
from rackpower_agent.holder import LeaseHolder
from rackpower_agent.lease.events import BatchReceived, Reported, Welcomed
from rackpower_agent.link.base import Link, LinkError, Session
from rackpower_common.clock import Clock
from rackpower_common.errors import InvariantError, RackpowerError
from rackpower_common.model.identity import Term
from rackpower_common.model.messages import (
    AgentGoodbye,
    AgentMessage,
    ControllerGoodbye,
    GoodbyeReason,
    GrantBatch,
    Hello,
    Report,
    Welcome,
    WriteError,
)
from rackpower_common.tasks import beside

SOON_GAP_S: Final = 0.05
"""Reports are never closer than this."""

LONGEST_PERIOD_S: Final = 5.0
"""Whatever a controller asks for, a node tells at least so often how it is."""

TELLINGS_LIMIT: Final = 64
"""Write errors that wait at most; reports repeat what counts."""

LONGEST_PATIENCE_S: Final = 60.0
"""A controller cannot send an agent away for longer."""

DISPLACED_S: Final = 5.0
"""Two agents that replace each other do so no oftener than this."""

Value = TypeVar("Value")

log = structlog.get_logger("rackpower.link")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a controller may take, in seconds: to answer a dial, to welcome, to take a message, at the goodbye.

    A controller renews leases once a second: one that says nothing for `silence_s` is no longer there.
    """

    connect_s: float = 3.0
    welcome_s: float = 5.0
    silence_s: float = 5.0
    send_s: float = 3.0
    goodbye_s: float = 1.0


@dataclass(slots=True)
class Standing:
    """Where the agent stands with controllers, for the status line and metrics."""

    peer: str = ""
    term: Term | None = None
    connected_since_s: float | None = None
    connects: int = 0
    failures: int = 0
    reports: int = 0
    detail: str = "not connected yet"


class Dialler:
    """Keeps one stream to one of the controllers.

    Args:
        link: Dials.
        controllers: Addresses, tried in turn.
        holder: The leases.
        hello: Makes the first message.
        report: Makes a report with this sequence.
        clock: Time.
        random: For jitter.
        patience: How long controllers may take.
    """

    def __init__(
        self,
        link: Link,
        controllers: Sequence[str],
        holder: LeaseHolder,
        hello: Callable[[], Hello],
        report: Callable[[int], Report],
        clock: Clock,
        random: Random,
        patience: Patience = Patience(),
    ) -> None:
        self._link = link
        self._controllers = list(controllers)
        self._holder = holder
        self._hello = hello
        self._report = report
        self._clock = clock
        self._random = random
        self._patience = patience
        self._session: Session | None = None
        self._sending = asyncio.Lock()
        self._leaving = asyncio.Event()
        self._tellings: deque[WriteError] = deque(maxlen=TELLINGS_LIMIT)
        self.standing = Standing()
        holder.tell = self._tell

    def _tell(self, error: WriteError) -> None:
        self._tellings.append(error)
        self._holder.report_soon.set()

    async def run(self) -> None:
        """Be connected until told to leave."""
        turn, failures = self._random.randrange(len(self._controllers)), 0
        while not self._leaving.is_set():
            address = self._controllers[turn % len(self._controllers)]
            before = self.standing.reports
            wait_s, leader = 0.0, ""
            try:
                goodbye = await self._one_stream(address)
                self.standing.detail = f"{address} said {goodbye.reason.value}: {goodbye.detail}"
                wait_s, leader = _patience_s(goodbye), goodbye.leader
                log.warning("goodbye", peer=address, reason=goodbye.reason.value, detail=goodbye.detail)
            except InvariantError as broken:
                self._holder.fail(broken)
                return
            except RackpowerError as error:
                if self._leaving.is_set():
                    return
                if str(error) != self.standing.detail:
                    log.warning("not connected", peer=address, reason=str(error))
                self.standing.detail = str(error)
            self._left()
            failures = 1 if self.standing.reports > before else failures + 1
            self.standing.failures += 1
            turn = self._controllers.index(leader) if leader in self._controllers else turn + 1
            await asyncio.sleep(max(wait_s, backoff_s(failures, self._random)))

    def _left(self) -> None:
        self._session = None
        self.standing.peer, self.standing.connected_since_s = "", None

    async def _one_stream(self, address: str) -> ControllerGoodbye:
        """Serve one stream until the controller says goodbye.

        Raises:
            LinkError: It broke, or the controller fell silent.
        """
        session = await _within(self._patience.connect_s, self._link.connect(address), f"{address} does not answer")
        try:
            self._tellings.clear()  # of another stream's grants; the hello says what is held
            await self._send(session, self._hello(), f"{address} takes no hello")
            first = await _within(self._patience.welcome_s, session.receive(), f"{address} answers no hello")
            if isinstance(first, ControllerGoodbye):
                return first
            if not isinstance(first, Welcome):
                raise LinkError(f"{address} answered the hello with something else than a welcome")
            return await self._welcomed(session, first)
        finally:
            await session.close()

    async def _welcomed(self, session: Session, welcome: Welcome) -> ControllerGoodbye:
        self._session = session
        self.standing.peer, self.standing.term = session.peer, welcome.term
        self.standing.connected_since_s = self._clock.now_s()
        self.standing.connects += 1
        self.standing.detail = ""
        log.info("connected", peer=session.peer, term=str(welcome.term), period_s=welcome.report_period_s)
        self._holder.handle(Welcomed(welcome.term))
        return await beside(self._send_reports(session, welcome.report_period_s), self._listen(session))

    async def _listen(self, session: Session) -> ControllerGoodbye:
        silence_s = self._patience.silence_s
        while True:
            message = await _within(silence_s, session.receive(), f"{session.peer} says nothing for {silence_s:g} s")
            match message:
                case GrantBatch():
                    self._holder.handle(BatchReceived(message))
                case Welcome():
                    self.standing.term = message.term
                    self._holder.handle(Welcomed(message.term))
                case ControllerGoodbye():
                    return message

    async def _send_reports(self, session: Session, period_s: float) -> None:
        sequence, period_s = 0, min(period_s, LONGEST_PERIOD_S)
        while not self._leaving.is_set():
            due_s = self._clock.now_s() + period_s
            self._holder.report_soon.clear()
            while self._tellings:
                await self._send(session, self._tellings.popleft(), f"{session.peer} takes no messages")
            sequence += 1
            report = self._report(sequence)
            await self._send(session, report, f"{session.peer} takes no reports")
            self._holder.handle(Reported(report))
            self.standing.reports += 1
            await asyncio.sleep(SOON_GAP_S)
            try:
                async with asyncio.timeout(max(0.0, due_s - self._clock.now_s())):
                    await self._holder.report_soon.wait()
            except TimeoutError:
                continue

    async def _send(self, session: Session, message: AgentMessage, words: str) -> None:
        """Send in turn: a stream takes one message at a time."""
        async with self._sending:
            await _within(self._patience.send_s, session.send(message), words)

    async def say_goodbye(self, reason: str) -> None:
        """Tell the controller the caps that are left in force; never raises, never waits long. Dials no more."""
        self._leaving.set()
        session = self._session
        if session is None:
            return
        try:
            goodbye = AgentGoodbye(reason, self._holder.keeper.holdings(self._clock.now_s()))
            async with asyncio.timeout(self._patience.goodbye_s):
                await self._send(session, goodbye, f"{session.peer} takes no goodbye")
                await session.close()
        except (RackpowerError, TimeoutError) as error:
            log.info("no goodbye could be said", reason=str(error))


def _patience_s(goodbye: ControllerGoodbye) -> float:
    """Return how long to wait after a goodbye: no longer than any dial where another controller should be tried."""
    if goodbye.reason in (GoodbyeReason.FENCED, GoodbyeReason.NOT_LEADER):
        return 0.0
    asked_s = goodbye.retry_after_s if goodbye.retry_after_s > 0 else 0.0  # also when it is not a number
    if goodbye.reason is GoodbyeReason.REPLACED:
        return max(DISPLACED_S, min(asked_s, LONGEST_PATIENCE_S))
    return min(asked_s, LONGEST_PATIENCE_S)


async def _within(seconds: float, awaitable: Awaitable[Value], words: str) -> Value:
    try:
        async with asyncio.timeout(seconds):
            return await awaitable
    except TimeoutError:
        raise LinkError(words) from None
