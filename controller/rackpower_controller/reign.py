"""Our standing with the store: the lead, the term, the record that gates raises (invariant 8).

The lead is taken and kept beside the ticks, once for each tick that completed, so that a store that hangs delays no
lower. What comes of it is news for the owner of the state, who heeds it between two ticks. A record that is not
accepted raises nothing. Being fenced for one leader TTL ends a reign, and the next begins as a process does: with
another instance, what the store remembers, and the policy that is in force there. A store that went back behind our
own term is given a higher one, because agents remember the highest.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from rackpower_common.clock import Clock
from rackpower_common.errors import RackpowerError
from rackpower_common.model.identity import GpuId, Term
from rackpower_common.model.policy import Policy
from rackpower_controller.core.facts import ExposuresRecalled, PolicyChanged, TermTaken
from rackpower_controller.store.base import Exposure, Fenced, LeadTaken, Store, StoreError

RECORD_S = 0.4
"""How long a tick waits for the record of its exposures: without it nothing is raised, and the next tick is due."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The policy to begin a reign under, and what the files on disk want changed since, None for nothing."""

    policy: Policy
    change: PolicyChanged | None = None


@dataclass(frozen=True, slots=True)
class Acceded:
    """A reign begins: what the store remembers, the policy in force there, its change, then the term."""

    recalled: ExposuresRecalled
    begun: Begun
    term: TermTaken


@dataclass(frozen=True, slots=True)
class Deposed:
    """A reign is over; `detail` says who ended it."""

    detail: str


News = Acceded | TermTaken | Deposed

Begin = Callable[[], Awaitable[Begun]]


class Reign:
    """Takes, keeps and loses terms.

    Args:
        store: Where terms are handed out.
        clock: Time.
        address: Where agents reach us, for other controllers and people.
        wake: Called when there is news.
        record_s: How long a record may take, in seconds.
    """

    def __init__(
        self, store: Store, clock: Clock, address: str, wake: Callable[[], None], *, record_s: float = RECORD_S
    ) -> None:
        self._store = store
        self._clock = clock
        self._address = address
        self._wake = wake
        self._record_s = record_s
        self._instance = uuid.uuid4().hex
        self._term: Term | None = None
        self._news: list[News] = []
        self._ticked = asyncio.Event()
        self._above = 0
        self._ttl_s = 0.0
        self._fenced_since_s: float | None = None
        self._record_number = 0
        self._lead_detail = ""
        self._record_detail = ""
        self.leader = ""
        """Where the controller that leads is, empty while we do or nobody is known to."""
        self.standby = ""
        """Who leads instead of us, in words; empty while nobody does."""

    @property
    def detail(self) -> str:
        """Return what is wrong with the store, empty when it works."""
        return self._lead_detail or self._record_detail

    def lasts(self) -> bool:
        """Whether we hold a term."""
        return self._term is not None

    def news(self) -> list[News]:
        """Take what happened since the last call, oldest first."""
        news, self._news = self._news, []
        return news

    def ticked(self, above: int, ttl_s: float) -> None:
        """Note that a tick completed: only who decides may lead. Never waits.

        Args:
            above: A term number that an agent has seen and that ours must pass, 0 for none.
            ttl_s: Seconds after which the lead runs out unless kept.
        """
        self._above, self._ttl_s = above, ttl_s
        self._ticked.set()

    async def run(self, begin: Begin) -> None:
        """Take or keep the lead after every tick, for ever.

        Args:
            begin: Tells the policy to begin a reign under.

        Raises:
            RackpowerError: What `begin` raised, unless the store failed it.
        """
        while True:
            await self._ticked.wait()
            self._ticked.clear()
            await self.step(begin)

    async def step(self, begin: Begin) -> None:
        """Take or keep the lead once."""
        try:
            if self._term is None or self._lead_detail:
                await self._store.ensure()
            if self._term is None:
                await self._accede(begin)
            elif self._above >= self._term.number:
                await self._take(self._above)
            else:
                await self._store.keep_lead(self._term, ttl_s=self._ttl_s, leader=self._address)
        except LeadTaken as error:
            self.leader = error.leader
            self._outdone(str(error))
        except Fenced as error:
            await self._fenced(error)
        except StoreError as error:
            self._lead_detail = str(error)
        else:
            self._fenced_since_s = None
            self._lead_detail = self.leader = self.standby = ""

    async def _accede(self, begin: Begin) -> None:
        """Begin a reign. Nobody else can write what is recalled here: the lead is ours since the term was taken."""
        term = await self._store.take_term(self._instance, above=self._above, ttl_s=self._ttl_s, leader=self._address)
        recalled = await self._recall()
        begun = await begin()
        self._term, self._record_number, self._record_detail = term, 0, ""
        self._tell(Acceded(recalled, begun, TermTaken(term, self._clock.now_s())))

    async def _recall(self) -> ExposuresRecalled:
        held = await self._store.recall_exposures()
        former = await self._store.recall_former()
        watts = {gpu: one.power_w for gpu, one in held.items()}
        nodes = {gpu: one.node for gpu, one in held.items()}
        return ExposuresRecalled(watts, nodes, self._clock.now_s(), former)

    async def _take(self, above: int) -> None:
        """Take a term above a number, in the same reign."""
        self._term = await self._store.take_term(self._instance, above=above, ttl_s=self._ttl_s, leader=self._address)
        self._record_number = 0
        self._tell(TermTaken(self._term, self._clock.now_s()))

    async def _fenced(self, error: Fenced) -> None:
        """Heed a newer term of another controller; a store that fell behind our own is given a higher one."""
        if self._term is None or error.newest.number >= self._term.number:
            self._outdone(str(error))
            return
        try:
            await self._take(self._term.number)
        except LeadTaken as taken:
            self.leader = taken.leader
            self._outdone(str(taken))
        except StoreError as failed:
            self._lead_detail = str(failed)
        else:
            self._fenced_since_s, self._lead_detail = None, ""

    def _outdone(self, detail: str) -> None:
        """Another controller leads: stand by, or after one leader TTL end our reign."""
        if self._term is None:
            self._lead_detail, self.standby = "", detail
            return
        self._lead_detail = detail
        now_s = self._clock.now_s()
        if self._fenced_since_s is None:
            self._fenced_since_s = now_s
        if now_s - self._fenced_since_s < self._ttl_s:
            return
        self._term = self._fenced_since_s = None
        self._instance = uuid.uuid4().hex
        self._lead_detail = self._record_detail = ""
        self._tell(Deposed(detail))

    def _tell(self, news: News) -> None:
        self._news.append(news)
        self._wake()

    async def record(self, exposures: Mapping[GpuId, Exposure], former: str) -> bool:
        """Record what every GPU counts for, at our own term.

        A store that failed our lead is not asked: the tick goes on at once.

        Returns:
            Whether the store holds it; else nothing may be raised.
        """
        term = self._term
        if term is None or self._news or self._lead_detail:
            return False
        self._record_number += 1
        try:
            async with asyncio.timeout(self._record_s):
                await self._store.record_exposures(term, self._record_number, exposures, former)
        except TimeoutError:
            self._record_detail = f"it did not take the record within {self._record_s:g} s"
            return False
        except StoreError as error:
            self._record_detail = str(error)
            return False
        self._record_detail = ""
        return self._term is term and not self._news

    async def give_up(self) -> None:
        """End the lead, so that another controller need not wait; never raises."""
        if self._term is not None:
            try:
                await self._store.give_up_lead(self._term)
            except RackpowerError as error:
                self._lead_detail = str(error)
