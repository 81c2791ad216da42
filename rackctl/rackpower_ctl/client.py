"""The operator service as rackctl sees it: messages in and out, and every failure as words.

One thin class; nothing here draws. Calls are synchronous and each has a deadline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

import grpc

from rackpower.v1 import operator_pb2, operator_pb2_grpc
from rackpower_common.address import Address, AddressError, parse_address, require_tls
from rackpower_common.tls import TlsError, TlsFiles
from rackpower_ctl.connection import Connection
from rackpower_ctl.diagnosis import diagnose
from rackpower_ctl.errors import CtlError, ExitCode, Unreachable, UsageError

DEADLINE_S: Final = 5.0
APPLY_DEADLINE_S: Final = 30.0
"""Applying may wait for the store, which has deadlines of its own."""
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
CHANNEL_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),  # a rack's controller is never behind a web proxy
    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # this one decides in gRPC 1.85, and is 60 s unless told
)
PolicyFiles = Sequence[tuple[str, bytes]]
_CODES: Final = {
    grpc.StatusCode.UNAVAILABLE: ExitCode.UNREACHABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: ExitCode.UNREACHABLE,
    grpc.StatusCode.UNAUTHENTICATED: ExitCode.UNREACHABLE,
    grpc.StatusCode.PERMISSION_DENIED: ExitCode.UNREACHABLE,
    grpc.StatusCode.UNIMPLEMENTED: ExitCode.UNREACHABLE,
    grpc.StatusCode.INVALID_ARGUMENT: ExitCode.USAGE,
    grpc.StatusCode.NOT_FOUND: ExitCode.USAGE,
}
"""How rackctl ends after each status; any other means that something needs attention."""


class Operator:
    """A connection to one controller; use it in a `with`.

    Args:
        connection: Where, and with which certificate.

    Raises:
        UsageError: The address or the certificates cannot be used.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        try:
            self.address = parse_address(connection.controller)
            require_tls(self.address, secured=connection.tls is not None, what="the connection to")
            self._tls = TlsFiles(*connection.tls) if connection.tls else None
            credentials = self._tls.channel_credentials() if self._tls else None
        except (AddressError, TlsError) as error:
            raise UsageError(error.message, error.hint) from error
        target = self.address.target
        if credentials is None:
            self._channel = grpc.insecure_channel(target, CHANNEL_OPTIONS)
        else:
            self._channel = grpc.secure_channel(target, credentials, CHANNEL_OPTIONS)
        self._stub = operator_pb2_grpc.OperatorServiceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection and every call on it; safe from another thread."""
        self._channel.close()

    def status(self) -> operator_pb2.Status:
        """Return the rack as it stands.

        Raises:
            CtlError: It cannot be had; the message says why.
        """
        with self._failures():
            return self._stub.GetStatus(operator_pb2.GetStatusRequest(), timeout=DEADLINE_S).status

    def watch(self) -> Iterator[operator_pb2.Status]:
        """Yield the status after every tick.

        Raises:
            CtlError: The stream broke.
        """
        with self._failures():
            for answer in self._stub.WatchStatus(operator_pb2.WatchStatusRequest()):
                yield answer.status

    def policy(self, revision: str = "") -> operator_pb2.PolicyRevision:
        """Return a policy; an empty revision asks for the one in force.

        Raises:
            CtlError: There is none, or it cannot be had.
        """
        with self._failures():
            return self._stub.GetPolicy(operator_pb2.GetPolicyRequest(revision=revision), timeout=DEADLINE_S).policy

    def check(self, files: PolicyFiles) -> operator_pb2.CheckPolicyResponse:
        """Return what the controller thinks of a policy.

        Raises:
            CtlError: It cannot be asked.
        """
        with self._failures():
            request = operator_pb2.CheckPolicyRequest(files=_wire_files(files))
            return self._stub.CheckPolicy(request, timeout=DEADLINE_S)

    def apply(self, files: PolicyFiles, author: str, expected: str = "") -> operator_pb2.ApplyPolicyResponse:
        """Put a policy in force.

        Raises:
            CtlError: Another revision than `expected` is in force, or the controller cannot be asked.
        """
        with self._failures():
            request = operator_pb2.ApplyPolicyRequest(
                files=_wire_files(files), author=author, expected_revision=expected
            )
            return self._stub.ApplyPolicy(request, timeout=APPLY_DEADLINE_S)

    def events(
        self, limit: int, at_least: operator_pb2.Severity.ValueType, *, follow: bool
    ) -> Iterator[operator_pb2.Event]:
        """Yield past events, oldest first, and with `follow` those to come.

        Raises:
            CtlError: They cannot be had, or the stream broke.
        """
        with self._failures():
            request = operator_pb2.ListEventsRequest(limit=limit, follow=follow, at_least=at_least)
            for answer in self._stub.ListEvents(request, timeout=None if follow else DEADLINE_S):
                yield answer.event

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn gRPC's failures into words."""
        try:
            yield
        except grpc.RpcError as error:
            raise translate(error, self.address, self._tls) from error


def translate(error: grpc.RpcError, address: Address, tls: TlsFiles | None) -> CtlError:
    """Return a failed call as a sentence, with what to do, and rackctl's exit code."""
    code, details = error.code(), (error.details() or "").strip()
    if code is grpc.StatusCode.UNAVAILABLE:
        message, hint = diagnose(address, tls, details)
        return Unreachable(message, hint)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Unreachable(
            f"the controller at {address} did not answer in time",
            "it may be starting or overloaded: journalctl -u rackpower-controller",
        )
    if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        return Unreachable(
            f"the controller at {address} does not let us in: {details or 'no reason given'}",
            "use a certificate for operators: rackctl pki issue operator NAME",
        )
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return Unreachable(
            f"the program at {address} does not know this question",
            "it may be older than this rackctl, or no rackpower controller",
        )
    return CtlError(details or f"the controller refused: {code.name.lower()}", "", _CODES.get(code, ExitCode.ATTENTION))


def _wire_files(files: PolicyFiles) -> list[operator_pb2.PolicyFile]:
    return [operator_pb2.PolicyFile(name=name, content=content) for name, content in files]
