"""The controller's shell with everything around it in memory: store, streams, agents, time, all in the test's hands."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rackpower_common.model.device import PowerReading
from rackpower_common.model.identity import GpuId, NodeName, StreamId, Term
from rackpower_common.model.messages import (
    ControllerGoodbye,
    ControllerMessage,
    GpuReport,
    GrantBatch,
    Holding,
    Report,
    Welcome,
)
from rackpower_common.model.policy import Policy
from rackpower_controller.controller import Controller, Ticked
from rackpower_controller.core.facts import NodeConnected, NodeReported
from rackpower_controller.core.planning import Plan, PlanRequest
from rackpower_controller.core.requests import plan_request
from rackpower_controller.events_log import EventLog
from rackpower_controller.inbox import Inbox
from rackpower_controller.planner_runner import PlannerRunner
from rackpower_controller.reign import Begun, Reign
from support.books import gpu_id, hello
from support.plans import WaterfillPlanner
from support.policies import loaded
from support.store_fake import FakeStore

START_S = 1000.0
GPUS = 8
CAP_W = 400
DRAWN_W = 390
RECORD_S = 0.05
"""Short, since tests wait for a store that hangs."""


@dataclass
class FakeClock:
    """A clock that tests turn."""

    time_s: float = START_S

    def now_s(self) -> float:
        """Return the time."""
        return self.time_s

    def unix_s(self) -> float:
        """Return the time since the epoch."""
        return 1_700_000_000.0 + self.time_s


@dataclass
class FakeStreams:
    """Streams that remember what was sent; `trace` is shared with the store, so that tests see who came first."""

    trace: list[str]
    sent: list[tuple[StreamId, ControllerMessage]] = field(default_factory=list)
    goodbyes: list[ControllerGoodbye] = field(default_factory=list)

    def send(self, stream: StreamId, message: ControllerMessage) -> None:
        """Remember a message."""
        match message:
            case Welcome():
                self.trace.append("welcome")
            case ControllerGoodbye():
                self.trace.append("goodbye")
            case GrantBatch():
                self.trace.append("grants" if message.grants else "renewals")
        self.sent.append((stream, message))

    def end_all(self, goodbye: ControllerGoodbye) -> None:
        """Remember a goodbye."""
        self.trace.append("goodbye")
        self.goodbyes.append(goodbye)

    @property
    def batches(self) -> list[GrantBatch]:
        """Return every batch sent."""
        return [message for _, message in self.sent if isinstance(message, GrantBatch)]


@dataclass
class FakeAgent:
    """An agent that takes every grant at once and whose GPUs draw a little less than their cap, at most 390 W."""

    name: str
    stream: StreamId
    caps_w: dict[GpuId, int] = field(default_factory=dict)
    sequences: dict[GpuId, int] = field(default_factory=dict)
    term: Term | None = None
    reports: int = 0

    def take(self, batch: GrantBatch) -> None:
        """Take grants."""
        for grant in batch.grants:
            self.caps_w[grant.gpu], self.sequences[grant.gpu] = grant.cap_w, grant.sequence

    def report(self) -> Report:
        """Return the next report."""
        self.reports += 1
        return Report(self.reports, tuple(self._line(gpu_id(self.name, place)) for place in range(GPUS)), self.term)

    def _line(self, gpu: GpuId) -> GpuReport:
        cap_w, sequence = self.caps_w.get(gpu, CAP_W), self.sequences.get(gpu, 0)
        holding = Holding(
            gpu,
            term=self.term,
            sequence=sequence,
            applied_sequence=sequence,
            requested_w=cap_w,
            enforced_w=cap_w,
            highest_enforced_w=cap_w,
            enforced_age_s=60.0,
        )
        return GpuReport(holding, PowerReading(average_w=min(DRAWN_W, cap_w), window_s=1.0, age_s=0.1))


class Shell:
    """One controller without processes.

    Args:
        policy: The policy in force.
        store: Its store; several controllers may share a memory.
        name: Its address for agents.
    """

    def __init__(self, policy: Policy | None = None, store: FakeStore | None = None, name: str = "here:1") -> None:
        self.policy = policy if policy is not None else loaded().policy
        self.clock = FakeClock()
        self.store = store if store is not None else FakeStore()
        self.store.now_s = self.clock.now_s()
        self.trace = self.store.trace
        self.streams = FakeStreams(self.trace)
        self.inbox = Inbox()
        self.wakes = 0
        self.reign = Reign(self.store, self.clock, name, self._wake, record_s=RECORD_S)
        self.planner = PlannerRunner(WaterfillPlanner(), self.clock, lambda event: None)
        self.events = EventLog(self.store, self.clock)
        self.begun = Begun(self.policy)
        self.controller = Controller(
            self.policy, self.inbox, self.reign, self.planner, self.events, self.clock, "0.1.0"
        )
        self.controller.serve(self.streams)
        self.ticks: list[Ticked] = []
        self.controller.listen(self.ticks.append)
        self.agents: dict[str, FakeAgent] = {}
        self.seen = 0

    def _wake(self) -> None:
        self.wakes += 1

    async def begin(self) -> Begun:
        """Tell the policy to begin a reign under."""
        return self.begun

    async def lead(self) -> None:
        """Take or keep the lead once, and heed what comes of it."""
        await self.reign.step(self.begin)
        self.controller.take_in()

    async def reign_begins(self) -> Term:
        """Make a first tick, take a term, and return it."""
        await self.tick()
        await self.lead()
        assert self.controller.state.term is not None
        return self.controller.state.term

    def connect(self, name: str = "gpu-01") -> FakeAgent:
        """Let an agent say hello."""
        agent = FakeAgent(name, StreamId(len(self.agents) + 1), term=self.controller.state.term)
        self.agents[name] = agent
        said = hello(name, GPUS)
        self.inbox.put(NodeConnected(agent.stream, name, f"10.0.0.{agent.stream}:4000", said, self.clock.now_s()))
        return agent

    async def tick(self, *, after_s: float = 1.0) -> Ticked:
        """Let time pass, agents take what was sent and report, then decide once; does not keep the lead."""
        self.clock.time_s += after_s
        self.store.now_s = self.clock.now_s()
        new, self.seen = self.streams.sent[self.seen :], len(self.streams.sent)
        by_stream = {agent.stream: agent for agent in self.agents.values()}
        for stream, message in new:
            if isinstance(message, GrantBatch) and stream in by_stream:
                by_stream[stream].take(message)
            if isinstance(message, Welcome) and stream in by_stream:
                by_stream[stream].term = message.term
        for agent in self.agents.values():
            self.inbox.put(NodeReported(agent.stream, NodeName(agent.name), agent.report(), self.clock.now_s()))
        self.controller.take_in()
        await self.controller.tick(self.clock.now_s())
        return self.ticks[-1]

    def plan(self, targets_w: int | None = None) -> Plan:
        """Make the plan that the next tick uses; every GPU at `targets_w` watts, the water-fill's without."""
        request = plan_request(self.controller.state, self.controller.policy, self.clock.now_s())
        plan = _plan(request)
        if targets_w is not None:
            plan = replace(plan, targets_w=dict.fromkeys(plan.targets_w, targets_w))
        self.planner.plan = plan
        return plan

    async def settled(self, name: str = "gpu-01") -> FakeAgent:
        """Begin a reign, connect an agent, and tick until its GPUs are known and admitted."""
        await self.reign_begins()
        agent = self.connect(name)
        await self.tick()
        await self.lead()
        await self.tick()
        await self.lead()
        return agent


def _plan(request: PlanRequest) -> Plan:
    return WaterfillPlanner().plan(request, 1.0)
