"""The real link: one bidirectional gRPC stream, dialled out, with mutual TLS beyond this machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc

from rackpower.v1 import agent_pb2, agent_pb2_grpc
from rackpower_agent.link.base import LinkError, Session
from rackpower_common.address import parse_address, require_tls
from rackpower_common.model.messages import MESSAGE_LIMIT_BYTES, AgentMessage, ControllerMessage
from rackpower_common.tls import TlsFiles
from rackpower_common.wire.checks import WireError
from rackpower_common.wire.controller_messages import decode_controller_message
from rackpower_common.wire.encode_agent import encode_agent_message

BACKLOG_LIMIT = 64
"""Messages that wait for the transport at most; a full backlog holds the sender back."""

CLOSE_S = 1.0
"""How long sent messages get to leave at the end."""

OPTIONS = (
    ("grpc.max_send_message_length", MESSAGE_LIMIT_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_LIMIT_BYTES),
    # A half-open stream is noticed well inside a lease: 4 s of silence, 2 s for the answer.
    ("grpc.keepalive_time_ms", 4000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


class GrpcSession:
    """One stream to one controller."""

    def __init__(self, peer: str, channel: grpc.aio.Channel) -> None:
        self._peer = peer
        self._channel = channel
        self._backlog: asyncio.Queue[AgentMessage | None] = asyncio.Queue(BACKLOG_LIMIT)
        self._closed = False
        self._call = agent_pb2_grpc.AgentServiceStub(channel).Connect(self._requests())

    @property
    def peer(self) -> str:
        """Return the address that was dialled."""
        return self._peer

    async def _requests(self) -> AsyncIterator[agent_pb2.ConnectRequest]:
        while (message := await self._backlog.get()) is not None:
            yield encode_agent_message(message)

    async def send(self, message: AgentMessage) -> None:
        """Hand a message to the transport."""
        if self._closed or self._call.done():
            raise LinkError(f"the stream to {self._peer} is closed")
        await self._backlog.put(message)

    async def receive(self) -> ControllerMessage:
        """Return the next message; kinds from a newer controller are passed over."""
        while True:
            try:
                response = await self._call.read()
            except grpc.aio.AioRpcError as error:
                raise LinkError(describe(self._peer, error)) from error
            except asyncio.InvalidStateError as error:
                raise LinkError(f"the stream to {self._peer} is closed") from error
            if response is grpc.aio.EOF:
                raise LinkError(await self._ending())
            try:
                message = decode_controller_message(response)  # type: ignore[arg-type]
            except WireError as error:
                raise LinkError(f"{self._peer} sent what does not decode: {error}") from error
            if message is not None:
                return message

    async def _ending(self) -> str:
        code = await self._call.code()
        detail = await self._call.details()
        return f"{self._peer} ended the stream ({code.name.lower()}{f': {detail}' if detail else ''})"

    async def close(self) -> None:
        """End the stream in order."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(TimeoutError, grpc.aio.AioRpcError, asyncio.CancelledError):
            async with asyncio.timeout(CLOSE_S):
                await self._backlog.put(None)
                await self._call.code()
        self._call.cancel()
        await self._channel.close(None)


class GrpcLink:
    """Dials controllers.

    Args:
        tls: Our certificates; None only for controllers on this machine.
    """

    def __init__(self, tls: TlsFiles | None) -> None:
        self._tls = tls

    async def connect(self, address: str) -> Session:
        """Open a stream once the connection stands.

        Raises:
            LinkError: Nobody answers there, or the certificates do not match.
            AddressError: The address cannot be used, or would be plain beyond this machine.
            TlsError: Our own certificates cannot be used.
        """
        where = parse_address(address)
        secured = self._tls is not None and not where.path
        require_tls(where, secured=secured, what="the controller")
        if self._tls is not None and secured:
            channel = grpc.aio.secure_channel(where.target, self._tls.channel_credentials(), OPTIONS)
        else:
            channel = grpc.aio.insecure_channel(where.target, OPTIONS)
        try:
            await _until_ready(channel, address)
        except BaseException:
            await channel.close(None)
            raise
        return GrpcSession(address, channel)

    async def close(self) -> None:
        """Nothing is shared between streams."""


async def _until_ready(channel: grpc.aio.Channel, address: str) -> None:
    """Wait for the connection; a refusal is final, the caller backs off.

    Raises:
        LinkError: The first attempt failed.
    """
    state = channel.get_state(try_to_connect=True)
    while state is not grpc.ChannelConnectivity.READY:
        if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
            raise LinkError(f"cannot connect to {address}: {await _why(channel)}")
        await channel.wait_for_state_change(state)
        state = channel.get_state(try_to_connect=True)


async def _why(channel: grpc.aio.Channel) -> str:
    """Return gRPC's own words for a failed connection: only a call brings them."""
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/rackpower.v1.AgentService/Probe")
    try:
        await call(b"", timeout=1.0)
    except grpc.aio.AioRpcError as error:
        return plain_words(error.details() or error.code().name.lower())
    return "the connection failed"


def describe(peer: str, error: grpc.aio.AioRpcError) -> str:
    """Return a broken stream in words."""
    why = plain_words(error.details() or "no reason given")
    return f"the stream to {peer} broke ({error.code().name.lower()}): {why}"


def plain_words(details: str) -> str:
    """Return what gRPC says of a connection in words that tell a person what to look at."""
    lowered = details.lower()
    if "certificate" in lowered or "handshake" in lowered or "ssl" in lowered:
        return f"the certificates do not match, check tls.ca on both sides ({details})"
    if "connection refused" in lowered:
        return "nobody listens there (connection refused)"
    if "no such file" in lowered:
        return "there is no such socket"
    if "dns" in lowered or "name resolution" in lowered or "domain name not found" in lowered:
        return f"the name does not resolve ({details})"
    return details
