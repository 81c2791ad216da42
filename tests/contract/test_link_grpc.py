"""The agent's link: what it says when a controller cannot be reached, does not fit, or falls silent."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rackpower_agent.link.base import LinkError
from rackpower_agent.link.grpc_link import GrpcLink
from rackpower_common.address import Address
from rackpower_common.roles import Role
from rackpower_common.tls import TlsFiles
from rackpower_controller.core.facts import NodeLeft
from support.books import hello, report
from support.edge import edge
from support.pki import authority
from support.waiting import async_wait_until

pytestmark = pytest.mark.anyio

DIAL_S = 10.0


async def refused(address: str, tls: TlsFiles | None = None) -> str:
    """Return what the link says of an address that it cannot connect to."""
    link = GrpcLink(tls)
    with pytest.raises(LinkError) as caught:
        async with asyncio.timeout(DIAL_S):
            await link.connect(address)
    await link.close()
    return str(caught.value)


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_a_refused_connection_says_so_and_where() -> None:
    """Nobody listens: the words name address and cause."""
    address = f"127.0.0.1:{free_port()}"
    words = await refused(address)
    assert address in words
    assert "nobody listens there" in words


async def test_a_missing_socket_says_so(tmp_path: Path) -> None:
    """No controller on this machine."""
    assert "no such socket" in await refused(f"unix:{tmp_path}/agents.sock")


@pytest.mark.parametrize("address", ["controller", "host:", ":1", "host:99999", "unix:relative"])
async def test_an_address_that_cannot_be_one_is_told(address: str) -> None:
    """A typo in the configuration is a link error in words, which the agent reports and retries."""
    assert "is not an address" in await refused(address)


async def test_plain_text_beyond_this_machine_is_refused() -> None:
    """Without certificates the link dials nobody else's machine."""
    assert "plain text" in await refused("192.0.2.1:7443")


async def test_a_controller_of_another_authority_is_refused(tmp_path: Path) -> None:
    """The words speak of certificates and of what to check."""
    ours, theirs = authority(tmp_path / "ours"), authority(tmp_path / "theirs")
    async with edge(tls=theirs.issue("server", "127.0.0.1", role=Role.SERVER)) as running:
        words = await refused(running.agents, ours.issue("gpu-01", role=Role.AGENT))
        assert "certificates do not match" in words


async def test_a_controller_with_another_hosts_certificate_is_refused(tmp_path: Path) -> None:
    """A certificate for another address does not pass."""
    ca = authority(tmp_path)
    async with edge(tls=ca.issue("server", "192.0.2.9", role=Role.SERVER)) as running:
        assert "certificate" in await refused(running.agents, ca.issue("gpu-01", role=Role.AGENT))


async def test_our_certificate_of_another_authority_is_told(tmp_path: Path) -> None:
    """The controller does not take it: the stream breaks with a hint at the certificate."""
    ours, theirs = authority(tmp_path / "ours"), authority(tmp_path / "theirs")
    stranger = theirs.issue("gpu-01", role=Role.AGENT)
    mixed = TlsFiles(ours.ca, stranger.cert, stranger.key)
    async with edge(tls=ours.issue("server", "127.0.0.1", role=Role.SERVER)) as running:
        with pytest.raises(LinkError, match="certificate"):
            await _say_hello(running.agents, mixed)
        assert len(running.inbox) == 0


async def test_plain_text_to_a_controller_with_certificates_is_refused(tmp_path: Path) -> None:
    """An agent without certificates gets no stream."""
    ca = authority(tmp_path)
    async with edge(tls=ca.issue("server", "127.0.0.1", role=Role.SERVER)) as running:
        with pytest.raises(LinkError, match=running.agents):
            await _say_hello(running.agents, None)


async def _say_hello(address: str, tls: TlsFiles | None) -> None:
    link = GrpcLink(tls)
    async with asyncio.timeout(DIAL_S):
        session = await link.connect(address)
        try:
            await session.send(hello("gpu-01"))
            await session.receive()
        finally:
            await session.close()


@pytest.mark.parametrize("broken", ["missing", "no_pem", "another_key", "expired"])
async def test_certificates_that_cannot_be_used_are_told_by_their_path(tmp_path: Path, broken: str) -> None:
    """A missing file, one that is no PEM, a key of another certificate, one that ran out: each in words."""
    ca = authority(tmp_path)
    files = ca.issue("gpu-01", role=Role.AGENT)
    other = ca.issue("gpu-02", role=Role.AGENT)
    bad, words = {
        "missing": (replace(files, cert=tmp_path / "absent.pem"), "absent.pem"),
        "no_pem": (replace(files, cert=_file(tmp_path / "text.pem", "hello")), "is not a PEM file"),
        "another_key": (replace(files, key=other.key), "do not belong together"),
        "expired": (ca.issue("gpu-01", role=Role.AGENT, expired=True), "ran out on"),
    }[broken]
    assert words in await refused("127.0.0.1:1", bad)


def _file(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


async def test_renewed_certificates_are_used_without_a_restart(tmp_path: Path) -> None:
    """A server whose files are replaced serves with the new ones; a half-written file changes nothing."""
    ca = authority(tmp_path)
    served = ca.issue("server", "127.0.0.1", role=Role.SERVER)
    agent = ca.issue("gpu-01", role=Role.AGENT)
    async with edge(tls=served) as running:
        _file(served.cert, "half-")
        await _meet(running.agents, agent)
        assert ca.issue("server", "192.0.2.9", role=Role.SERVER) == served
        assert "certificate" in await refused(running.agents, agent)
        ca.issue("server", "127.0.0.1", role=Role.SERVER)
        await _meet(running.agents, agent)


async def _meet(address: str, tls: TlsFiles) -> None:
    link = GrpcLink(tls)
    async with asyncio.timeout(DIAL_S):
        session = await link.connect(address)
        await session.close()


async def test_a_closed_session_says_so_and_closes_twice() -> None:
    """After closing, sending is an error in words; closing again is nothing."""
    async with edge() as running:
        session = await GrpcLink(None).connect(running.agents)
        assert session.peer == running.agents
        await session.close()
        await session.close()
        with pytest.raises(LinkError, match="closed"):
            await session.send(report("gpu-01"))


async def test_a_message_that_cannot_be_sent_is_told_and_the_stream_goes_on() -> None:
    """A text that is no text fails its own send only."""
    async with edge() as running:
        session = await GrpcLink(None).connect(running.agents)
        with pytest.raises(LinkError, match="cannot be sent"):
            await session.send(replace(hello("gpu-01"), agent_version="\ud800"))
        await session.send(hello("gpu-01"))
        await async_wait_until(lambda: len(running.inbox) == 1, within_s=5, what="the hello")
        await session.close()


async def test_a_message_above_the_limit_is_refused_before_it_leaves() -> None:
    """One MiB is the limit on both sides."""
    said = hello("gpu-01")
    async with edge() as running:
        session = await GrpcLink(None).connect(running.agents)
        with pytest.raises(LinkError, match="bytes, at most"):
            await session.send(replace(said, features=("x" * 2000,) * 600))
        await session.close()


@dataclass
class Pipe:
    """A TCP forwarder that can fall silent like a dead switch: nothing passes, nothing is closed."""

    target: int
    listener: socket.socket
    sockets: list[socket.socket]
    frozen: bool = False

    @property
    def port(self) -> int:
        """Return where it listens."""
        return int(self.listener.getsockname()[1])

    async def serve(self) -> None:
        """Forward connections until cancelled."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                here, _ = await loop.sock_accept(self.listener)
                there = self.open()
                self.sockets.append(here)
                here.setblocking(False)
                await loop.sock_connect(there, ("127.0.0.1", self.target))
                group.create_task(self.copy(here, there))
                group.create_task(self.copy(there, here))

    def open(self) -> socket.socket:
        """Return a socket that is closed with the pipe."""
        made = socket.socket()
        made.setblocking(False)
        self.sockets.append(made)
        return made

    async def copy(self, source: socket.socket, to: socket.socket) -> None:
        """Forward one direction."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while data := await loop.sock_recv(source, 65536):
                if not self.frozen:
                    await loop.sock_sendall(to, data)


@asynccontextmanager
async def pipe(target: int) -> AsyncIterator[Pipe]:
    """Run a forwarder."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    made = Pipe(target, listener, [listener])
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(made.serve())
        try:
            yield made
        finally:
            serving.cancel()
    for one in made.sockets:
        one.close()


HALF_OPEN_S = 9.0
"""Below a lease of 15 s with room for dialling anew; keep-alives notice after 6 and 8 s."""


async def test_a_half_open_stream_dies_on_both_sides_within_a_lease() -> None:
    """A silent network is noticed by agent and controller without anybody sending."""
    loop = asyncio.get_running_loop()
    async with edge() as running:
        address = running.server.agent_address
        assert address is not None
        async with pipe(address.port) as between:
            session = await GrpcLink(None).connect(str(Address("127.0.0.1", between.port)))
            await session.send(hello("gpu-01"))
            await async_wait_until(lambda: len(running.inbox) == 1, within_s=5, what="the hello")
            running.inbox.drain()
            between.frozen = True
            began_s = loop.time()
            with pytest.raises(LinkError):
                async with asyncio.timeout(HALF_OPEN_S):
                    await session.receive()
            left_s = HALF_OPEN_S - (loop.time() - began_s)
            await async_wait_until(lambda: len(running.inbox) == 1, within_s=left_s, what="the controller to notice")
            assert isinstance(running.inbox.drain()[0], NodeLeft)
            await session.close()
