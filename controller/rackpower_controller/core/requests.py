"""The books as a question: which caps may move, between what, and what all else holds fixed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rackpower_common.model.identity import DomainName, GpuId, NodeName
from rackpower_common.model.policy import Node, Policy
from rackpower_controller.core.curves import segments
from rackpower_controller.core.ledger import Account, account
from rackpower_controller.core.planning import Plan, PlanDomain, PlanGpu, PlanNode, PlanRequest, Segment
from rackpower_controller.core.state import GpuBook, NodeState, RackState

REFUSALS_UNTIL_FROZEN = 3
"""A GPU that refused so many writes in a row is planned as fixed until one is accepted again."""

REFUSED_RETRY_S = 60.0
"""A frozen GPU is tried again after so long."""


@dataclass(frozen=True, slots=True)
class Range:
    """What a cap may be, in watts; it counts at `counted_w` in the view that is asked."""

    lo_w: int
    hi_w: int
    counted_w: int


def frozen(book: GpuBook, now_s: float) -> bool:
    """Whether a GPU has refused too often to be planned with."""
    recently = book.refused_at_s is not None and now_s - book.refused_at_s < REFUSED_RETRY_S
    return book.refusals >= REFUSALS_UNTIL_FROZEN and recently


def plannable(state: RackState, books: Account, now_s: float) -> list[GpuBook]:
    """Return the GPUs whose caps a plan may choose, sorted by UUID."""
    chosen = []
    for gpu in sorted(state.gpus):
        book = state.gpus[gpu]
        node = books.nodes.get(book.node)
        if node is None or node.state is not NodeState.LIVE or not book.heard:
            continue
        if book.device.cappable and book.enforced_w is not None and not frozen(book, now_s):
            chosen.append(book)
    return chosen


def plan_range(book: GpuBook, books: Account) -> Range:
    """Return what a plan may choose for a GPU: the stricter of device and class, below any foreign ceiling."""
    index = books.index
    lo_w = index.least_w(book.node, book.device)
    hi_w = index.highest_grant_w(book.node, book.device)
    if book.ceiling_w is not None:
        hi_w = max(lo_w, min(hi_w, book.ceiling_w))
    return Range(lo_w, hi_w, books.sheds_w[book.gpu])


def plan_request(state: RackState, policy: Policy, now_s: float) -> PlanRequest:
    """Return the question for the planner: every reachable GPU over its whole range.

    All else is fixed at what it counts for when limits are to be met, so that a node not yet heard is no reason to
    lower the others; raises are gated by the stricter ledger anyway.
    """
    books = account(state, policy, now_s)
    ranges = {book.gpu: plan_range(book, books) for book in plannable(state, books, now_s)}
    return build_request(state, policy, books, ranges, {name: node.gpus_shed_w for name, node in books.nodes.items()})


def accepts(plan: Plan | None, state: RackState, policy: Policy, books: Account, now_s: float) -> bool:
    """Whether a plan was made for the policy, the GPUs and the limits in force; an older one may only lower."""
    if plan is None or plan.revision != policy.revision:
        return False
    if plan.membership != tuple(book.gpu for book in plannable(state, books, now_s)):
        return False
    return plan.ceilings_w == tuple(domain.ceiling_w for domain in reversed(books.index.bottom_up))


def build_request(
    state: RackState,
    policy: Policy,
    books: Account,
    ranges: Mapping[GpuId, Range],
    node_gpus_w: Mapping[NodeName, int],
) -> PlanRequest:
    """Return a request in which the GPUs of `ranges` may move and all else of `node_gpus_w` stands.

    Args:
        state: The state.
        policy: The policy in force.
        books: The account of the state.
        ranges: What may move, in watts.
        node_gpus_w: Σ of every node's GPUs in the view that is asked, in watts.
    """
    order = list(reversed(books.index.bottom_up))
    place = {domain.name: number for number, domain in enumerate(order)}
    domains = tuple(
        PlanDomain(
            name=domain.name,
            parent=place[domain.parent] if domain.parent is not None else -1,
            ceiling_w=domain.ceiling_w,
            fixed_w=domain.overhead_w + _metered_w(state, domain.name, domain.loss),
            loss=domain.loss,
        )
        for domain in order
    )
    moving_w: dict[NodeName, int] = {}
    for gpu, bounds in ranges.items():
        name = state.gpus[gpu].node
        moving_w[name] = moving_w.get(name, 0) + bounds.counted_w
    names = list(books.nodes)
    nodes = tuple(_plan_node(state, books, name, node_gpus_w[name] - moving_w.get(name, 0), place) for name in names)
    numbers = {name: number for number, name in enumerate(names)}
    alike: dict[tuple[object, ...], int] = {}
    gpus = tuple(_plan_gpu(state.gpus[gpu], books, ranges[gpu], numbers, alike) for gpu in sorted(ranges))
    return PlanRequest(policy.revision, policy.objective, domains, nodes, gpus)


def _metered_w(state: RackState, name: DomainName, loss: float) -> int:
    meter = state.meters.get(name)
    return math.ceil(meter.extra_w / loss) if meter is not None else 0


def _plan_node(
    state: RackState, books: Account, name: NodeName, fixed_gpus_w: int, place: Mapping[DomainName, int]
) -> PlanNode:
    spec = books.index.nodes.get(name)
    former: tuple[Node, ...] = state.former_nodes.get(name, ())
    specs = [spec, *former] if spec is not None else list(former)
    shares: dict[int, float] = {}
    for one in specs:
        for feed in one.feeds:
            if feed.domain in place:
                number = place[feed.domain]
                shares[number] = max(shares.get(number, 0.0), feed.share)
    return PlanNode(
        name=name,
        feeds=tuple(sorted(shares.items())),
        fixed_w=fixed_gpus_w + books.nodes[name].beside_w,
        loss=max(one.loss for one in specs),
        ceiling_w=spec.limit_w if spec is not None else None,
    )


def _plan_gpu(
    book: GpuBook,
    books: Account,
    bounds: Range,
    numbers: Mapping[NodeName, int],
    alike: dict[tuple[object, ...], int],
) -> PlanGpu:
    spec = books.index.nodes.get(book.node)
    gpu_class = books.index.class_of(book.node, book.device)
    weight = spec.weight if spec is not None else 1.0
    pieces: tuple[Segment, ...] = ()
    if gpu_class is not None and bounds.hi_w > bounds.lo_w:
        pieces = segments(gpu_class.curve, bounds.lo_w, bounds.hi_w, weight)
    name = gpu_class.name if gpu_class is not None else book.device.model
    key = (book.node, name, bounds.lo_w, bounds.hi_w)
    return PlanGpu(
        gpu=book.gpu,
        node=numbers[book.node],
        lo_w=bounds.lo_w,
        hi_w=bounds.hi_w,
        segments=pieces,
        alike=alike.setdefault(key, len(alike)),
        priority=spec.priority if spec is not None else 0,
    )
