"""The operators' service over real gRPC: what it answers, whom it refuses, and in which words."""

from __future__ import annotations

import socket
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from rackpower.v1 import operator_pb2, operator_pb2_grpc
from rackpower_common.address import Address, AddressError
from rackpower_common.model.identity import Revision
from rackpower_common.policy.problems import Problem
from rackpower_common.roles import Role
from rackpower_common.tls import TlsFiles
from rackpower_common.wire.faults import Reason, reason_of, words_of
from rackpower_controller.operator_api import service
from rackpower_controller.operator_api.base import DeskError, PolicyMoved, RevisionUnknown, StoreUnavailable, Verdict
from rackpower_controller.server import ServerError
from rackpower_controller.store.base import EventRecord, PolicyRecord, PolicyText, StoreError
from support.edge import Broken, Edge, edge, empty_source, socket_in
from support.pki import authority
from support.waiting import async_wait_until

pytestmark = pytest.mark.anyio
FILES = [operator_pb2.PolicyFile(name="policy.yaml", content=b"version: 1\n")]


@asynccontextmanager
async def operator(
    running: Edge, tls: TlsFiles | None = None
) -> AsyncIterator[operator_pb2_grpc.OperatorServiceAsyncStub]:
    """Connect to the first operators' place."""
    if tls is None:
        channel = grpc.aio.insecure_channel(running.operators)
    else:
        channel = grpc.aio.secure_channel(running.operators, tls.channel_credentials())
    async with channel:
        yield operator_pb2_grpc.OperatorServiceStub(channel)


def event(number: int) -> EventRecord:
    """Return an event."""
    return EventRecord(f"{number}-0", float(number), "warning", "override", f"event {number}", node="gpu-01")


async def test_status_is_answered_and_watched() -> None:
    """GetStatus gives the newest status, WatchStatus one after every tick."""
    async with edge() as running, operator(running) as ask:
        answer = await ask.GetStatus(operator_pb2.GetStatusRequest(), timeout=5)
        assert answer.status.store == "ok"
        assert [item.reason for item in answer.status.attention] == ["no_policy", "no_term"]
        call = ask.WatchStatus(operator_pb2.WatchStatusRequest(), timeout=10)
        answers = aiter(call)
        for _ in range(2):
            running.desk.ticks.put_nowait(empty_source())
            assert (await anext(answers)).status.unix_seconds == 1_700_000_000.0
        call.cancel()


async def test_a_policy_is_shown_checked_and_applied() -> None:
    """Files, problems and revisions pass both ways, and the author is recorded beside the way he came."""
    record = PolicyRecord(Revision("rev-1"), "alice", 5.0, (PolicyText("a.yaml", "version: 1\n"),))
    problem = Problem("policy.yaml", 3, 7, "too low", "raise it")
    async with edge() as running, operator(running) as ask:
        running.desk.records[""] = record
        shown = await ask.GetPolicy(operator_pb2.GetPolicyRequest(), timeout=5)
        assert (shown.policy.revision, shown.policy.files[0].content) == ("rev-1", b"version: 1\n")
        running.desk.verdict = Verdict((problem,), None)
        checked = await ask.CheckPolicy(operator_pb2.CheckPolicyRequest(files=FILES), timeout=5)
        assert (checked.problems[0].line, checked.problems[0].hint) == (3, "raise it")
        assert checked.problems[0].severity == operator_pb2.SEVERITY_ERROR
        running.desk.verdict = Verdict((), Revision("rev-2"))
        request = operator_pb2.ApplyPolicyRequest(files=FILES, author="bob", expected_revision="rev-1")
        applied = await ask.ApplyPolicy(request, timeout=5)
        assert (applied.applied, applied.revision) == (True, "rev-2")
        assert running.desk.applied == [([("policy.yaml", b"version: 1\n")], "bob (loopback)", "rev-1")]


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (RevisionUnknown("no revision abc"), grpc.StatusCode.NOT_FOUND, Reason.UNKNOWN_REVISION),
        (PolicyMoved("rev-9 is in force"), grpc.StatusCode.ABORTED, Reason.POLICY_MOVED),
        (StoreUnavailable("the store is down"), grpc.StatusCode.FAILED_PRECONDITION, Reason.STORE_UNAVAILABLE),
        (StoreError("the store is down"), grpc.StatusCode.FAILED_PRECONDITION, Reason.STORE_UNAVAILABLE),
        (DeskError("not now"), grpc.StatusCode.FAILED_PRECONDITION, Reason.NOT_NOW),
        (Broken("secret detail"), grpc.StatusCode.INTERNAL, Reason.INTERNAL),
        (KeyError("secret detail"), grpc.StatusCode.INTERNAL, Reason.INTERNAL),
    ],
)
async def test_every_error_has_a_status_a_stable_word_and_words(
    error: Exception, status: grpc.StatusCode, reason: Reason
) -> None:
    """What the desk raises reaches the client as the table says; what nobody foresaw stays in the log."""
    async with edge() as running, operator(running) as ask:
        running.desk.raises = error
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask.GetPolicy(operator_pb2.GetPolicyRequest(revision="abc"), timeout=5)
        assert (caught.value.code(), reason_of(caught.value)) == (status, reason)
        assert "secret" not in words_of(caught.value)
        if reason is not Reason.INTERNAL:
            assert words_of(caught.value) == str(error)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([], "no file"),
        ([*FILES, *FILES], "same name"),
        ([operator_pb2.PolicyFile(name="", content=b"")], "cannot be a file's name"),
        ([operator_pb2.PolicyFile(name=f"{n}.yaml") for n in range(300)], "300 files"),
    ],
)
async def test_impossible_policies_are_refused_before_the_desk(
    files: list[operator_pb2.PolicyFile], words: str
) -> None:
    """No file, two of a name, too many: INVALID_ARGUMENT, and nothing is applied."""
    async with edge() as running, operator(running) as ask:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask.ApplyPolicy(operator_pb2.ApplyPolicyRequest(files=files), timeout=5)
        assert (caught.value.code(), reason_of(caught.value)) == (grpc.StatusCode.INVALID_ARGUMENT, Reason.INVALID)
        assert words in words_of(caught.value)
        assert running.desk.applied == []


async def test_past_events_come_before_those_to_come_and_none_twice() -> None:
    """Following gives the past, what came meanwhile, then the new, each once; without it the stream ends."""
    async with edge() as running, operator(running) as ask:
        running.desk.past = [event(n) for n in range(1, 4)]
        ended = [answer.event.id async for answer in ask.ListEvents(operator_pb2.ListEventsRequest(limit=2), timeout=5)]
        assert ended == ["2-0", "3-0"]
        call = ask.ListEvents(operator_pb2.ListEventsRequest(follow=True), timeout=10)
        answers = aiter(call)
        got = [(await anext(answers)).event.id for _ in range(3)]
        await async_wait_until(lambda: running.desk.following == 1, within_s=5, what="the follower")
        running.desk.coming.put_nowait(event(4))
        got.append((await anext(answers)).event.id)
        assert got == ["1-0", "2-0", "3-0", "4-0"]
        call.cancel()
        await async_wait_until(lambda: running.desk.following == 0, within_s=5, what="the follower to leave")


async def test_too_many_streams_are_refused() -> None:
    """One stream more than the limit is RESOURCE_EXHAUSTED, and a place comes free when one ends."""
    async with edge() as running, operator(running) as ask:
        calls = [ask.WatchStatus(operator_pb2.WatchStatusRequest()) for _ in range(service.STREAMS_LIMIT)]
        full = service.STREAMS_LIMIT
        await async_wait_until(lambda: _streams(running) == full, within_s=10, what="the watchers")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask.WatchStatus(operator_pb2.WatchStatusRequest(), timeout=5).read()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for call in calls:
            call.cancel()
        await async_wait_until(lambda: _streams(running) == 0, within_s=5, what="the streams to end")


def _streams(running: Edge) -> int:
    return running.server._operators._streams


async def test_an_oversized_policy_is_refused_by_the_port() -> None:
    """More than 4 MiB never reaches the service."""
    big = [operator_pb2.PolicyFile(name="a.yaml", content=b"x" * (5 * 1024 * 1024))]
    async with edge() as running, operator(running) as ask:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask.CheckPolicy(operator_pb2.CheckPolicyRequest(files=big), timeout=5)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_an_operators_certificate_is_let_in_and_recorded(tmp_path: Path) -> None:
    """With mutual TLS the author is who the certificate proves, beside what is claimed."""
    ca = authority(tmp_path)
    async with (
        edge(tls=ca.issue("server", "127.0.0.1", role=Role.SERVER)) as running,
        operator(running, ca.issue("alice", role=Role.OPERATOR)) as ask,
    ):
        for author in ("", "alice", "bob"):
            await ask.ApplyPolicy(operator_pb2.ApplyPolicyRequest(files=FILES, author=author), timeout=5)
        assert [author for _, author, _ in running.desk.applied] == ["alice", "alice", "bob (certificate of alice)"]


@pytest.mark.parametrize("role", [Role.AGENT, Role.SERVER, None])
async def test_another_certificate_may_neither_look_nor_apply(tmp_path: Path, role: Role | None) -> None:
    """An agent's, a server's and a certificate without a unit of ours are refused on every question."""
    ca = authority(tmp_path)
    async with (
        edge(tls=ca.issue("server", "127.0.0.1", role=Role.SERVER)) as running,
        operator(running, ca.issue("gpu-01", role=role)) as ask,
    ):
        questions: list[Callable[[], object]] = [
            lambda: ask.GetStatus(operator_pb2.GetStatusRequest(), timeout=5),
            lambda: ask.GetPolicy(operator_pb2.GetPolicyRequest(), timeout=5),
            lambda: ask.CheckPolicy(operator_pb2.CheckPolicyRequest(files=FILES), timeout=5),
            lambda: ask.ApplyPolicy(operator_pb2.ApplyPolicyRequest(files=FILES), timeout=5),
            lambda: ask.WatchStatus(operator_pb2.WatchStatusRequest(), timeout=5).read(),
            lambda: ask.ListEvents(operator_pb2.ListEventsRequest(), timeout=5).read(),
        ]
        for question in questions:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await question()  # type: ignore[misc]
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
            assert reason_of(caught.value) is Reason.NOT_ALLOWED
            assert "rackctl pki issue operator" in words_of(caught.value)
        assert running.desk.applied == []


async def test_a_certificate_of_another_authority_gets_no_connection(tmp_path: Path) -> None:
    """The handshake fails; no question is asked."""
    ca, other = authority(tmp_path / "ours"), authority(tmp_path / "theirs")
    stranger = other.issue("alice", role=Role.OPERATOR)
    mixed = TlsFiles(ca.ca, stranger.cert, stranger.key)
    async with (
        edge(tls=ca.issue("server", "127.0.0.1", role=Role.SERVER)) as running,
        operator(running, mixed) as ask,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask.GetStatus(operator_pb2.GetStatusRequest(), timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_the_unix_socket_is_for_owner_and_group(tmp_path: Path) -> None:
    """The socket is 0660, serves beside TLS on the port, and is gone after the stop."""
    ca = authority(tmp_path / "ca")
    where = socket_in(tmp_path)
    async with edge(tls=ca.issue("server", "127.0.0.1"), operator_listen=(where,)) as running:
        assert _mode(where.path) == 0o660
        async with operator(running) as ask:
            request = operator_pb2.ApplyPolicyRequest(files=FILES, author="root")
            await ask.ApplyPolicy(request, timeout=5)
        assert running.desk.applied[0][1] == "root (unix socket)"
    assert _mode(where.path) is None


async def test_a_socket_left_behind_is_taken_over_and_a_living_one_is_not(tmp_path: Path) -> None:
    """A dead controller's socket is replaced; a second living controller is refused in words."""
    where = socket_in(tmp_path)
    _leave_a_socket(where.path)
    async with edge(operator_listen=(where,)) as running, operator(running) as ask:
        await ask.GetStatus(operator_pb2.GetStatusRequest(), timeout=5)
        with pytest.raises(ServerError, match="another process does"):
            async with edge(operator_listen=(where,)):
                pass
        await ask.GetStatus(operator_pb2.GetStatusRequest(), timeout=5)


async def test_a_file_in_the_sockets_place_is_left_alone(tmp_path: Path) -> None:
    """What is no socket is not removed."""
    place = tmp_path / "operator.sock"
    _write(place)
    with pytest.raises(ServerError, match="no socket"):
        async with edge(operator_listen=(Address(path=str(place)),)):
            pass
    assert _read(place) == "precious"


def _leave_a_socket(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(path)


def _write(path: Path) -> None:
    path.write_text("precious")


def _read(path: Path) -> str:
    return path.read_text()


def _mode(path: str) -> int | None:
    place = Path(path)
    return stat.S_IMODE(place.stat().st_mode) if place.exists() else None


async def test_a_port_in_use_is_told_in_words() -> None:
    """A second controller on the same port is refused, and the message says which port and how to find who."""
    async with edge() as running:
        assert running.server.agent_address is not None
        with pytest.raises(ServerError, match=r"the port is in use .*ss -ltnp"):
            async with edge(agent_listen=running.server.agent_address):
                pass


async def test_beyond_this_machine_plain_text_is_refused() -> None:
    """0.0.0.0 without certificates does not start."""
    with pytest.raises(AddressError, match="plain text"):
        async with edge(agent_listen=Address("0.0.0.0", 0)):
            pass
    with pytest.raises(AddressError, match="plain text"):
        async with edge(operator_listen=(Address("0.0.0.0", 0),)):
            pass


async def health_of(target: str, name: str = "") -> int:
    """Return what a health check hears."""
    async with grpc.aio.insecure_channel(target) as channel:
        check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/grpc.health.v1.Health/Check")
        answer = await check(health_pb2.HealthCheckRequest(service=name).SerializeToString(), timeout=5)
        return int(health_pb2.HealthCheckResponse.FromString(answer).status)


async def test_health_is_serving_only_when_told() -> None:
    """Both ports say NOT_SERVING until the controller has a term and a policy."""
    async with edge() as running:
        for target in (running.agents, running.operators):
            assert await health_of(target) == health_pb2.HealthCheckResponse.NOT_SERVING
        await running.server.set_serving(serving=True)
        for target, name in ((running.agents, "AgentService"), (running.operators, "OperatorService")):
            assert await health_of(target, f"rackpower.v1.{name}") == health_pb2.HealthCheckResponse.SERVING


async def reflected(target: str) -> set[str]:
    """Return the services that a port lists."""
    async with grpc.aio.insecure_channel(target) as channel:
        reflect: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        )
        request = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
        call = reflect(iter([request]), timeout=5)
        answer = await call.read()
        assert isinstance(answer, bytes)
        listed = reflection_pb2.ServerReflectionResponse.FromString(answer).list_services_response
        return {one.name for one in listed.service}


async def test_reflection_is_on_the_operators_port_only() -> None:
    """Tools can list the operators' service; the agents' port tells nothing."""
    async with edge() as running:
        assert "rackpower.v1.OperatorService" in await reflected(running.operators)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await reflected(running.agents)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
