"""A controller's shell on virtual time: the real `absorb`, `decide` and `commit` between lossy streams and a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from rackpower_common.model.identity import NodeName, StreamId, Term
from rackpower_common.model.messages import (
    AgentGoodbye,
    ControllerGoodbye,
    GoodbyeReason,
    GrantBatch,
    Hello,
    Report,
    Welcome,
    WriteError,
)
from rackpower_common.model.policy import Policy
from rackpower_controller.core.absorb import absorb
from rackpower_controller.core.commit import commit_lowers, commit_raises
from rackpower_controller.core.decide import decide
from rackpower_controller.core.decision import Decision
from rackpower_controller.core.facts import (
    ExposuresRecalled,
    Fact,
    NodeConnected,
    NodeLeft,
    NodeReported,
    PolicyChanged,
    TermTaken,
    WriteFailed,
)
from rackpower_controller.core.planning import Plan, PlanRequest
from rackpower_controller.core.requests import plan_request
from rackpower_controller.core.state import RackState
from rackpower_controller.core.waterfill import waterfill
from rackpower_sim.world.link import Network, Stream
from rackpower_sim.world.scheduler import Scheduler
from rackpower_sim.world.store import Store

PLAN_S = (0.01, 0.3)
"""How long a plan takes."""

GIVE_WAY_S = 10.0
"""How long a fenced controller stays out before it asks for a term again."""


Plans = Callable[[PlanRequest], Plan]
"""A planner in virtual time is never late: how long it takes is `PLAN_S`."""


def plan_by_waterfill(request: PlanRequest) -> Plan:
    """Plan without a solver: what the product falls back to, and quick enough for many seeds."""
    targets = dict(zip(request.membership, waterfill(request), strict=True))
    return Plan(request.revision, request.membership, request.ceilings_w, targets, "waterfill", 0.0, 0.0)


def _silence(at_s: float, words: str) -> None:
    """Nobody listens."""


class ControllerShell:
    """One controller process."""

    def __init__(
        self,
        name: str,
        policy: Policy,
        network: Network,
        store: Store,
        time: Scheduler,
        plans: Plans = plan_by_waterfill,
    ) -> None:
        self.name = name
        self.policy = policy
        self.network = network
        self.store = store
        self.time = time
        self.plans = plans
        self.alive = False
        self.retired = False
        self.life = 0
        self.state = RackState()
        self.plan: Plan | None = None
        self.streams: dict[int, Stream] = {}
        self.fenced_since_s: float | None = None
        self.sentences: list[tuple[float, str]] = []
        self.listen: Callable[[float, str], None] = _silence

    def start(self) -> None:
        """Start the process with an empty mind."""
        if self.alive or self.retired:
            return
        self.alive = True
        self.life += 1
        self.state, self.plan, self.streams, self.fenced_since_s = RackState(), None, {}, None
        files, self.policy = self.policy, self.store.policy or self.policy
        recalled = ExposuresRecalled(
            dict(self.store.exposures_w), dict(self.store.nodes), self.time.now_s, self.store.former
        )
        self._absorb(recalled)
        self.apply(files)
        self._take_term(0)
        self._tick()

    def kill(self) -> None:
        """Kill the process; its streams stay half open until the agents notice."""
        self.alive = False
        self.life += 1

    def _guard(self, action: Callable[[], None]) -> Callable[[], None]:
        life = self.life
        return lambda: action() if self.alive and self.life == life else None

    def accept(self, node: str) -> Stream | None:
        """Take a dial, None when dead or without a term."""
        if not self.alive or self.state.term is None:
            return None
        stream = self.network.open(node)
        self.streams[stream.number] = stream
        life = self.life
        stream.to_controller = lambda message: (
            self._received(stream, message) if self.alive and self.life == life else None
        )
        return stream

    def _received(self, stream: Stream, message: object) -> None:
        now_s, number, node = self.time.now_s, StreamId(stream.number), NodeName(stream.node)
        match message:
            case Hello():
                self._absorb(NodeConnected(number, stream.node, stream.node, message, now_s))
            case Report():
                self._absorb(NodeReported(number, node, message, now_s))
            case WriteError():
                self._absorb(WriteFailed(number, node, message, now_s))
            case AgentGoodbye():
                self._absorb(NodeLeft(number, node, message, now_s))
            case _:
                pass

    def _absorb(self, fact: Fact) -> None:
        absorbed = absorb(self.state, fact, self.policy)
        self.state = absorbed.state
        for answer in absorbed.answers:
            stream = self.streams.get(answer.stream)
            if stream is not None:
                message = answer.message
                if isinstance(message, Welcome):
                    message = replace(message, report_period_s=self.policy.timing.report_period_s)
                self.network.to_agent(stream, message)
                if isinstance(answer.message, ControllerGoodbye):
                    stream.open_for_controller = False
        for event in absorbed.events:
            self.listen(self.time.now_s, f"{self.name}: {event.message}")

    def apply(self, policy: Policy) -> None:
        """Put a policy in force."""
        if self.alive and policy.revision != self.policy.revision:
            self._absorb(PolicyChanged(policy, "world", self.time.now_s))
        self.policy = policy

    def _take_term(self, above: int) -> None:
        term = self.store.take_term(f"{self.name}-{self.life}", above)
        if term is not None:
            self._absorb(TermTaken(term, self.time.now_s))

    def _tick(self) -> None:
        now_s = self.time.now_s
        if self.state.term is None:
            self._take_term(0)
        if self.state.needs_term_above is not None:
            self._take_term(self.state.needs_term_above)
        decision = decide(self.state, self.plan, self.policy, now_s)
        self.listen(now_s, f"{self.name}: {decision.sentence}")
        self.state = commit_lowers(self.state, decision)
        self._send(decision.lowers)
        self._record(decision)
        self._replan()
        self.time.after(1.0, self._guard(self._tick))

    def _record(self, decision: Decision) -> None:
        """Record, commit, send: the owner does nothing else meanwhile, so here they are one instant."""
        term = self.state.term
        nodes = {gpu: self.state.gpus[gpu].node for gpu in decision.exposures_w}
        if term is None:
            return
        if self.store.record(term, dict(decision.exposures_w), nodes, decision.former, self.policy):
            self.fenced_since_s = None
            self.state = commit_raises(self.state, decision)
            self._send(decision.raises)
        elif self.store.up:
            self._fenced(term)

    def _fenced(self, term: Term) -> None:
        """Our term is not the store's: one that went back is taken anew; to another controller we give way."""
        if self.store.term.number < term.number:
            self._take_term(term.number)
            return
        if self.fenced_since_s is None:
            self.fenced_since_s = self.time.now_s
        if self.time.now_s - self.fenced_since_s < self.policy.timing.leader_ttl_s:
            return
        for stream in self.streams.values():
            self.network.to_agent(stream, ControllerGoodbye(GoodbyeReason.FENCED))
            stream.open_for_controller = False
        self.kill()
        if not self.retired:
            self.time.after(GIVE_WAY_S, self.start)

    def _send(self, batches: Mapping[NodeName, GrantBatch]) -> None:
        for name, batch in batches.items():
            number = self.state.nodes[name].stream
            stream = self.streams.get(number) if number is not None else None
            if stream is not None:
                self.network.to_agent(stream, batch)

    def _replan(self) -> None:
        request = plan_request(self.state, self.policy, self.time.now_s)
        plan = self.plans(request)

        def accept() -> None:
            self.plan = plan

        self.time.after(self.time.between(*PLAN_S), self._guard(accept))
