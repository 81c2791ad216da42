"""The owner of the state: facts in, one decision a tick, carried out in one order and no other.

`carry_out` is the one visible place: commit lowers → send them → record → commit raises → send them. Between a decision
and the commit of its raises nothing is absorbed and no news of our reign is heeded: what arrives waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from rackpower_common.clock import Clock
from rackpower_common.model.identity import NodeName, StreamId
from rackpower_common.model.messages import ControllerGoodbye, ControllerMessage, GoodbyeReason, GrantBatch, Welcome
from rackpower_common.model.policy import Policy
from rackpower_controller.core.absorb import absorb
from rackpower_controller.core.commit import commit_lowers, commit_raises
from rackpower_controller.core.decide import decide
from rackpower_controller.core.decision import Decision, Event, Severity
from rackpower_controller.core.facts import Fact, PolicyChanged, StoreHealth, TermTaken
from rackpower_controller.core.requests import plan_request
from rackpower_controller.core.state import RackState
from rackpower_controller.durations import Durations
from rackpower_controller.events_log import EventLog
from rackpower_controller.inbox import Inbox
from rackpower_controller.planner_runner import PlannerRunner
from rackpower_controller.reign import Acceded, Deposed, News, Reign
from rackpower_controller.store.base import Exposure

EARLY_GAP_S = 0.1
"""Shortest time between two decisions, however urgent the facts."""

log = structlog.get_logger("rackpower.controller")


class Streams(Protocol):
    """The agents' streams, as the owner of the state speaks to them. Nothing here waits."""

    def send(self, stream: StreamId, message: ControllerMessage) -> None:
        """Queue a message; a stream that is gone takes it silently."""
        ...

    def end_all(self, goodbye: ControllerGoodbye) -> None:
        """Say goodbye on every stream."""
        ...


@dataclass(frozen=True, slots=True)
class Ticked:
    """What one tick leaves for those who watch; `recorded` says that the store holds its exposures."""

    now_s: float
    state: RackState
    policy: Policy
    decision: Decision
    recorded: bool


class _Nobody:
    """No agents yet."""

    def send(self, stream: StreamId, message: ControllerMessage) -> None:
        """Reach nobody."""

    def end_all(self, goodbye: ControllerGoodbye) -> None:
        """Reach nobody."""


@dataclass(slots=True)
class Sent:
    """What was sent since the start, one for each GPU."""

    lowers: int = 0
    raises: int = 0
    renewals: int = 0


class Controller:
    """One controller process's decisions.

    Args:
        policy: The policy to show until a reign begins; nothing is granted under it.
        inbox: Where facts arrive.
        reign: Our standing with the store.
        planner: Plans beside the ticks.
        events: Where events go.
        clock: Time.
        version: Ours, told to agents.
    """

    def __init__(
        self,
        policy: Policy,
        inbox: Inbox,
        reign: Reign,
        planner: PlannerRunner,
        events: EventLog,
        clock: Clock,
        version: str,
    ) -> None:
        self.policy = policy
        self.state = RackState()
        self.durations = Durations()
        self.recorded = Durations()
        self.sent = Sent()
        self._inbox = inbox
        self._streams: Streams = _Nobody()
        self._reign = reign
        self._planner = planner
        self._events = events
        self._clock = clock
        self._version = version
        self._listeners: list[Callable[[Ticked], None]] = []

    def serve(self, streams: Streams) -> None:
        """Speak to agents through `streams` from now on."""
        self._streams = streams

    def listen(self, listener: Callable[[Ticked], None]) -> None:
        """Call `listener` after every tick; it must not wait."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Absorb and decide for ever: a tick at every point of a fixed grid, and at once when facts are urgent."""
        due_s = decided_s = self._clock.now_s()
        while True:
            await self._inbox.wait(due_s - self._clock.now_s())
            urgent = self.take_in()
            now_s = self._clock.now_s()
            if now_s < due_s and not urgent:
                continue
            if urgent and now_s - decided_s < EARLY_GAP_S:
                await asyncio.sleep(EARLY_GAP_S - (now_s - decided_s))
                self.take_in()
            decided_s = self._clock.now_s()
            await self.tick(decided_s)
            tick_s = self.policy.timing.tick_s
            while due_s <= self._clock.now_s():
                due_s += tick_s

    def leads(self) -> bool:
        """Whether we have a term."""
        return self.state.term is not None

    def leader(self) -> str:
        """Return the leader's address for agents, empty when it is not known."""
        return self._reign.leader

    def report_period_s(self) -> float:
        """Return how often agents are to report, in seconds."""
        return self.policy.timing.report_period_s

    def leave(self) -> None:
        """Say goodbye to every agent: their caps and leases stay as they are."""
        goodbye = ControllerGoodbye(GoodbyeReason.SHUTTING_DOWN, "the controller stops", retry_after_s=1.0)
        self._streams.end_all(goodbye)

    def take_in(self) -> bool:
        """Heed the news of our reign, then absorb every fact that arrived.

        Returns:
            Whether one is urgent.
        """
        for news in self._reign.news():
            self._heed(news)
        urgent = False
        for fact in self._inbox.drain():
            urgent = self._absorb(fact) or urgent
        return urgent

    def _heed(self, news: News) -> None:
        match news:
            case Acceded():
                self._begin(news)
            case TermTaken():
                self._absorb(news)
            case Deposed():
                self._step_down(news)

    def _begin(self, acceded: Acceded) -> None:
        """Begin a reign with an empty mind: what the store remembers, under the policy that was in force there."""
        self.policy = acceded.begun.policy
        self.state = self._empty()
        self._absorb(acceded.recalled)
        if acceded.begun.change is not None:
            self._absorb(acceded.begun.change)
        self._absorb(acceded.term)

    def _step_down(self, deposed: Deposed) -> None:
        """Send the agents to the controller that leads; we may lead again one day."""
        message = f"this controller is fenced ({deposed.detail}): it said goodbye to every agent and stands by"
        self._events.add([Event(Severity.ERROR, "deposed", message)])
        self._streams.end_all(ControllerGoodbye(GoodbyeReason.FENCED, "another controller leads"))
        self.state = self._empty()

    def _empty(self) -> RackState:
        return RackState(tick=self.state.tick, store_detail=self.state.store_detail)

    def _absorb(self, fact: Fact) -> bool:
        absorbed = absorb(self.state, fact, self.policy)
        self.state = absorbed.state
        if isinstance(fact, PolicyChanged):
            self.policy = fact.policy
        for answer in absorbed.answers:
            self._streams.send(answer.stream, self._complete(answer.message))
        self._events.add(absorbed.events)
        return absorbed.urgent

    def _complete(self, message: ControllerMessage) -> ControllerMessage:
        if not isinstance(message, Welcome):
            return message
        return replace(message, report_period_s=self.report_period_s(), controller_version=self._version)

    async def tick(self, now_s: float) -> None:
        """Decide once and carry it out.

        Args:
            now_s: The clock's time.
        """
        if self._reign.detail != self.state.store_detail:
            self._absorb(StoreHealth(self._reign.detail, now_s))
        began_s = time.perf_counter()
        decision = decide(self.state, self._planner.plan, self.policy, now_s)
        took_s = time.perf_counter() - began_s
        if self.state.term is None and self._reign.standby:
            decision = replace(decision, sentence=f"Standing by: {self._reign.standby}.")
        self.durations.add(took_s)
        self._events.add(decision.events)
        log.info("tick", tick=decision.tick, sentence=decision.sentence, decide_ms=round(took_s * 1000, 2))
        recorded = await self.carry_out(decision)
        self._reign.ticked(self.state.needs_term_above or 0, self.policy.timing.leader_ttl_s)
        self._planner.submit(plan_request(self.state, self.policy, now_s))
        ticked = Ticked(now_s, self.state, self.policy, decision, recorded)
        for listener in self._listeners:
            listener(ticked)

    async def carry_out(self, decision: Decision) -> bool:
        """Lowers and renewals first and at once; raises only once the store holds their exposures.

        Returns:
            Whether it does.
        """
        self.state = commit_lowers(self.state, decision)
        self._send(decision.lowers)
        self.sent.lowers += sum(len(batch.grants) for batch in decision.lowers.values())
        self.sent.renewals += sum(len(batch.renewals) for batch in decision.lowers.values())
        if not await self._record(decision):
            return False
        self.state = commit_raises(self.state, decision)
        self._send(decision.raises)
        self.sent.raises += sum(len(batch.grants) for batch in decision.raises.values())
        return True

    async def _record(self, decision: Decision) -> bool:
        began_s = time.perf_counter()
        exposures = {gpu: Exposure(watts, self.state.gpus[gpu].node) for gpu, watts in decision.exposures_w.items()}
        accepted = await self._reign.record(exposures, decision.former)
        self.recorded.add(time.perf_counter() - began_s)
        return accepted

    def _send(self, batches: Mapping[NodeName, GrantBatch]) -> None:
        for name, batch in batches.items():
            stream = self.state.nodes[name].stream
            if stream is not None:
                self._streams.send(stream, batch)
