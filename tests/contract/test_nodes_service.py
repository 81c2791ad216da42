"""The agents' service over real gRPC: the product's own link and raw bytes against the product's own server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from rackpower.v1 import agent_pb2
from rackpower_agent.link.base import LinkError, Session
from rackpower_agent.link.grpc_link import GrpcLink
from rackpower_common.model.identity import NodeName
from rackpower_common.model.messages import (
    AgentGoodbye,
    ControllerGoodbye,
    GoodbyeReason,
    Grant,
    GrantBatch,
    Hello,
    Renewal,
    Welcome,
    WriteError,
    WriteFailure,
)
from rackpower_common.roles import Role
from rackpower_common.tls import TlsFiles
from rackpower_common.wire.encode_agent import encode_agent_message
from rackpower_common.wire.faults import Reason, reason_of, words_of
from rackpower_controller import nodes as nodes_module
from rackpower_controller.core.facts import Fact, NodeConnected, NodeLeft, NodeReported, WriteFailed
from support.books import TERM, gpu_id, hello, report
from support.edge import Edge, edge
from support.pki import authority
from support.waiting import async_wait_until

pytestmark = pytest.mark.anyio
GPU = gpu_id("gpu-01", 0)


@asynccontextmanager
async def dialled(running: Edge, tls: TlsFiles | None = None) -> AsyncIterator[Session]:
    """Dial with the product's link."""
    link = GrpcLink(tls)
    session = await link.connect(running.agents)
    try:
        yield session
    finally:
        await session.close()
        await link.close()


async def facts(running: Edge, count: int) -> list[Fact]:
    """Wait for facts and take them."""
    await async_wait_until(lambda: len(running.inbox) >= count, within_s=5, what=f"{count} facts")
    return running.inbox.drain()


async def connected(running: Edge, session: Session, said: Hello | None = None) -> NodeConnected:
    """Say hello and return the fact that it made."""
    await session.send(said or hello("gpu-01"))
    (fact,) = await facts(running, 1)
    assert isinstance(fact, NodeConnected)
    return fact


async def test_everything_passes_both_ways() -> None:
    """Hello, report, write error and goodbye become facts; welcome, grants and renewals come back as they were."""
    welcome = Welcome(TERM, 1.0, "0.1.0")
    batch = GrantBatch(TERM, (Grant(GPU, 450, 300, 15.0, 7),), (Renewal(gpu_id("gpu-01", 1), 3, 15.0),))
    failed = WriteError(GPU, TERM, 7, 450, WriteFailure.CLAMPED, "clamped to 400 W", 400)
    async with edge() as running, dialled(running) as session:
        fact = await connected(running, session)
        assert fact.hello == hello("gpu-01")
        assert fact.identity == "127.0.0.1"
        assert fact.peer.startswith("127.0.0.1:")
        running.nodes.send(fact.stream, welcome)
        running.nodes.send(fact.stream, batch)
        assert [await session.receive(), await session.receive()] == [welcome, batch]
        said = report("gpu-01")
        await session.send(said)
        await session.send(failed)
        reported, error = await facts(running, 2)
        assert isinstance(reported, NodeReported)
        assert (reported.stream, reported.node, reported.report) == (fact.stream, "gpu-01", said)
        assert isinstance(error, WriteFailed)
        assert error.error == failed
        goodbye = AgentGoodbye("stopping", hello("gpu-01").holdings)
        await session.send(goodbye)
        (left,) = await facts(running, 1)
        assert isinstance(left, NodeLeft)
        assert (left.stream, left.goodbye) == (fact.stream, goodbye)
        with pytest.raises(LinkError, match="ended the stream"):
            await session.receive()


async def test_a_stream_that_just_ends_is_told_without_a_goodbye() -> None:
    """A closed stream makes a fact: silence is never mistaken for a farewell."""
    async with edge() as running:
        async with dialled(running) as session:
            fact = await connected(running, session)
        (left,) = await facts(running, 1)
        assert isinstance(left, NodeLeft)
        assert (left.stream, left.goodbye) == (fact.stream, None)
        assert running.nodes.streams == 0


async def refusal(session: Session) -> ControllerGoodbye:
    """Return the goodbye that a stream gets instead of a welcome, and see that it ends."""
    message = await session.receive()
    assert isinstance(message, ControllerGoodbye)
    with pytest.raises(LinkError, match="ended the stream"):
        await session.receive()
    return message


async def test_the_first_message_must_be_a_hello() -> None:
    """A report first is refused in words, and makes no fact."""
    async with edge() as running, dialled(running) as session:
        await session.send(report("gpu-01"))
        goodbye = await refusal(session)
        assert goodbye.reason is GoodbyeReason.INVALID_HELLO
        assert "must be a hello" in goodbye.detail
        assert len(running.inbox) == 0


async def test_a_protocol_too_old_is_refused_with_both_versions() -> None:
    """The agent's log names its version, ours, and what to do."""
    async with edge() as running, dialled(running) as session:
        await session.send(replace(hello("gpu-01"), protocol_version=0))
        goodbye = await refusal(session)
        assert goodbye.reason is GoodbyeReason.PROTOCOL_TOO_OLD
        assert "speaks protocol 0" in goodbye.detail
        assert "upgrade the agent" in goodbye.detail


async def test_a_newer_protocol_is_served() -> None:
    """Changes are additive: a newer agent is welcome."""
    async with edge() as running, dialled(running) as session:
        fact = await connected(running, session, replace(hello("gpu-01"), protocol_version=9))
        assert fact.hello.protocol_version == 9


async def test_a_hello_that_cannot_be_meant_is_refused_by_its_field() -> None:
    """A GPU listed twice is named."""
    said = hello("gpu-01", 1)
    async with edge() as running, dialled(running) as session:
        await session.send(replace(said, devices=said.devices * 2))
        goodbye = await refusal(session)
        assert goodbye.reason is GoodbyeReason.INVALID_HELLO
        assert "hello.devices" in goodbye.detail


async def test_no_hello_in_time_ends_the_stream() -> None:
    """A connection that says nothing does not stay."""
    async with edge(hello_deadline_s=0.2) as running, dialled(running) as session:
        with pytest.raises(LinkError, match=r"no hello came within 0\.2 s"):
            await session.receive()
        assert len(running.inbox) == 0


async def test_without_a_term_agents_are_sent_elsewhere() -> None:
    """A controller that does not lead says so, and who does."""
    async with edge() as running, dialled(running) as session:
        running.lead.leading, running.lead.address = False, "rack-2.example:7443"
        await session.send(hello("gpu-01"))
        with pytest.raises(LinkError, match=r"unavailable.*no term.*rack-2.example:7443 leads"):
            await session.receive()
        assert len(running.inbox) == 0


async def test_a_second_hello_ends_the_stream() -> None:
    """A stream is one identity: it cannot change in the middle."""
    async with edge() as running, dialled(running) as session:
        await connected(running, session)
        await session.send(hello("gpu-02"))
        with pytest.raises(LinkError, match="a stream has one hello"):
            await session.receive()


async def test_two_streams_of_one_node_are_told_apart() -> None:
    """Each has its own id; an answer to one never reaches the other, and a goodbye ends only its own."""
    async with edge() as running, dialled(running) as old, dialled(running) as new:
        first, second = await connected(running, old), await connected(running, new)
        assert first.stream != second.stream
        running.nodes.send(first.stream, ControllerGoodbye(GoodbyeReason.REPLACED, "connected again"))
        running.nodes.send(second.stream, Welcome(TERM, 1.0))
        assert (await refusal(old)).reason is GoodbyeReason.REPLACED
        assert isinstance(await new.receive(), Welcome)
        running.nodes.send(first.stream, Welcome(TERM, 1.0))
        await new.send(report("gpu-01"))
        left, reported = await facts(running, 2)
        assert isinstance(left, NodeLeft)
        assert left.stream == first.stream
        assert isinstance(reported, NodeReported)


async def test_a_full_backlog_ends_the_stream_and_drops_no_grant_unseen() -> None:
    """More messages at once than the backlog holds: the stream ends, and the controller learns it as a fact."""
    async with edge() as running, dialled(running) as session:
        fact = await connected(running, session)
        for _ in range(nodes_module.BACKLOG_LIMIT + 1):
            running.nodes.send(fact.stream, GrantBatch(TERM))
        (left,) = await facts(running, 1)
        assert isinstance(left, NodeLeft)
        with pytest.raises(LinkError, match="messages wait for the agent"):
            await to_the_end(session)


async def test_an_agent_that_does_not_read_is_given_up_and_others_are_served() -> None:
    """A stuck stream is a fact as soon as its backlog is full, whatever the transport still holds."""
    grants = tuple(Grant(gpu_id("gpu-01", place), 450, 300, 15.0, 7) for place in range(64))
    async with edge() as running, raw_stream(running) as stuck:
        await stuck.write(encode_agent_message(hello("gpu-01")).SerializeToString())
        (first,) = await facts(running, 1)
        assert isinstance(first, NodeConnected)

        def given_up() -> bool:
            for _ in range(nodes_module.BACKLOG_LIMIT // 4):
                running.nodes.send(first.stream, GrantBatch(TERM, grants))
            return len(running.inbox) > 0

        await async_wait_until(given_up, within_s=15, what="the stuck stream to be given up")
        (left,) = running.inbox.drain()
        assert isinstance(left, NodeLeft)
        assert left.stream == first.stream
        async with dialled(running) as other:
            second = await connected(running, other)
            running.nodes.send(second.stream, Welcome(TERM, 1.0))
            assert await other.receive() == Welcome(TERM, 1.0)


async def to_the_end(session: Session) -> None:
    """Receive until the stream ends."""
    while True:
        await session.receive()


async def test_a_leaving_controller_says_goodbye_to_all() -> None:
    """Every stream gets the goodbye with the leader's address, and ends."""
    async with edge() as running, dialled(running) as one, dialled(running) as two:
        await connected(running, one)
        await connected(running, two, hello("gpu-02"))
        running.lead.address = "rack-2.example:7443"
        running.nodes.end_all(ControllerGoodbye(GoodbyeReason.SHUTTING_DOWN, "the controller stops"))
        for session in (one, two):
            goodbye = await refusal(session)
            assert (goodbye.reason, goodbye.leader) == (GoodbyeReason.SHUTTING_DOWN, "rack-2.example:7443")


RawCall = grpc.aio.StreamStreamCall[bytes, bytes]


@asynccontextmanager
async def raw_stream(running: Edge) -> AsyncIterator[RawCall]:
    """Dial with bytes of our own making."""
    async with grpc.aio.insecure_channel(running.agents) as channel:
        connect: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
            "/rackpower.v1.AgentService/Connect"
        )
        call = connect(timeout=10)
        yield call
        call.cancel()


async def ending(call: RawCall) -> tuple[grpc.StatusCode, Reason | None, str]:
    """Return how a stream ended."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await drained(call)
    return caught.value.code(), reason_of(caught.value), words_of(caught.value)


async def drained(call: RawCall) -> None:
    """Read to the end."""
    while await call.read() is not grpc.aio.EOF:
        pass


GARBAGE = b"\xff\xff\xff\xff"


async def test_garbage_instead_of_a_hello_ends_the_stream() -> None:
    """Bytes that are no message are INVALID_ARGUMENT; the server goes on."""
    async with edge() as running:
        async with raw_stream(running) as call:
            await call.write(GARBAGE)
            code, reason, _ = await ending(call)
            assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, Reason.INVALID)
        async with dialled(running) as session:
            await connected(running, session)


async def test_garbage_after_a_hello_ends_the_stream_and_is_a_fact() -> None:
    """The node's stream is over, and the controller knows."""
    async with edge() as running, raw_stream(running) as call:
        await call.write(encode_agent_message(hello("gpu-01")).SerializeToString())
        await facts(running, 1)
        await call.write(GARBAGE)
        code, reason, _ = await ending(call)
        assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, Reason.INVALID)
        (left,) = await facts(running, 1)
        assert isinstance(left, NodeLeft)


async def test_a_report_that_cannot_be_meant_names_its_field() -> None:
    """A cap of half a watt is refused by name."""
    bad = agent_pb2.ConnectRequest(report=agent_pb2.Report(sequence=1, node_power_milliwatts=-5))
    async with edge() as running, raw_stream(running) as call:
        await call.write(encode_agent_message(hello("gpu-01")).SerializeToString())
        await call.write(bad.SerializeToString())
        code, reason, words = await ending(call)
        assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, Reason.INVALID)
        assert "node_power_milliwatts" in words


async def test_an_oversized_message_is_refused_by_the_port() -> None:
    """More than 1 MiB never reaches us, and the node's stream is over."""
    async with edge() as running, raw_stream(running) as call:
        await call.write(encode_agent_message(hello("gpu-01")).SerializeToString())
        await facts(running, 1)
        await call.write(b"x" * (2 << 20))
        code, _, _ = await ending(call)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        (left,) = await facts(running, 1)
        assert isinstance(left, NodeLeft)


async def test_a_kind_of_message_that_we_do_not_know_is_passed_over() -> None:
    """A newer agent may say more; the stream goes on."""
    unknown_field = b"\xa2\x06\x00"  # field 100, an empty message
    async with edge() as running, raw_stream(running) as call:
        await call.write(encode_agent_message(hello("gpu-01")).SerializeToString())
        await call.write(unknown_field)
        await call.write(encode_agent_message(report("gpu-01")).SerializeToString())
        said = await facts(running, 2)
        assert isinstance(said[1], NodeReported)


async def test_a_certificate_that_names_the_node_speaks_for_it(tmp_path: Path) -> None:
    """The identity is the certificate's name: it stays the same when the node dials anew."""
    ca = authority(tmp_path)
    async with (
        edge(tls=ca.issue("server", "127.0.0.1", role=Role.SERVER)) as running,
        dialled(running, ca.issue("gpu-01", role=Role.AGENT)) as session,
    ):
        assert (await connected(running, session)).identity == "gpu-01"


@pytest.mark.parametrize(
    ("name", "role", "words"),
    [
        ("gpu-02", Role.AGENT, "the certificate is of gpu-02, the agent says that it is gpu-01"),
        ("gpu-01", Role.OPERATOR, "is not an agent's"),
        ("gpu-01", Role.SERVER, "is not an agent's"),
    ],
)
async def test_another_certificate_does_not_speak_for_a_node(tmp_path: Path, name: str, role: Role, words: str) -> None:
    """A wrong name, and an operator's or server's certificate with the right one, are refused in words."""
    ca = authority(tmp_path)
    async with (
        edge(tls=ca.issue("server", "127.0.0.1", role=Role.SERVER)) as running,
        dialled(running, ca.issue(name, role=role)) as session,
    ):
        await session.send(hello("gpu-01"))
        goodbye = await refusal(session)
        assert goodbye.reason is GoodbyeReason.INVALID_HELLO
        assert words in goodbye.detail
        assert len(running.inbox) == 0


def test_a_node_name_is_what_facts_carry() -> None:
    """The builders' hello names the node that the tests ask for."""
    assert hello("gpu-01").node == NodeName("gpu-01")
