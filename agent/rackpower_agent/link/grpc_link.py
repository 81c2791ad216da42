"""The real link: one bidirectional gRPC stream, dialled out, with mutual TLS beyond this machine."""

from __future__ import annotations

import asyncio
import contextlib

import grpc
from google.protobuf.message import DecodeError

from rackpower.v1 import agent_pb2, agent_pb2_grpc
from rackpower_agent.link.base import LinkError, Session
from rackpower_common.address import AddressError, parse_address, require_tls
from rackpower_common.model.messages import MESSAGE_LIMIT_BYTES, AgentMessage, ControllerMessage
from rackpower_common.tls import TlsError, TlsFiles
from rackpower_common.wire.checks import WireError
from rackpower_common.wire.controller_messages import decode_controller_message
from rackpower_common.wire.encode_agent import encode_agent_message

Call = grpc.aio.StreamStreamCall[agent_pb2.ConnectRequest, agent_pb2.ConnectResponse]

NOT_TAKEN = "it may not take our certificate: check tls.ca on both sides"
"""TLS 1.3 tells a client only after its handshake that the server does not take its certificate: by closing."""

CLOSE_S = 1.0
"""How long sent messages get to leave at the end."""

OPTIONS = (
    ("grpc.max_send_message_length", MESSAGE_LIMIT_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_LIMIT_BYTES),
    # A half-open stream is noticed well inside a lease: 4 s of silence, 2 s for the answer.
    ("grpc.keepalive_time_ms", 4000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.ping_timeout_ms", 2000),  # this one decides in gRPC 1.85, and is 60 s unless told
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


class GrpcSession:
    """One stream to one controller."""

    def __init__(self, peer: str, channel: grpc.aio.Channel, *, secured: bool) -> None:
        self._peer = peer
        self._channel = channel
        self._secured = secured
        self._closed = False
        self._heard = False
        self._call: Call = agent_pb2_grpc.AgentServiceStub(channel).Connect()

    @property
    def peer(self) -> str:
        """Return the address that was dialled."""
        return self._peer

    async def send(self, message: AgentMessage) -> None:
        """Hand a message to the transport, which holds the sender back while the stream is full.

        Raises:
            LinkError: The stream is broken or closed, or the message cannot be sent.
        """
        try:
            request = encode_agent_message(message)
        except (WireError, ValueError, TypeError) as error:
            raise LinkError(f"a message for {self._peer} cannot be sent: {error}") from error
        if request.ByteSize() > MESSAGE_LIMIT_BYTES:
            words = f"{request.ByteSize():,} bytes, at most {MESSAGE_LIMIT_BYTES:,} are taken"
            raise LinkError(f"a message for {self._peer} has {words}")
        if self._closed:
            raise LinkError(f"the stream to {self._peer} is closed")
        try:
            await self._call.write(request)
        except grpc.aio.AioRpcError as error:
            raise LinkError(self._broken(error)) from error
        except asyncio.InvalidStateError as error:
            raise LinkError(await self._ending()) from error

    async def receive(self) -> ControllerMessage:
        """Return the next message; kinds from a newer controller are passed over.

        Raises:
            LinkError: The stream ended, broke, or brought what does not decode.
        """
        while True:
            try:
                response = await self._call.read()
            except grpc.aio.AioRpcError as error:
                raise LinkError(self._broken(error)) from error
            except asyncio.InvalidStateError as error:
                raise LinkError(f"the stream to {self._peer} is closed") from error
            except DecodeError as error:
                raise LinkError(f"{self._peer} sent what is no message of this protocol") from error
            if not isinstance(response, agent_pb2.ConnectResponse):
                raise LinkError(await self._ending())
            self._heard = True
            try:
                message = decode_controller_message(response)
            except WireError as error:
                raise LinkError(f"{self._peer} sent what does not decode: {error}") from error
            if message is not None:
                return message

    def _broken(self, error: grpc.aio.AioRpcError) -> str:
        words = describe(self._peer, error)
        refused = self._secured and not self._heard and error.code() is grpc.StatusCode.UNAVAILABLE
        return f"{words} ({NOT_TAKEN})" if refused else words

    async def _ending(self) -> str:
        try:
            async with asyncio.timeout(CLOSE_S):
                code, detail = await self._call.code(), await self._call.details()
        except TimeoutError:
            return f"the stream to {self._peer} ended"
        return f"{self._peer} ended the stream ({code.name.lower()}{f': {detail}' if detail else ''})"

    async def close(self) -> None:
        """End the stream in order, letting sent messages leave."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
            async with asyncio.timeout(CLOSE_S):
                await self._call.done_writing()
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
            LinkError: Nobody answers there, the certificates do not match or cannot be used, the address cannot be
                used, or it would be plain beyond this machine.
        """
        try:
            where = parse_address(address)
            secured = self._tls is not None and not where.path
            require_tls(where, secured=secured, what="the controller")
            credentials = self._tls.channel_credentials() if self._tls is not None and secured else None
        except (AddressError, TlsError) as error:
            raise LinkError(error.message, error.hint) from error
        if credentials is not None:
            channel = grpc.aio.secure_channel(where.target, credentials, OPTIONS)
        else:
            channel = grpc.aio.insecure_channel(where.target, OPTIONS)
        try:
            await _until_ready(channel, address, secured=credentials is not None)
        except BaseException:
            await channel.close(None)
            raise
        return GrpcSession(address, channel, secured=credentials is not None)

    async def close(self) -> None:
        """Nothing is shared between streams."""


async def _until_ready(channel: grpc.aio.Channel, address: str, *, secured: bool) -> None:
    """Wait for the connection; a refusal is final, the caller backs off.

    Raises:
        LinkError: The first attempt failed.
    """
    state = channel.get_state(try_to_connect=True)
    while state is not grpc.ChannelConnectivity.READY:
        if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
            why = await _why(channel)
            hint = NOT_TAKEN if secured and "closed" in why.lower() else ""
            raise LinkError(f"cannot connect to {address}: {why}", hint)
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
    if "hostname verification" in lowered:
        return f"its certificate is for another name or address than the one we dialled ({details})"
    if "certificate" in lowered or "handshake" in lowered or "ssl" in lowered:
        return f"the certificates do not match, check tls.ca on both sides ({details})"
    if "connection refused" in lowered:
        return "nobody listens there (connection refused)"
    if "no such file" in lowered:
        return "there is no such socket"
    if "dns" in lowered or "name resolution" in lowered or "domain name not found" in lowered:
        return f"the name does not resolve ({details})"
    return details
