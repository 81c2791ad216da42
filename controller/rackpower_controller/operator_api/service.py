"""The operators' service over gRPC: asks the desk, draws the answers, refuses who may not ask."""

# ruff: noqa: N802, ARG002 - names and arguments are the contract's

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import grpc
import structlog

from rackpower.v1 import operator_pb2, operator_pb2_grpc
from rackpower_common.model.identity import Revision
from rackpower_common.policy.problems import PolicyError
from rackpower_common.wire.checks import WireError
from rackpower_common.wire.faults import Reason, Refused, fault_of
from rackpower_controller.core.decision import Severity
from rackpower_controller.operator_api import policy_wire
from rackpower_controller.operator_api.base import (
    Desk,
    DeskError,
    PolicyMoved,
    RevisionUnknown,
    StatusSource,
    StoreUnavailable,
)
from rackpower_controller.operator_api.operators import Caller, caller_of
from rackpower_controller.operator_api.status_view import status_view
from rackpower_controller.store.base import EventRecord, StoreError

STREAMS_LIMIT: Final = 64
"""Watchers and followers at the same time."""

DESK_DEADLINE_S: Final = 20.0
"""A desk that has not answered after so many seconds is not going to."""

EVENTS_DEFAULT: Final = 100
EVENTS_LIMIT: Final = 1000
"""Past events of one call."""

REASONS: Final[Mapping[type[BaseException], Reason]] = {
    RevisionUnknown: Reason.UNKNOWN_REVISION,
    PolicyMoved: Reason.POLICY_MOVED,
    StoreUnavailable: Reason.STORE_UNAVAILABLE,
    StoreError: Reason.STORE_UNAVAILABLE,
    DeskError: Reason.NOT_NOW,
    PolicyError: Reason.INVALID,
    WireError: Reason.INVALID,
    TimeoutError: Reason.NOT_NOW,
}
"""Which kind each of our errors is."""

Context = grpc.aio.ServicerContext[Any, Any]


class OperatorService(operator_pb2_grpc.OperatorServiceServicer):
    """Answers operators through a desk.

    Args:
        desk: The controller.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._drawn: tuple[StatusSource, operator_pb2.Status] | None = None
        self._streams = 0

    async def GetStatus(
        self, request: operator_pb2.GetStatusRequest, context: Context
    ) -> operator_pb2.GetStatusResponse:
        """Return the whole rack as it stands."""
        async with _answering(context):
            return operator_pb2.GetStatusResponse(status=self._draw(self._desk.status()))

    async def WatchStatus(
        self, request: operator_pb2.WatchStatusRequest, context: Context
    ) -> AsyncIterator[operator_pb2.WatchStatusResponse]:
        """Send the status after every tick, newest only."""
        async with _answering(context):
            with self._one_stream():
                async for source in self._desk.watch():
                    yield operator_pb2.WatchStatusResponse(status=self._draw(source))

    async def GetPolicy(
        self, request: operator_pb2.GetPolicyRequest, context: Context
    ) -> operator_pb2.GetPolicyResponse:
        """Return a policy revision, the one in force where none is named."""
        async with _answering(context), asyncio.timeout(DESK_DEADLINE_S):
            revision = Revision(request.revision) if request.revision else None
            record = await self._desk.policy(revision)
            return operator_pb2.GetPolicyResponse(policy=policy_wire.revision_message(record))

    async def CheckPolicy(
        self, request: operator_pb2.CheckPolicyRequest, context: Context
    ) -> operator_pb2.CheckPolicyResponse:
        """Judge a policy against the rack without applying it."""
        async with _answering(context), asyncio.timeout(DESK_DEADLINE_S):
            verdict = await self._desk.check(policy_wire.files_from(request.files))
            return operator_pb2.CheckPolicyResponse(
                problems=policy_wire.problem_messages(verdict.problems), revision=verdict.revision or ""
            )

    async def ApplyPolicy(
        self, request: operator_pb2.ApplyPolicyRequest, context: Context
    ) -> operator_pb2.ApplyPolicyResponse:
        """Check a policy and put it in force."""
        async with _answering(context) as caller, asyncio.timeout(DESK_DEADLINE_S):
            expected = Revision(request.expected_revision) if request.expected_revision else None
            files = policy_wire.files_from(request.files)
            applied = await self._desk.apply(files, caller.author(request.author), expected)
            return operator_pb2.ApplyPolicyResponse(
                applied=applied.applied,
                problems=policy_wire.problem_messages(applied.problems),
                revision=applied.revision or "",
            )

    async def ListEvents(
        self, request: operator_pb2.ListEventsRequest, context: Context
    ) -> AsyncIterator[operator_pb2.ListEventsResponse]:
        """Return past events, oldest first, and with `follow` those to come."""
        async with _answering(context):
            at_least = policy_wire.severity_from(request.at_least)
            past = self._desk.past_events(min(request.limit or EVENTS_DEFAULT, EVENTS_LIMIT), at_least)
            if not request.follow:
                for record in past:
                    yield _event(record)
                return
            with self._one_stream():
                async for record in self._following(past, at_least):
                    yield _event(record)

    async def _following(self, past: list[EventRecord], at_least: Severity) -> AsyncIterator[EventRecord]:
        """Yield past events, those that came while they were sent, then all to come: none missed, none told twice."""
        while past:
            for record in past:
                yield record
            past = _after(past[-1], self._desk.past_events(EVENTS_LIMIT, at_least))
        # no await since the last look: the desk subscribes before anything can happen in between
        async for record in self._desk.follow_events(at_least):
            yield record

    def _draw(self, source: StatusSource) -> operator_pb2.Status:
        """Return a status, drawn once however many watch."""
        if self._drawn is None or self._drawn[0] is not source:
            self._drawn = (source, status_view(source))
        return self._drawn[1]

    @contextmanager
    def _one_stream(self) -> Iterator[None]:
        if self._streams >= STREAMS_LIMIT:
            raise Refused(Reason.TOO_MANY, f"{STREAMS_LIMIT} streams are open already", "end one of them")
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1


def _after(last: EventRecord, records: list[EventRecord]) -> list[EventRecord]:
    """Return the records that came after one; all of them when it is no longer kept."""
    for place in range(len(records) - 1, -1, -1):
        if records[place].id == last.id:
            return records[place + 1 :]
    return records


def _event(record: EventRecord) -> operator_pb2.ListEventsResponse:
    return operator_pb2.ListEventsResponse(event=policy_wire.event_message(record))


@asynccontextmanager
async def _answering(context: Context) -> AsyncIterator[Caller]:
    """Give who asks, and end the call in words when it fails: the one place where errors become gRPC's."""
    try:
        yield caller_of(context.auth_context(), context.peer())
    except (asyncio.CancelledError, grpc.aio.AbortError, GeneratorExit):
        raise
    except Exception as error:  # noqa: BLE001 - no traceback reaches an operator
        fault = fault_of(error, REASONS)
        if fault.reason is Reason.INTERNAL:
            structlog.get_logger("rackpower.operator").exception("answering an operator failed", peer=context.peer())
        await context.abort(fault.status, fault.details, fault.trailing)
