"""Racks to measure on: the example policy's nine nodes of eight mixed GPUs, and a rack that lives through changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rackpower_common.model.identity import DomainName, GpuId, NodeName
from rackpower_common.model.policy import Policy
from rackpower_common.policy import load
from rackpower_controller.core.curves import segments
from rackpower_controller.core.planning import Plan, PlanDomain, PlanGpu, PlanNode, PlanRequest
from rackpower_controller.core.requests import plan_request
from rackpower_controller.core.state import RackState
from rackpower_sim.world.rack import Fault, World, small_policy, with_limits

EXAMPLE = Path(__file__).parents[1] / "policies" / "examples" / "mixed-rack.yaml"
CHANGES = (0.8, 1.0, 0.7, 1.05, 0.9)
"""Every limit's factors, one after the other: a cut, back again, a deeper one."""

CHANGE_S = 20.0
WARM_UP_S = 10.0


def example_question(copies: int = 1) -> PlanRequest:
    """Return the planner's question for the example policy, side by side `copies` times.

    Args:
        copies: Rows of nine nodes of eight GPUs each.
    """
    policy = load([EXAMPLE]).policy
    domains: list[PlanDomain] = []
    nodes: list[PlanNode] = []
    gpus: list[PlanGpu] = []
    for copy in range(copies):
        _add_row(policy, copy, domains, nodes, gpus)
    in_order = tuple(sorted(gpus, key=lambda gpu: gpu.gpu))
    return PlanRequest(policy.revision, policy.objective, tuple(domains), tuple(nodes), in_order)


def _add_row(policy: Policy, copy: int, domains: list[PlanDomain], nodes: list[PlanNode], gpus: list[PlanGpu]) -> None:
    classes = {gpu_class.name: gpu_class for gpu_class in policy.classes}
    place: dict[DomainName, int] = {}
    waiting = list(policy.domains)
    while waiting:  # parents come before children
        domain = waiting.pop(0)
        if domain.parent is not None and domain.parent not in place:
            waiting.append(domain)
            continue
        place[domain.name] = len(domains)
        parent = place[domain.parent] if domain.parent is not None else -1
        name = DomainName(f"{domain.name}-{copy}")
        domains.append(PlanDomain(name, parent, domain.ceiling_w, domain.overhead_w, domain.loss))
    for node in policy.nodes:
        feeds = tuple((place[feed.domain], feed.share) for feed in node.feeds)
        for number, kind in enumerate(gpus_of.gpu_class for gpus_of in node.gpus for _ in range(gpus_of.count)):
            gpu_class = classes[kind]
            lo_w, hi_w = gpu_class.min_cap_w, gpu_class.max_cap_w
            pieces = segments(gpu_class.curve, lo_w, hi_w, node.weight)
            gpu = GpuId(f"GPU-{copy:02}-{node.name}-{number}")
            gpus.append(PlanGpu(gpu, len(nodes), lo_w, hi_w, pieces, len(nodes), node.priority))
        name_of_node = NodeName(f"{node.name}-{copy}")
        nodes.append(PlanNode(name_of_node, feeds, node.overhead_w, node.loss, node.limit_w))


@dataclass(frozen=True, slots=True)
class Moment:
    """What a controller knew at one tick."""

    state: RackState
    plan: Plan | None
    policy: Policy
    now_s: float

    @property
    def question(self) -> PlanRequest:
        """Return what it would ask the planner."""
        return plan_request(self.state, self.policy, self.now_s)


def moments(count: int, seed: int = 1) -> list[Moment]:
    """Return ticks of a simulated rack of 72 GPUs whose limits change, a virtual second apart.

    Args:
        count: How many.
        seed: The run's.
    """
    policy = small_policy(nodes=9, gpus=8)
    world = World(seed, policy)
    changes = [
        (WARM_UP_S + number * CHANGE_S, "", _limits(policy, CHANGES[number % len(CHANGES)], number))
        for number in range(1, 1 + int(count / CHANGE_S))
    ]
    world.run(WARM_UP_S, changes)
    return list(_ticks(world, count))


def _ticks(world: World, count: int) -> Iterator[Moment]:
    (controller,) = world.controllers
    for second in range(count):
        world.time.run_until(WARM_UP_S + second)
        yield Moment(controller.state, controller.plan, controller.policy, world.time.now_s)


def _limits(policy: Policy, factor: float, number: int) -> Fault:
    return lambda world: world.apply(with_limits(policy, factor, f"change-{number}"))
