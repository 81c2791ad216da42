"""The gRPC servers: one port for agents, any number of places for operators. Listening, limits, health, reflection."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from rackpower.v1 import agent_pb2_grpc, operator_pb2, operator_pb2_grpc
from rackpower_common.address import Address, require_tls
from rackpower_common.errors import RackpowerError
from rackpower_common.model.messages import MESSAGE_LIMIT_BYTES
from rackpower_common.tls import TlsFiles
from rackpower_controller.nodes import STREAMS_LIMIT, Nodes
from rackpower_controller.operator_api.service import OperatorService

AGENT_SERVICE: Final = "rackpower.v1.AgentService"
OPERATOR_SERVICE: Final = operator_pb2.DESCRIPTOR.services_by_name["OperatorService"].full_name

OPERATOR_MESSAGE_LIMIT_BYTES: Final = 4 * 1024 * 1024
"""Largest question of an operator: a policy's files."""

OPERATOR_CALLS_LIMIT: Final = 256
"""Operators' calls at the same time."""

SOCKET_MASK: Final = 0o117
"""Leaves a unix socket mode 0660: its owner and its group may talk."""

STOP_S: Final = 2.0
"""How long goodbyes and answers get to leave at the end."""

_COMMON_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),  # or a second controller would share the port instead of being refused
    # A half-open stream is noticed in 8 s, inside a lease; agents may ping as often as they do.
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.keepalive_timeout_ms", 3000),
    ("grpc.http2.ping_timeout_ms", 3000),  # this one decides in gRPC 1.85, and is 60 s unless told
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ("grpc.http2.max_ping_strikes", 5),
)


class ServerError(RackpowerError):
    """The server cannot listen where it should."""


class Server:
    """Serves agents and operators until stopped.

    Args:
        nodes: The agents' service.
        operators: The operators' service.
        agent_listen: Where agents dial.
        operator_listen: Where operators ask; unix sockets get mode 0660.
        tls: Our certificates; None only where everything is on this machine.
    """

    def __init__(
        self,
        nodes: Nodes,
        operators: OperatorService,
        *,
        agent_listen: Address,
        operator_listen: Sequence[Address],
        tls: TlsFiles | None,
    ) -> None:
        self._nodes = nodes
        self._operators = operators
        self._agent_listen = agent_listen
        self._operator_listen = tuple(operator_listen)
        self._tls = tls
        self._health = health.aio.HealthServicer()
        self._servers: list[grpc.aio.Server] = []
        self.agent_address: Address | None = None
        """Where agents dial, with the port that was found for port 0; None before the start."""
        self.operator_addresses: tuple[Address, ...] = ()

    async def start(self) -> None:
        """Listen; NOT_SERVING until told otherwise.

        Raises:
            ServerError: An address is in use or cannot be listened on.
            AddressError: An address beyond this machine would be plain.
            TlsError: The certificates cannot be used.
        """
        try:
            await self.set_serving(serving=False)
            agents = self._new(MESSAGE_LIMIT_BYTES, STREAMS_LIMIT + OPERATOR_CALLS_LIMIT)
            agent_pb2_grpc.add_AgentServiceServicer_to_server(self._nodes, agents)
            self.agent_address = self._listen(agents, self._agent_listen, "the agents' port")
            operators = self._new(OPERATOR_MESSAGE_LIMIT_BYTES, OPERATOR_CALLS_LIMIT)
            operator_pb2_grpc.add_OperatorServiceServicer_to_server(self._operators, operators)
            reflection.enable_server_reflection(
                (OPERATOR_SERVICE, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME),
                operators,
            )
            self.operator_addresses = tuple(
                self._listen(operators, address, "the operators' port") for address in self._operator_listen
            )
            for server in self._servers:
                await server.start()
        except BaseException:
            await self.stop(0.0)
            raise

    async def set_serving(self, *, serving: bool) -> None:
        """Tell health checks whether we have a term and a policy."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in ("", AGENT_SERVICE, OPERATOR_SERVICE):
            await self._health.set(service, status)

    async def stop(self, grace_s: float = STOP_S) -> None:
        """Stop listening at once and end what runs after `grace_s` seconds; remove our sockets. Never raises."""
        for server in self._servers:
            with contextlib.suppress(Exception):
                await server.stop(grace_s)
        self._servers.clear()
        _remove_sockets(self.operator_addresses)
        self.operator_addresses = ()

    def _new(self, message_limit_bytes: int, calls: int) -> grpc.aio.Server:
        options = (*_COMMON_OPTIONS, ("grpc.max_receive_message_length", message_limit_bytes))
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=calls)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        self._servers.append(server)
        return server

    def _listen(self, server: grpc.aio.Server, address: Address, what: str) -> Address:
        secured = self._tls is not None and not address.path
        require_tls(address, secured=secured, what=what)
        if address.path:
            return _listen_on_socket(server, address)
        try:
            if self._tls is not None:
                port = server.add_secure_port(address.target, self._tls.server_credentials())
            else:
                port = server.add_insecure_port(address.target)
        except RuntimeError as error:
            raise ServerError(f"cannot listen on {address}: {why_not(address) or error}", _hint(address)) from error
        return Address(host=address.host, port=port)


def _remove_sockets(addresses: Sequence[Address]) -> None:
    for address in addresses:
        if address.path:
            Path(address.path).unlink(missing_ok=True)


def _listen_on_socket(server: grpc.aio.Server, address: Address) -> Address:
    path = Path(address.path)
    _remove_stale(path)
    with _mask(SOCKET_MASK):
        try:
            server.add_insecure_port(address.target)
        except RuntimeError as error:
            folder = "" if path.parent.is_dir() else f": there is no folder {path.parent}"
            hint = "make the folder, or see that we may write there"
            raise ServerError(f"cannot listen on {address}{folder}", hint) from error
    return address


def _remove_stale(path: Path) -> None:
    """Remove a socket that nobody listens on any more.

    Raises:
        ServerError: Somebody listens, or the path is something else than a socket.
    """
    try:
        kind = path.lstat().st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(kind):
        raise ServerError(f"cannot listen on unix:{path}: it is there and no socket", "remove it, or take another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise ServerError(f"cannot listen on unix:{path}: another process does", "stop it, or take another path")


def why_not(address: Address) -> str:
    """Return why an address cannot be listened on, asked of the system; empty when it can be now."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        return f"the name {address.host} does not resolve ({error.strerror})"
    for family, kind, protocol, _, where in found:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(where)
                probe.listen(1)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return "the port is in use"
                return (error.strerror or str(error)).lower()
    return ""


def _hint(address: Address) -> str:
    return f"see who holds it with `ss -ltnp 'sport = :{address.port}'`, or listen on another port"


@contextlib.contextmanager
def _mask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
