"""A link in memory: controllers that the test plays, with a memory of what agents said."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TypeVar

from rackpower_agent.link.base import LinkError, Session
from rackpower_common.model.identity import Term
from rackpower_common.model.messages import AgentMessage, ControllerMessage, Hello, Welcome

PATIENCE_S = 10.0
"""Only a failing test waits so long."""

Kind = TypeVar("Kind", bound=AgentMessage)


@dataclass
class FakeSession:
    """One stream: `said` is all that the agent sent, `tell` gives it something to receive."""

    peer: str
    said: asyncio.Queue[AgentMessage] = field(default_factory=asyncio.Queue)
    heard: asyncio.Queue[ControllerMessage | None] = field(default_factory=asyncio.Queue)
    taking: asyncio.Event = field(default_factory=asyncio.Event)
    under_way: int = 0
    closed: bool = False

    def __post_init__(self) -> None:
        """Take messages until told otherwise."""
        self.taking.set()

    async def send(self, message: AgentMessage) -> None:
        """Take a message, unless held back or closed; two at a time are a mistake of the sender."""
        assert not self.under_way, "a second message while one is being sent"
        self.under_way += 1
        try:
            await self.taking.wait()
        finally:
            self.under_way -= 1
        if self.closed:
            raise LinkError(f"the stream to {self.peer} is closed")
        self.said.put_nowait(message)

    async def receive(self) -> ControllerMessage:
        """Return the test's next message."""
        message = None if self.closed else await self.heard.get()
        if message is None:
            raise LinkError(f"the stream to {self.peer} broke")
        return message

    async def close(self) -> None:
        """End the stream."""
        self.breaks()

    def tell(self, *messages: ControllerMessage) -> None:
        """Let the agent receive messages."""
        for message in messages:
            self.heard.put_nowait(message)

    def breaks(self) -> None:
        """Break the stream."""
        self.closed = True
        self.heard.put_nowait(None)

    async def next(self, kind: type[Kind]) -> Kind:
        """Return the agent's next message of a kind; others before it are passed over."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                message = await self.said.get()
                if isinstance(message, kind):
                    return message

    async def welcome(self, term: Term, period_s: float = 60.0) -> Hello:
        """Take the hello and answer it."""
        hello = await self.next(Hello)
        self.tell(Welcome(term, period_s))
        return hello


class FakeLink:
    """Dials controllers that always answer, but for those in `dead`."""

    def __init__(self, *dead: str) -> None:
        self.dead = set(dead)
        self.dialled: list[str] = []
        self._sessions: asyncio.Queue[FakeSession] = asyncio.Queue()
        self.closed = False

    async def connect(self, address: str) -> Session:
        """Open a stream."""
        self.dialled.append(address)
        if address in self.dead:
            raise LinkError(f"cannot connect to {address}: nobody listens there")
        session = FakeSession(address)
        self._sessions.put_nowait(session)
        return session

    async def close(self) -> None:
        """Remember it."""
        self.closed = True

    async def dial(self) -> FakeSession:
        """Return the next stream that the agent opens."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._sessions.get()
