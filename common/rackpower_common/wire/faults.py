"""Errors as gRPC tells them, and back: one status and one stable word a kind of error, the words as details.

The table names kinds, not classes: each server says which of its error classes are of which kind. The word travels
in the trailing metadata, so that scripts need not read sentences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, cast

import grpc

from rackpower_common.errors import RackpowerError

REASON_KEY: Final = "rackpower-reason"
"""Key of the stable word in the trailing metadata."""

DETAILS_LIMIT: Final = 2000
"""Characters of the words; HTTP/2 headers are small."""


class Reason(Enum):
    """Stable words for what went wrong."""

    INVALID = "invalid"
    UNKNOWN_REVISION = "unknown_revision"
    POLICY_MOVED = "policy_moved"
    STORE_UNAVAILABLE = "store_unavailable"
    NOT_NOW = "not_now"
    NOT_ALLOWED = "not_allowed"
    NO_CERTIFICATE = "no_certificate"
    TOO_MANY = "too_many"
    NO_TERM = "no_term"
    HELLO_MISSING = "hello_missing"
    SILENT = "silent"
    TOO_SLOW = "too_slow"
    INTERNAL = "internal"


STATUSES: Final[Mapping[Reason, grpc.StatusCode]] = {
    Reason.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.UNKNOWN_REVISION: grpc.StatusCode.NOT_FOUND,
    Reason.POLICY_MOVED: grpc.StatusCode.ABORTED,
    # not UNAVAILABLE: that is how a client sees a controller that it cannot reach
    Reason.STORE_UNAVAILABLE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.NOT_NOW: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.NOT_ALLOWED: grpc.StatusCode.PERMISSION_DENIED,
    Reason.NO_CERTIFICATE: grpc.StatusCode.UNAUTHENTICATED,
    Reason.TOO_MANY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    # UNAVAILABLE on purpose: agents try the other controllers
    Reason.NO_TERM: grpc.StatusCode.UNAVAILABLE,
    Reason.HELLO_MISSING: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.SILENT: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.TOO_SLOW: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.INTERNAL: grpc.StatusCode.INTERNAL,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One error as gRPC tells it."""

    reason: Reason
    details: str

    @property
    def status(self) -> grpc.StatusCode:
        """Return the status."""
        return STATUSES[self.reason]

    @property
    def trailing(self) -> tuple[tuple[str, str], ...]:
        """Return the trailing metadata."""
        return ((REASON_KEY, self.reason.value),)


class Refused(RackpowerError):
    """A call that a server of ours refuses, of a kind that the table names.

    Args:
        reason: The kind.
        message: What is wrong and where.
        hint: What to do about it.
    """

    def __init__(self, reason: Reason, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.reason = reason


def fault_of(error: BaseException, table: Mapping[type[BaseException], Reason]) -> Fault:
    """Return how gRPC tells an error.

    Args:
        error: What was raised.
        table: Kinds by class; the nearest class of the error's own line wins.

    Returns:
        The fault; an error that nobody foresaw is internal, and its words stay in the controller's log.
    """
    if isinstance(error, Refused):
        return Fault(error.reason, str(error)[:DETAILS_LIMIT])
    for kind in type(error).__mro__:
        if kind in table:
            return Fault(table[kind], (str(error) or "no answer in time")[:DETAILS_LIMIT])
    return Fault(Reason.INTERNAL, "the controller failed to answer: its log says why")


def reason_of(error: grpc.RpcError) -> Reason | None:
    """Return the kind of a failed call, None when no server of ours named one."""
    for key, value in trailing_of(error):
        if key == REASON_KEY:
            return _REASONS.get(value if isinstance(value, str) else value.decode("ascii", "replace"))
    return None


def words_of(error: grpc.RpcError) -> str:
    """Return what a failed call says, for people; never empty."""
    details: str | None = error.details()
    return (details or "").strip() or f"no reason given ({error.code().name.lower()})"


def trailing_of(error: grpc.RpcError) -> tuple[tuple[str, str | bytes], ...]:
    """Return the trailing metadata of a failed call."""
    # pairs, named ones from the blocking API and plain ones from the asynchronous one
    return tuple(cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ()))


_REASONS: Final = {reason.value: reason for reason in Reason}
