"""A store in memory that keeps the contract, remembers every call, and can be told to hang, fail or lie."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rackpower_common.model.identity import GpuId, Revision, Term
from rackpower_controller.store.base import (
    POLICY_REVISIONS_LIMIT,
    EventRecord,
    Exposure,
    Fenced,
    LeadTaken,
    PolicyRecord,
    StoreError,
)


@dataclass
class Memory:
    """What controllers share."""

    number: int = 0
    instance: str = ""
    record_number: int = 0
    leader: str = ""
    leader_address: str = ""
    lead_ends_s: float = 0.0
    exposures: dict[GpuId, Exposure] = field(default_factory=dict)
    former: str = ""
    policies: list[PolicyRecord] = field(default_factory=list)
    digest: str = ""
    events: list[EventRecord] = field(default_factory=list)

    def forget(self) -> None:
        """Lose everything, as a server without its disk."""
        self.__dict__.update(vars(Memory()))


@dataclass
class FakeStore:
    """One controller's way to a memory.

    `trace` gets the name of every call that writes when it begins. `fails` are the errors that calls raise, by name,
    `""` for all. `hangs` are the calls that never return.
    """

    memory: Memory = field(default_factory=Memory)
    trace: list[str] = field(default_factory=list)
    fails: dict[str, StoreError] = field(default_factory=dict)
    hangs: set[str] = field(default_factory=set)
    now_s: float | None = None
    """The time for leads; the machine's when None."""
    meanwhile: Callable[[], Awaitable[None]] | None = None
    """What happens while the answer to a record is under way."""

    address = "memory"
    clock = staticmethod(time.monotonic)

    async def _enter(self, call: str) -> None:
        self.trace.append(call)
        if call in self.hangs:
            await asyncio.Event().wait()
        error = self.fails.get(call, self.fails.get(""))
        if error is not None:
            raise error

    @property
    def _now_s(self) -> float:
        return self.now_s if self.now_s is not None else self.clock()

    def _fence(self, term: Term) -> None:
        newest = Term(self.memory.number, self.memory.instance)
        if newest != term:
            raise Fenced(f"term {term} is over: the store knows term {newest}", newest)

    def _rival(self, instance: str) -> bool:
        return self.memory.leader not in {"", instance} and self._now_s < self.memory.lead_ends_s

    async def ensure(self) -> None:
        """Answer."""
        await self._enter("ensure")

    async def take_term(self, instance: str, *, above: int, ttl_s: float, leader: str) -> Term:
        """Take the lead and a term."""
        await self._enter("take_term")
        memory = self.memory
        if self._rival(instance):
            where = f"controller {memory.leader[:8]} at {memory.leader_address} leads"
            raise LeadTaken(where, memory.leader_address, memory.lead_ends_s - self._now_s)
        memory.number, memory.instance = max(memory.number, above) + 1, instance
        memory.record_number = 0
        self._lead(instance, ttl_s, leader)
        return Term(memory.number, instance)

    async def keep_lead(self, term: Term, *, ttl_s: float, leader: str) -> None:
        """Renew the lead."""
        await self._enter("keep_lead")
        self._fence(term)
        if self._rival(term.instance):
            raise Fenced("another leads", term)
        self._lead(term.instance, ttl_s, leader)

    def _lead(self, instance: str, ttl_s: float, leader: str) -> None:
        self.memory.leader, self.memory.leader_address = instance, leader
        self.memory.lead_ends_s = self._now_s + ttl_s

    async def give_up_lead(self, term: Term) -> None:
        """End the lead if it is ours."""
        await self._enter("give_up_lead")
        if self.memory.leader == term.instance:
            self.memory.leader = ""

    async def record_exposures(self, term: Term, number: int, exposures: Mapping[GpuId, Exposure], former: str) -> None:
        """Record, if the term is the newest."""
        await self._enter("record_exposures")
        self._fence(term)
        if number <= self.memory.record_number:
            raise StoreError(f"exposure record {number} came after record {self.memory.record_number} and was dropped")
        self.memory.record_number = number
        self.memory.exposures.update(exposures)
        self.memory.former = former
        if self.meanwhile is not None:
            await self.meanwhile()

    async def recall_exposures(self) -> dict[GpuId, Exposure]:
        """Return what is recorded."""
        await self._enter("recall_exposures")
        return dict(self.memory.exposures)

    async def recall_former(self) -> str:
        """Return the former places."""
        await self._enter("recall_former")
        return self.memory.former

    async def add_policy(self, record: PolicyRecord) -> bool:
        """Append a revision."""
        await self._enter("add_policy")
        policies = self.memory.policies
        if policies and policies[-1].revision == record.revision:
            return False
        policies.append(record)
        del policies[:-POLICY_REVISIONS_LIMIT]
        return True

    async def policies(self, limit: int = POLICY_REVISIONS_LIMIT) -> list[PolicyRecord]:
        """Return revisions, newest first."""
        await self._enter("policies")
        return self.memory.policies[::-1][:limit]

    async def policy(self, revision: Revision) -> PolicyRecord | None:
        """Return the newest record of a revision."""
        return next((record for record in await self.policies() if record.revision == revision), None)

    async def seen_digest(self) -> str:
        """Return the digest."""
        await self._enter("seen_digest")
        return self.memory.digest

    async def set_seen_digest(self, digest: str) -> None:
        """Remember the digest."""
        await self._enter("set_seen_digest")
        self.memory.digest = digest

    async def add_events(self, events: Sequence[EventRecord]) -> None:
        """Append events."""
        await self._enter("add_events")
        self.memory.events.extend(events)

    async def events(self, limit: int) -> list[EventRecord]:
        """Return the newest events, oldest first."""
        await self._enter("events")
        return self.memory.events[-limit:]

    async def close(self) -> None:
        """Close nothing."""
        self.trace.append("close")
