"""How the agent reaches a controller: a Protocol, so that the simulator can own the network.

The product's implementation speaks grpc.aio; the simulator's is an in-memory queue pair. Neither knows what
the messages mean.
"""

from __future__ import annotations

from typing import Protocol

from rackpower_common.errors import RackpowerError
from rackpower_common.model.messages import AgentMessage, ControllerMessage


class LinkError(RackpowerError):
    """The controller cannot be reached, or the stream broke.

    Args:
        message: Which address and what happened.
        hint: What to do about it.
    """


class Session(Protocol):
    """One stream to one controller. One task sends, another receives; both end with `LinkError`."""

    @property
    def peer(self) -> str:
        """Return the address that was dialled, for logs."""
        ...

    async def send(self, message: AgentMessage) -> None:
        """Hand a message to the transport; returns when it has taken it (back-pressure).

        Raises:
            LinkError: The stream is broken or closed, or the message is too large.
        """
        ...

    async def receive(self) -> ControllerMessage:
        """Return the next message.

        Raises:
            LinkError: The stream ended, broke, or brought what does not decode.
        """
        ...

    async def close(self) -> None:
        """End the stream in order, letting sent messages leave; never raises, may be called twice."""
        ...


class Link(Protocol):
    """Dials controllers."""

    async def connect(self, address: str) -> Session:
        """Open a stream. The caller sets the deadline by cancelling.

        Args:
            address: `host:port`, or `unix:/path`.

        Raises:
            LinkError: Nobody answers there, or the certificates do not match.
        """
        ...

    async def close(self) -> None:
        """Let go of every channel; never raises."""
        ...
