"""The seam between the operators' service and the controller: what a controller must be able to answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rackpower_common.errors import RackpowerError
from rackpower_common.model.identity import Revision
from rackpower_common.model.policy import Policy
from rackpower_common.policy.problems import Problem
from rackpower_controller.core.decision import Decision, Severity
from rackpower_controller.core.planning import Plan
from rackpower_controller.core.state import RackState
from rackpower_controller.durations import Durations
from rackpower_controller.store.base import EventRecord, PolicyRecord

PolicyFiles = Sequence[tuple[str, bytes]]
"""A policy's files: name for error messages, and bytes."""


class DeskError(RackpowerError):
    """A question that the controller cannot answer now."""


class RevisionUnknown(DeskError):
    """No policy of that revision is known; without a revision: none is in force."""


class PolicyMoved(DeskError):
    """Another revision is in force than the caller expected: look at it before applying."""


class StoreUnavailable(DeskError):
    """The store does not answer, and the question needs it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the shell wants operators to act upon, beside what the books show: a bad policy file, a hung planner.

    `reason` is a stable word, `message` says what is wrong, where, and what to do.
    """

    severity: Severity
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class StatusSource:
    """Everything that one status is drawn from: references only, cheap to make every tick.

    `state`, `plan` and `decision` are those of the last tick, `now_s` its time on the controller's clock and
    `unix_s` its wall time. `policy` is None while none is in force. `store_detail` is empty when the store works.
    """

    now_s: float
    unix_s: float
    state: RackState
    policy: Policy | None
    plan: Plan | None
    decision: Decision | None
    decide: Durations
    plans: Durations
    store_detail: str = ""
    sentence: str = ""
    controller_version: str = ""
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What checking a policy gives: without an error among `problems` it would be accepted as `revision`."""

    problems: tuple[Problem, ...]
    revision: Revision | None


@dataclass(frozen=True, slots=True)
class Applied:
    """What applying a policy gave; `applied` is False when `problems` holds an error."""

    applied: bool
    problems: tuple[Problem, ...]
    revision: Revision | None


class Desk(Protocol):
    """What the controller answers operators. Every call ends soon: whatever needs the store has its deadline."""

    def status(self) -> StatusSource:
        """Return what the newest status is drawn from; also before the first tick, and without a policy or a term."""
        ...

    def watch(self) -> AsyncIterator[StatusSource]:
        """Yield the newest status source after every tick, the present one first; a slow reader misses old ones."""
        ...

    async def policy(self, revision: Revision | None) -> PolicyRecord:
        """Return a policy revision with its files; None asks for the one in force.

        Raises:
            RevisionUnknown: There is none.
            StoreUnavailable: History is asked for and the store does not answer.
        """
        ...

    async def check(self, files: PolicyFiles) -> Verdict:
        """Judge a policy against the rack without applying it; a policy that is wrong is a verdict, not an error."""
        ...

    async def apply(self, files: PolicyFiles, author: str, expected: Revision | None) -> Applied:
        """Judge a policy and put it in force.

        Args:
            files: The policy.
            author: Who applies it, as proven by the connection and told by the caller.
            expected: Apply only if this revision is in force; None to skip the check.

        Raises:
            PolicyMoved: Another revision than `expected` is in force.
            DeskError: It cannot be applied now; nothing changed.
        """
        ...

    def past_events(self, limit: int, at_least: Severity) -> list[EventRecord]:
        """Return the newest `limit` events at least this severe, oldest first."""
        ...

    def follow_events(self, at_least: Severity) -> AsyncIterator[EventRecord]:
        """Yield events from now on; subscribed once iteration begins."""
        ...
