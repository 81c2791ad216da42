"""An operator service with a memory, on a socket or port of this machine: what rackctl's tests talk to."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc

from rackpower.v1 import operator_pb2, operator_pb2_grpc
from support.statuses import NOON_UNIX_S, rack

GRACE_S = 0.2


@dataclass
class FakeOperator(operator_pb2_grpc.OperatorServiceServicer):
    """Answers from what it holds, remembers what it was asked, and refuses when told to."""

    now: operator_pb2.Status = field(default_factory=rack)
    policies: list[operator_pb2.PolicyRevision] = field(default_factory=list)
    problems: list[operator_pb2.PolicyProblem] = field(default_factory=list)
    past: list[operator_pb2.Event] = field(default_factory=list)
    applied: list[operator_pb2.ApplyPolicyRequest] = field(default_factory=list)
    asked: list[object] = field(default_factory=list)
    refuse: tuple[grpc.StatusCode, str] | None = None
    to_come: queue.Queue[operator_pb2.Status | operator_pb2.Event | None] = field(default_factory=queue.Queue)
    """What followers get next; None ends their stream."""

    def GetStatus(  # noqa: N802 - gRPC's name
        self, request: operator_pb2.GetStatusRequest, context: grpc.ServicerContext
    ) -> operator_pb2.GetStatusResponse:
        """Return the status."""
        self._ask(request, context)
        return operator_pb2.GetStatusResponse(status=self.now)

    def WatchStatus(  # noqa: N802
        self, request: operator_pb2.WatchStatusRequest, context: grpc.ServicerContext
    ) -> Iterator[operator_pb2.WatchStatusResponse]:
        """Yield the status, then what is to come."""
        self._ask(request, context)
        yield operator_pb2.WatchStatusResponse(status=self.now)
        for status in self._coming(context):
            assert isinstance(status, operator_pb2.Status)
            yield operator_pb2.WatchStatusResponse(status=status)

    def GetPolicy(  # noqa: N802
        self, request: operator_pb2.GetPolicyRequest, context: grpc.ServicerContext
    ) -> operator_pb2.GetPolicyResponse:
        """Return a revision, the newest without one."""
        self._ask(request, context)
        for policy in reversed(self.policies):
            if request.revision in ("", policy.revision):
                return operator_pb2.GetPolicyResponse(policy=policy)
        context.abort(grpc.StatusCode.NOT_FOUND, f"no policy of revision {request.revision!r} is known")
        raise AssertionError("abort raises")

    def CheckPolicy(  # noqa: N802
        self, request: operator_pb2.CheckPolicyRequest, context: grpc.ServicerContext
    ) -> operator_pb2.CheckPolicyResponse:
        """Return the problems that it holds."""
        self._ask(request, context)
        return operator_pb2.CheckPolicyResponse(problems=self.problems, revision="0123456789ab")

    def ApplyPolicy(  # noqa: N802
        self, request: operator_pb2.ApplyPolicyRequest, context: grpc.ServicerContext
    ) -> operator_pb2.ApplyPolicyResponse:
        """Put a policy in force unless one of its problems is an error or another revision was expected."""
        self._ask(request, context)
        in_force = self.policies[-1].revision if self.policies else ""
        if request.expected_revision not in ("", in_force):
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"policy {in_force} is in force, look at it first")
        applied = all(problem.severity != operator_pb2.SEVERITY_ERROR for problem in self.problems)
        if applied:
            self.applied.append(request)
            self.policies.append(
                operator_pb2.PolicyRevision(
                    revision="0123456789ab", author=request.author, unix_seconds=NOON_UNIX_S, files=request.files
                )
            )
        return operator_pb2.ApplyPolicyResponse(applied=applied, problems=self.problems, revision="0123456789ab")

    def ListEvents(  # noqa: N802
        self, request: operator_pb2.ListEventsRequest, context: grpc.ServicerContext
    ) -> Iterator[operator_pb2.ListEventsResponse]:
        """Yield past events, then what is to come."""
        self._ask(request, context)
        for event in [event for event in self.past if event.severity >= request.at_least][-request.limit :]:
            yield operator_pb2.ListEventsResponse(event=event)
        for item in self._coming(context) if request.follow else ():
            assert isinstance(item, operator_pb2.Event)
            yield operator_pb2.ListEventsResponse(event=item)

    def _ask(self, request: object, context: grpc.ServicerContext) -> None:
        self.asked.append(request)
        if self.refuse is not None:
            context.abort(*self.refuse)

    def _coming(self, context: grpc.ServicerContext) -> Iterator[operator_pb2.Status | operator_pb2.Event]:
        while context.is_active():
            try:
                item = self.to_come.get(timeout=0.05)
            except queue.Empty:
                continue
            if item is None:
                return
            yield item


@contextmanager
def serving(fake: FakeOperator, address: str, credentials: grpc.ServerCredentials | None = None) -> Iterator[str]:
    """Serve a fake at `unix:/path` or `host:0`, and yield the address at which it is reached."""
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    operator_pb2_grpc.add_OperatorServiceServicer_to_server(fake, server)
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    server.start()
    try:
        yield address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
    finally:
        server.stop(GRACE_S).wait()
