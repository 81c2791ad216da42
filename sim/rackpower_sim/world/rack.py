"""One run: a rack, its controllers, a seed and a list of faults; the checker looks after every event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rackpower_common.model.device import Device, Vendor
from rackpower_common.model.identity import ClassName, DomainName, GpuId, NodeName, Revision
from rackpower_common.model.policy import Curve, Domain, Feed, GpuClass, Node, NodeGpus, Policy
from rackpower_sim.checkers import BudgetChecker, Excess
from rackpower_sim.world.agents import AgentShell
from rackpower_sim.world.controllers import ControllerShell, Plans, plan_by_waterfill
from rackpower_sim.world.hardware import Node as Hardware
from rackpower_sim.world.link import Network, Stream, Weather
from rackpower_sim.world.scheduler import Scheduler
from rackpower_sim.world.store import Store

MODELS = {
    "big": GpuClass(ClassName("big"), ("Big*",), 200, 1000, 1000, 1000, 60, Curve(940.0, 1.4, 1.8, 400.0, 200.0)),
    "small": GpuClass(ClassName("small"), ("Small*",), 150, 700, 700, 700, 60, Curve(650.0, 2.0, 2.6, 250.0, 150.0)),
}
GRACE_S = 9.0
"""When a lower limit binds: settle, two reports, and one repeat of a lost grant."""

Fault = Callable[["World"], None]


def small_policy(nodes: int, gpus: int, share: float = 0.65, revision: str = "one", *, crossed: bool = False) -> Policy:
    """Return a policy of two PDUs under one rack, worth `share` of nameplate; `crossed` nodes hang on both."""
    specs, nameplate_w = [], {"pdu-a": 0.0, "pdu-b": 0.0}
    for number in range(nodes):
        kind = "big" if number % 2 == 0 else "small"
        pdu = "pdu-a" if number % 3 else "pdu-b"
        spec = Node(
            name=NodeName(f"node-{number}"),
            feeds=_both(pdu) if crossed and number % 4 else (Feed(DomainName(pdu), 1.0),),
            gpus=(NodeGpus(ClassName(kind), gpus),),
            overhead_w=200,
            boot_overhead_w=250,
            loss=1.06,
            priority=50 + number % 3,
        )
        specs.append(spec)
        for feed in spec.feeds:
            load_w = spec.loss * (gpus * MODELS[kind].max_cap_w + spec.overhead_w)
            nameplate_w[feed.domain] += feed.share * load_w
    total_w = int(share * sum(nameplate_w.values()))
    domains = [_domain("rack", None, total_w)]
    domains += [_domain(name, "rack", int(0.8 * watts) + 400) for name, watts in nameplate_w.items()]
    return Policy(Revision(revision), tuple(domains), tuple(specs), tuple(MODELS.values()))


def _both(pdu: str) -> tuple[Feed, ...]:
    """Return feeds that put a node's load on both PDUs, unevenly."""
    other = "pdu-a" if pdu == "pdu-b" else "pdu-b"
    return (Feed(DomainName(pdu), 0.7), Feed(DomainName(other), 0.3))


def _domain(name: str, parent: str | None, limit_w: int) -> Domain:
    above = DomainName(parent) if parent is not None else None
    return Domain(DomainName(name), above, "pdu" if parent else "rack", limit_w, int(0.03 * limit_w) + 1, 0, 1.0)


def with_limits(policy: Policy, factor: float, revision: str) -> Policy:
    """Return a policy with every limit scaled."""
    domains = tuple(
        replace(domain, limit_w=int(domain.limit_w * factor), headroom_w=int(domain.headroom_w * factor) + 1)
        for domain in policy.domains
    )
    return replace(policy, revision=Revision(revision), domains=domains)


@dataclass(slots=True)
class Outcome:
    """What a run showed; `timeline` is for people."""

    excesses: list[Excess]
    highest_share: float
    enforced_w: dict[GpuId, int]
    targets_w: dict[GpuId, int]
    timeline: list[str] = field(default_factory=list)


class World:
    """The rack in virtual time."""

    def __init__(
        self,
        seed: int,
        policy: Policy,
        weather: Weather | None = None,
        controllers: int = 1,
        planner: Callable[[], Plans] = lambda: plan_by_waterfill,
    ) -> None:
        self.time = Scheduler(seed)
        self.policy = policy
        self.network = Network(self.time, weather or Weather())
        self.store = Store()
        self.timeline: list[str] = []
        self.hardware: dict[str, Hardware] = {}
        self.agents: dict[str, AgentShell] = {}
        for spec in policy.nodes:
            devices = tuple(
                self._device(spec, kind.gpu_class, number) for kind in spec.gpus for number in range(kind.count)
            )
            self.hardware[spec.name] = Hardware(spec.name, devices, self.time)
            self.agents[spec.name] = AgentShell(self.hardware[spec.name], self.network, self.time, self._dial)
        self.controllers = [
            ControllerShell(f"controller-{number}", policy, self.network, self.store, self.time, planner())
            for number in range(controllers)
        ]
        for controller in self.controllers:
            controller.listen = self.note
        self.checker = BudgetChecker(policy, GRACE_S)
        self.described = {spec.name: spec for spec in policy.nodes}
        self.places = dict(self.described)
        self.time.after_each = self._look
        self._measure()

    @staticmethod
    def _device(spec: Node, kind: ClassName, number: int) -> Device:
        gpu_class = MODELS[kind]
        return Device(
            gpu=GpuId(f"GPU-{spec.name}-{number}"),
            vendor=Vendor.NVIDIA,
            model=f"{kind.title()} {number % 1}",
            pci_address=f"0000:{number:02x}:00.0",
            min_cap_w=gpu_class.min_cap_w,
            max_cap_w=gpu_class.max_cap_w,
            default_cap_w=gpu_class.default_cap_w,
        )

    def note(self, at_s: float, words: str) -> None:
        """Add a line to the timeline."""
        self.timeline.append(f"{at_s:9.3f} s  {words}")

    def _dial(self, node: str) -> Stream | None:
        order = list(self.controllers)
        self.time.random.shuffle(order)
        if node in self.network.cut_to_controller:
            return None
        for controller in order:
            stream = controller.accept(node)
            if stream is not None:
                return stream
        return None

    def _measure(self) -> None:
        for node in self.hardware.values():
            node.look()
        self.time.after(0.25, self._measure)

    def _look(self) -> None:
        draws = {name: float(node.could_draw_w()) for name, node in self.hardware.items()}
        self.checker.look(self.time.now_s, draws, self.places.values())

    def power_cycle(self, name: NodeName) -> None:
        """Cycle a node's power; if the policy moved it, this is when its cables are moved."""
        self.agents[name].kill()
        self.hardware[name].reboot()
        moved = next((spec for spec in self.policy.nodes if spec.name == name), None)
        if moved is not None:
            self.places[name] = moved

    def apply(self, policy: Policy) -> None:
        """Put a policy in force on every controller, and tell the checker."""
        self.checker.policy_changed(policy, self.time.now_s)
        self.policy = policy
        for controller in self.controllers:
            controller.apply(policy)

    def run(self, seconds: float, faults: list[tuple[float, str, Fault]] | None = None) -> Outcome:
        """Start everything and run, with faults at their times."""
        for agent in self.agents.values():
            self.time.after(self.time.between(0.0, 2.0), agent.start)
        self.time.after(0.5, self.controllers[0].start)
        for at_s, words, fault in faults or []:
            self.time.at(at_s, self._fault(words, fault))
        self.time.run_until(seconds)
        return self.outcome()

    def _fault(self, words: str, fault: Fault) -> Callable[[], None]:
        def strike() -> None:
            if words:
                self.note(self.time.now_s, f"FAULT {words}")
            fault(self)

        return strike

    def outcome(self) -> Outcome:
        """Return what was seen so far."""
        enforced = {gpu: true.enforced_w for node in self.hardware.values() for gpu, true in node.gpus.items()}
        leader = next((one for one in reversed(self.controllers) if one.alive and one.plan is not None), None)
        targets = dict(leader.plan.targets_w) if leader is not None and leader.plan is not None else {}
        return Outcome(self.checker.excesses, self.checker.highest_share, enforced, targets, self.timeline)
