"""The controller's edge with nobody behind it: real servers, a lead and a desk that tests hold in their hands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rackpower_common.address import Address
from rackpower_common.clock import BootClock
from rackpower_common.errors import RackpowerError
from rackpower_common.model.identity import Revision
from rackpower_common.tls import TlsFiles
from rackpower_controller.core.decision import Severity
from rackpower_controller.core.state import RackState
from rackpower_controller.durations import Durations
from rackpower_controller.inbox import Inbox
from rackpower_controller.nodes import HELLO_DEADLINE_S, Nodes
from rackpower_controller.operator_api.base import Applied, PolicyFiles, StatusSource, Verdict
from rackpower_controller.operator_api.service import OperatorService
from rackpower_controller.server import Server
from rackpower_controller.store.base import EventRecord, PolicyRecord

LOOPBACK = Address("127.0.0.1", 0)


@dataclass
class FakeLead:
    """A standing that tests set."""

    leading: bool = True
    address: str = ""

    def leads(self) -> bool:
        """Return what was set."""
        return self.leading

    def leader(self) -> str:
        """Return what was set."""
        return self.address


@dataclass
class FakeDesk:
    """A desk with a memory: answers what it was given, raises what it was told to."""

    sources: list[StatusSource] = field(default_factory=list)
    records: dict[str, PolicyRecord] = field(default_factory=dict)
    verdict: Verdict = Verdict((), Revision("rev-2"))
    raises: Exception | None = None
    past: list[EventRecord] = field(default_factory=list)
    coming: asyncio.Queue[EventRecord] = field(default_factory=asyncio.Queue)
    ticks: asyncio.Queue[StatusSource] = field(default_factory=asyncio.Queue)
    applied: list[tuple[list[tuple[str, bytes]], str, str | None]] = field(default_factory=list)
    following: int = 0

    def status(self) -> StatusSource:
        """Return the newest source, an empty rack's without any."""
        if self.raises is not None:
            raise self.raises
        return self.sources[-1] if self.sources else empty_source()

    async def watch(self) -> AsyncIterator[StatusSource]:
        """Yield what tests put into `ticks`."""
        while True:
            yield await self.ticks.get()

    async def policy(self, revision: Revision | None) -> PolicyRecord:
        """Return a record."""
        if self.raises is not None:
            raise self.raises
        return self.records[revision or ""]

    async def check(self, files: PolicyFiles) -> Verdict:
        """Return the verdict."""
        if self.raises is not None:
            raise self.raises
        return self.verdict

    async def apply(self, files: PolicyFiles, author: str, expected: Revision | None) -> Applied:
        """Remember what was applied by whom."""
        if self.raises is not None:
            raise self.raises
        self.applied.append((list(files), author, expected))
        return Applied(True, self.verdict.problems, self.verdict.revision)

    def past_events(self, limit: int, at_least: Severity) -> list[EventRecord]:
        """Return the newest."""
        return self.past[-limit:]

    async def follow_events(self, at_least: Severity) -> AsyncIterator[EventRecord]:
        """Yield what tests put into `coming`."""
        self.following += 1
        try:
            while True:
                yield await self.coming.get()
        finally:
            self.following -= 1


def empty_source() -> StatusSource:
    """Return the source of a controller that has nothing yet."""
    return StatusSource(1.0, 1_700_000_000.0, RackState(), None, None, None, Durations(), Durations())


@dataclass
class Edge:
    """Running servers and what they put into the inbox."""

    inbox: Inbox
    nodes: Nodes
    desk: FakeDesk
    lead: FakeLead
    server: Server

    @property
    def agents(self) -> str:
        """Return where agents dial."""
        assert self.server.agent_address is not None
        return str(self.server.agent_address)

    @property
    def operators(self) -> str:
        """Return the first place where operators ask."""
        return str(self.server.operator_addresses[0])


@asynccontextmanager
async def edge(
    *,
    tls: TlsFiles | None = None,
    agent_listen: Address = LOOPBACK,
    operator_listen: Sequence[Address] = (LOOPBACK,),
    hello_deadline_s: float = HELLO_DEADLINE_S,
) -> AsyncIterator[Edge]:
    """Run the servers on free ports."""
    inbox, desk, lead = Inbox(), FakeDesk(), FakeLead()
    nodes = Nodes(inbox, BootClock(), lead, hello_deadline_s=hello_deadline_s)
    server = Server(nodes, OperatorService(desk), agent_listen=agent_listen, operator_listen=operator_listen, tls=tls)
    await server.start()
    try:
        yield Edge(inbox, nodes, desk, lead, server)
    finally:
        await server.stop(0.2)


def socket_in(folder: Path) -> Address:
    """Return a unix socket in a folder."""
    return Address(path=str(folder / "operator.sock"))


class Broken(RackpowerError):
    """An error that nobody foresaw."""
