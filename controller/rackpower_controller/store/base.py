"""What the controller needs of a store, and the words in which a store fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rackpower_common.errors import RackpowerError
from rackpower_common.model.identity import GpuId, NodeName, Revision, Term

POLICY_REVISIONS_LIMIT = 200
"""Policy revisions kept; older ones are forgotten."""

EVENTS_LIMIT = 10_000
"""Events kept, approximately; older ones are forgotten."""


class StoreError(RackpowerError):
    """The store cannot be reached, is late, or refused a call. Raises stop; lowers and renewals go on."""


class StoreInUse(StoreError):
    """An embedded store's folder belongs to a living controller."""


class Fenced(StoreError):
    """The store knows a newer term than the writer's: somebody else leads.

    Args:
        message: What happened.
        newest: The term that the store knows.
    """

    def __init__(self, message: str, newest: Term) -> None:
        super().__init__(message)
        self.newest = newest


class LeadTaken(StoreError):
    """Another controller leads; its lead runs out in `remaining_s` seconds unless it renews.

    Args:
        message: What happened.
        leader: The leader's address for agents, empty when it told none.
        remaining_s: Seconds until its lead runs out.
    """

    def __init__(self, message: str, leader: str, remaining_s: float) -> None:
        super().__init__(message)
        self.leader = leader
        self.remaining_s = remaining_s


@dataclass(frozen=True, slots=True)
class Exposure:
    """What a GPU may draw, in whole watts, and the node it sits in."""

    power_w: int
    node: NodeName


@dataclass(frozen=True, slots=True)
class PolicyText:
    """One file of a policy: its name for error messages and its text."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class PolicyRecord:
    """A policy that was put in force: by whom, when (seconds since the epoch), and its files."""

    revision: Revision
    author: str
    unix_s: float
    files: tuple[PolicyText, ...]


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One event as kept: plain words, because the store outlives our enums."""

    id: str
    unix_s: float
    severity: str
    reason: str
    message: str
    node: str = ""
    gpu: str = ""
    domain: str = ""


class Store(Protocol):
    """History and election. Every call ends within the store's deadline or raises `StoreError`."""

    @property
    def address(self) -> str:
        """Return where the store is, without secrets, for people."""
        ...

    async def ensure(self) -> None:
        """Make the store reachable: start (or start again) an embedded server, ping a remote one.

        Raises:
            StoreInUse: The embedded folder belongs to a living controller.
            StoreError: It does not answer.
        """
        ...

    async def take_term(self, instance: str, *, above: int, ttl_s: float, leader: str) -> Term:
        """Take the lead and a term above `above` and above every term handed out before.

        Args:
            instance: Our instance id.
            above: A term number that somebody has seen, 0 for none.
            ttl_s: Seconds after which the lead runs out unless kept.
            leader: Our address for agents, for people and other controllers.

        Raises:
            LeadTaken: Another controller leads.
            StoreError: The store failed.
        """
        ...

    async def keep_lead(self, term: Term, *, ttl_s: float, leader: str) -> None:
        """Renew the lead for `ttl_s` seconds.

        Raises:
            Fenced: A newer term was handed out, or another controller leads.
            StoreError: The store failed.
        """
        ...

    async def give_up_lead(self, term: Term) -> None:
        """End our lead now, if it is ours, so that another controller need not wait."""
        ...

    async def record_exposures(self, term: Term, number: int, exposures: Mapping[GpuId, Exposure], former: str) -> None:
        """Record exposures and former places, if `term` is still the newest; all or none.

        Args:
            term: The writer's term.
            number: Rises with every call in one term: an older record that comes late changes nothing.
            exposures: By GPU.
            former: Where nodes that a policy moved or dropped still count, as `Decision.former` tells it.

        Raises:
            Fenced: A newer term was handed out.
            StoreError: The store failed, or a newer record was there already.
        """
        ...

    async def recall_exposures(self) -> dict[GpuId, Exposure]:
        """Return every recorded exposure, by GPU."""
        ...

    async def recall_former(self) -> str:
        """Return the former places recorded last, empty for none."""
        ...

    async def add_policy(self, record: PolicyRecord) -> bool:
        """Append a policy revision; False when it is the newest one already."""
        ...

    async def policies(self, limit: int = POLICY_REVISIONS_LIMIT) -> list[PolicyRecord]:
        """Return the newest revisions, newest first."""
        ...

    async def policy(self, revision: Revision) -> PolicyRecord | None:
        """Return the newest record of a revision, None when it is not known."""
        ...

    async def seen_digest(self) -> str:
        """Return the digest of the policy files on disk when they were last put in force, empty for never."""
        ...

    async def set_seen_digest(self, digest: str) -> None:
        """Remember the digest of the policy files on disk that were put in force."""
        ...

    async def add_events(self, events: Sequence[EventRecord]) -> None:
        """Append events."""
        ...

    async def events(self, limit: int) -> list[EventRecord]:
        """Return the newest events, oldest first."""
        ...

    async def close(self) -> None:
        """Close connections; end an embedded server. Never raises `StoreError`."""
        ...
