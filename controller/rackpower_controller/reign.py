"""Our standing with the store: the lead, the term, the record that gates raises (invariant 8).

A record that is not accepted raises nothing. Being fenced for one leader TTL ends the reign; a store that went back
behind our own term is given a higher one, because agents remember the highest.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from enum import Enum

from rackpower_common.clock import Clock
from rackpower_common.model.identity import GpuId, Term
from rackpower_controller.core.decision import Event, Severity
from rackpower_controller.core.facts import ExposuresRecalled, TermTaken
from rackpower_controller.store.base import Exposure, Fenced, LeadTaken, Store, StoreError


class Standing(Enum):
    """What the store makes of us."""

    NO_TERM = "no_term"
    LEADING = "leading"
    IN_DOUBT = "in_doubt"
    DEPOSED = "deposed"


class Reign:
    """Takes, keeps and loses terms.

    Args:
        store: Where terms are handed out.
        clock: Time.
        address: Where agents reach us, for other controllers and people.
    """

    def __init__(self, store: Store, clock: Clock, address: str) -> None:
        self._store = store
        self._clock = clock
        self._address = address
        self._instance = uuid.uuid4().hex
        self._fresh: Term | None = None
        self._fenced_since_s: float | None = None
        self._record_number = 0
        self.term: Term | None = None
        self.detail = ""
        self.leader = ""

    async def keep(self, above: int, ttl_s: float) -> Standing:
        """Take a term if there is none (or one above `above` is needed), else keep the lead.

        Args:
            above: A term number that an agent has seen, 0 for none.
            ttl_s: Seconds after which the lead runs out unless kept.
        """
        try:
            if self.detail:
                await self._store.ensure()
            if self.term is None or above > 0:
                await self._take(above, ttl_s)
            else:
                await self._store.keep_lead(self.term, ttl_s=ttl_s, leader=self._address)
                self._fenced_since_s = None
        except LeadTaken as error:
            self.detail, self.leader = str(error), error.leader
            return Standing.NO_TERM if self.term is None else self._fenced(ttl_s)
        except Fenced as error:
            return await self._outdone(error, ttl_s)
        except StoreError as error:
            self.detail = str(error)
            return Standing.NO_TERM if self.term is None else Standing.IN_DOUBT
        self.detail = ""
        return Standing.LEADING

    async def _take(self, above: int, ttl_s: float) -> None:
        await self._store.ensure()
        self.term = self._fresh = await self._store.take_term(
            self._instance, above=above, ttl_s=ttl_s, leader=self._address
        )
        self._record_number = 0
        self._fenced_since_s = None

    async def _outdone(self, error: Fenced, ttl_s: float) -> Standing:
        """Fenced: a store that fell behind our term is told so; a newer term of another controller is heeded."""
        self.detail = str(error)
        if self.term is not None and error.newest.number < self.term.number:
            try:
                await self._take(self.term.number, ttl_s)
            except StoreError as again:
                self.detail = str(again)
                return Standing.IN_DOUBT
            self.detail = ""
            return Standing.LEADING
        return self._fenced(ttl_s)

    def _fenced(self, ttl_s: float) -> Standing:
        now_s = self._clock.now_s()
        if self._fenced_since_s is None:
            self._fenced_since_s = now_s
        if now_s - self._fenced_since_s < ttl_s:
            return Standing.IN_DOUBT
        self.term = self._fresh = self._fenced_since_s = None
        self._instance = uuid.uuid4().hex
        return Standing.DEPOSED

    def fresh_term(self, now_s: float) -> TermTaken | None:
        """Return a term that was taken since the last call."""
        term, self._fresh = self._fresh, None
        return TermTaken(term, now_s) if term is not None else None

    def deposed_event(self) -> Event:
        """Return the words for stepping down."""
        message = f"this controller is fenced ({self.detail}): it said goodbye to every agent and starts over"
        return Event(Severity.ERROR, "deposed", message)

    async def record(self, exposures: Mapping[GpuId, Exposure], former: str) -> bool:
        """Record what every GPU counts for at our own term; False when nothing may be raised."""
        if self.term is None or self._fresh is not None:
            return False
        self._record_number += 1
        try:
            await self._store.record_exposures(self.term, self._record_number, exposures, former)
        except StoreError as error:
            self.detail = str(error)
            return False
        self.detail = ""
        return True

    async def recall(self, now_s: float) -> ExposuresRecalled:
        """Return what the store remembers, nothing when it fails."""
        try:
            held = await self._store.recall_exposures()
            former = await self._store.recall_former()
        except StoreError as error:
            self.detail = str(error)
            return ExposuresRecalled({}, {}, now_s)
        return ExposuresRecalled(
            {gpu: one.power_w for gpu, one in held.items()}, {gpu: one.node for gpu, one in held.items()}, now_s, former
        )

    async def give_up(self) -> None:
        """End the lead, so that another controller need not wait; never raises."""
        if self.term is not None:
            try:
                await self._store.give_up_lead(self.term)
            except StoreError as error:
                self.detail = str(error)
