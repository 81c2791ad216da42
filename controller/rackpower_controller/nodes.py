"""The agents' service: streams in, facts to the inbox, answers and grants back out. Decides nothing about watts.

accepted ──hello──► known to the core ──reports…──► ended: by either side, by silence, by a full queue
└─ no hello in time, not a hello, too old, wrong certificate: refused with words
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import grpc
import structlog
from google.protobuf.message import DecodeError

from rackpower.v1 import agent_pb2, agent_pb2_grpc
from rackpower_common.clock import Clock
from rackpower_common.errors import RackpowerError
from rackpower_common.model.identity import NodeName, StreamId
from rackpower_common.model.messages import (
    OLDEST_PROTOCOL_VERSION,
    PROTOCOL_VERSION,
    AgentGoodbye,
    ControllerGoodbye,
    ControllerMessage,
    GoodbyeReason,
    Hello,
    Report,
    WriteError,
)
from rackpower_common.wire.checks import WireError
from rackpower_common.wire.controller_messages import encode_controller_message
from rackpower_common.wire.decode_agent import decode_agent_message
from rackpower_common.wire.faults import Fault, Reason
from rackpower_controller.core.facts import NodeConnected, NodeLeft, NodeReported, WriteFailed
from rackpower_controller.inbox import Inbox
from rackpower_controller.peers import Caller, PeerError, caller_of

STREAMS_LIMIT: Final = 2048
"""Agents' streams at the same time."""

BACKLOG_LIMIT: Final = 64
"""Messages that wait for one stream. A full backlog ends the stream: a grant is never dropped silently."""

HELLO_DEADLINE_S: Final = 5.0
WRITE_DEADLINE_S: Final = 5.0
"""How long one message may take to leave before the agent counts as gone; looked at whenever there is more to send."""

SILENCE_S: Final = 30.0
"""A stream without any message for so long is ended, so that a stuck agent dials anew."""

REFUSED_RETRY_S: Final = 30.0
"""An agent that cannot be served as it is comes back after so long."""

Context = grpc.aio.ServicerContext[Any, Any]


class Lead(Protocol):
    """What the streams must know of the controller."""

    def leads(self) -> bool:
        """Whether this controller has a term: without one, agents are better off with another controller."""
        ...

    def leader(self) -> str:
        """Return the leader's address for agents, empty when it is not known."""
        ...


@dataclass(slots=True)
class Line:
    """One stream's way out; `changed` wakes the one that writes.

    A write is never cancelled: gRPC cannot end a stream in words while one is under way.
    """

    stream: StreamId
    caller: Caller
    node: NodeName
    outgoing: deque[ControllerMessage] = field(default_factory=deque)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    writing_since_s: float | None = None
    ended: bool = False
    fault: Fault | None = None
    goodbye: AgentGoodbye | None = None

    def end(self, fault: Fault | None) -> None:
        """End the stream after the write under way; the first reason stands."""
        if not self.ended:
            self.ended, self.fault = True, fault
        self.changed.set()


class _Ended(Exception):
    """A stream is over; the fault to end it with, None for an orderly end."""

    def __init__(self, fault: Fault | None = None) -> None:
        super().__init__(fault.details if fault is not None else "")
        self.fault = fault


class Nodes(agent_pb2_grpc.AgentServiceServicer):
    """Serves agents.

    Args:
        inbox: Where facts go.
        clock: For the times of facts.
        lead: What is known of our reign.
        hello_deadline_s: How long an agent may take to say hello, in seconds.
    """

    def __init__(self, inbox: Inbox, clock: Clock, lead: Lead, *, hello_deadline_s: float = HELLO_DEADLINE_S) -> None:
        self._inbox = inbox
        self._clock = clock
        self._lead = lead
        self._hello_deadline_s = hello_deadline_s
        self._numbers = itertools.count(1)
        self._lines: dict[StreamId, Line] = {}
        self._open = 0

    @property
    def streams(self) -> int:
        """Return how many streams have said hello."""
        return len(self._lines)

    def send(self, stream: StreamId, message: ControllerMessage) -> None:
        """Hand a message to a stream; never waits. A stream that is gone takes it silently.

        A stream whose backlog is full, or that takes no message for too long, is given up, and its agent dials anew:
        a grant is never dropped unseen, since a stream that ended is a fact.
        """
        line = self._lines.get(stream)
        if line is None:
            return
        stuck_s = self._clock.now_s() - line.writing_since_s if line.writing_since_s is not None else 0.0
        if len(line.outgoing) >= BACKLOG_LIMIT:
            words = f"{BACKLOG_LIMIT} messages wait for the agent, which does not read them"
            self._give_up(line, Fault(Reason.TOO_SLOW, words))
        elif stuck_s > WRITE_DEADLINE_S:
            self._give_up(line, Fault(Reason.TOO_SLOW, f"the agent took no message for {stuck_s:.0f} s"))
        else:
            line.outgoing.append(message)
            line.changed.set()

    def _give_up(self, line: Line, fault: Fault | None) -> None:
        """End a stream as far as the controller is concerned, now; the transport may take longer."""
        line.end(fault)
        if self._lines.pop(line.stream, None) is not None:
            self._inbox.put(NodeLeft(line.stream, line.node, line.goodbye, self._clock.now_s()))

    def end_all(self, goodbye: ControllerGoodbye) -> None:
        """Say goodbye on every stream: the agents keep their leases and try the other controllers."""
        if not goodbye.leader:
            goodbye = replace(goodbye, leader=self._lead.leader())
        for stream in list(self._lines):
            self.send(stream, goodbye)

    async def Connect(self, request_iterator: object, context: Context) -> None:  # type: ignore[override] # noqa: N802
        """Serve one stream until either side ends it."""
        del request_iterator
        self._open += 1
        fault: Fault | None
        try:
            fault = await self._serve(context)
        except _Ended as ended:
            fault = ended.fault
        finally:
            self._open -= 1
        if fault is not None:
            await context.abort(fault.status, fault.details, fault.trailing)

    async def _serve(self, context: Context) -> Fault | None:
        if not self._lead.leads():
            leader = self._lead.leader()
            where = f"; {leader} leads" if leader else ""
            return Fault(Reason.NO_TERM, f"this controller has no term and serves no agent{where}")
        if self._open > STREAMS_LIMIT:
            return Fault(Reason.TOO_MANY, f"{STREAMS_LIMIT} agents are connected already")
        hello = await self._hello(context)
        if isinstance(hello, ControllerGoodbye):
            _log().warning("refused an agent", peer=context.peer(), reason=hello.reason.value, detail=hello.detail)
            await _write(context, hello)
            return None
        stream = StreamId(next(self._numbers))
        line = Line(stream, caller_of(context.auth_context(), context.peer()), hello.node)
        said = NodeConnected(stream, line.caller.identity, line.caller.peer, hello, self._clock.now_s())
        self._lines[stream] = line
        if not self._inbox.put(said):
            del self._lines[stream]
            return Fault(Reason.TOO_MANY, "the controller has more to do than it can; try again")
        try:
            return await self._converse(context, line)
        finally:
            self._give_up(line, None)

    async def _hello(self, context: Context) -> Hello | ControllerGoodbye:
        """Return the stream's hello, or what to say instead of a welcome.

        Raises:
            _Ended: Nothing came.
        """
        try:
            async with asyncio.timeout(self._hello_deadline_s):
                request = await _read(context)
        except TimeoutError:
            words = f"no hello came within {self._hello_deadline_s:g} s"
            raise _Ended(Fault(Reason.HELLO_MISSING, words)) from None
        if request is None:
            raise _Ended
        if request.WhichOneof("message") != "hello":
            return _refusal("the first message of a stream must be a hello")
        version = request.hello.protocol_version
        if version < OLDEST_PROTOCOL_VERSION:
            detail = (
                f"the agent of {request.hello.node[:64]!r} speaks protocol {version}, this controller speaks "
                f"{OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION}: upgrade the agent"
            )
            return replace(_refusal(detail), reason=GoodbyeReason.PROTOCOL_TOO_OLD)
        try:
            hello = decode_agent_message(request)
            caller_of(context.auth_context(), context.peer()).may_speak_for(request.hello.node)
        except (WireError, PeerError) as error:
            return _refusal(str(error))
        if not isinstance(hello, Hello):
            return _refusal("the first message of a stream must be a hello")
        return hello

    async def _converse(self, context: Context, line: Line) -> Fault | None:
        """Carry messages both ways; the first side to end ends the other."""
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._listen(context, line))
            await self._speak(context, line)
            listening.cancel()
        if line.fault is not None:
            _log().warning("ended an agent's stream", node=line.node, peer=line.caller.peer, detail=line.fault.details)
        return line.fault

    async def _listen(self, context: Context, line: Line) -> None:
        try:
            while not line.ended:
                await self._take_in(context, line)
        except _Ended as ended:
            self._give_up(line, ended.fault)

    async def _take_in(self, context: Context, line: Line) -> None:
        """Turn the agent's next message into a fact.

        Raises:
            _Ended: The agent left, broke a rule, or said nothing for too long.
        """
        try:
            async with asyncio.timeout(SILENCE_S):
                request = await _read(context)
            message = decode_agent_message(request) if request is not None else None
        except TimeoutError:
            raise _Ended(Fault(Reason.SILENT, f"the agent said nothing for {SILENCE_S:g} s")) from None
        except WireError as error:
            raise _Ended(Fault(Reason.INVALID, str(error))) from error
        if request is None:
            raise _Ended
        now_s = self._clock.now_s()
        match message:
            case None:
                return  # a kind of a newer agent
            case Report():
                self._inbox.put(NodeReported(line.stream, line.node, message, now_s))
            case WriteError():
                self._inbox.put(WriteFailed(line.stream, line.node, message, now_s))
            case AgentGoodbye():
                line.goodbye = message
                raise _Ended
            case Hello():
                raise _Ended(Fault(Reason.INVALID, "a stream has one hello"))

    async def _speak(self, context: Context, line: Line) -> None:
        """Write what is to be sent until the stream is to end."""
        while not line.ended:
            if not line.outgoing:
                line.changed.clear()
                await line.changed.wait()
                continue
            message = line.outgoing.popleft()
            line.writing_since_s = self._clock.now_s()
            try:
                await _write(context, message)
            except _Ended as ended:
                self._give_up(line, ended.fault)
            line.writing_since_s = None
            if isinstance(message, ControllerGoodbye):
                self._give_up(line, None)


async def _read(context: Context) -> agent_pb2.ConnectRequest | None:
    """Return the next message, None when the agent will send no more.

    Raises:
        _Ended: What came is no message, or the stream broke.
    """
    try:
        request = await context.read()
    except DecodeError:
        raise _Ended(Fault(Reason.INVALID, "what came is no message of this protocol")) from None
    except (grpc.aio.UsageError, grpc.aio.InternalError, grpc.RpcError) as error:
        raise _Ended from error
    return None if request is grpc.aio.EOF else request


async def _write(context: Context, message: ControllerMessage) -> None:
    """Write one message.

    Raises:
        _Ended: It cannot be sent, or the stream broke.
    """
    try:
        encoded = encode_controller_message(message)
        await context.write(encoded)
    except (RackpowerError, ValueError) as error:
        _log().error("a message cannot be sent", error=str(error))
        raise _Ended(Fault(Reason.INTERNAL, "the controller made a message that cannot be sent")) from error
    except (grpc.aio.UsageError, grpc.aio.InternalError, grpc.RpcError) as error:
        raise _Ended from error


def _refusal(detail: str) -> ControllerGoodbye:
    return ControllerGoodbye(GoodbyeReason.INVALID_HELLO, detail, retry_after_s=REFUSED_RETRY_S)


def _log() -> structlog.stdlib.BoundLogger:
    logger: structlog.stdlib.BoundLogger = structlog.get_logger("rackpower.nodes")
    return logger
