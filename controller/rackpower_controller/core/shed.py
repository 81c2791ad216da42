"""Meeting a limit now: which caps must come down, by priority, without the solver.

A lower in flight counts as done for a short while, so that one cut makes one wave; one that is not acknowledged in
time counts at the old cap again, and others make room.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rackpower_common.model.identity import DomainName, GpuId, NodeName
from rackpower_common.model.policy import Policy
from rackpower_controller.core.check import loads_w
from rackpower_controller.core.ledger import Account, DomainLedger, node_load_w
from rackpower_controller.core.planning import PlanRequest
from rackpower_controller.core.requests import Range, build_request, frozen
from rackpower_controller.core.state import GpuBook, NodeState, RackState
from rackpower_controller.core.waterfill import waterfill


@dataclass(frozen=True, slots=True)
class Shed:
    """Caps in watts that limits need, and by how many watts domains stay above their ceiling all the same."""

    caps_w: Mapping[GpuId, int] = field(default_factory=dict)
    unmeetable_w: Mapping[DomainName, int] = field(default_factory=dict)


def deficits(books: Account) -> Mapping[DomainName, DomainLedger]:
    """Return the domains that stand above their ceiling because of a fact from outside."""
    return {name: domain for name, domain in books.domains.items() if domain.deficit_w > 0}


def node_deficits(books: Account) -> tuple[NodeName, ...]:
    """Return the nodes that stand above a limit of their own."""
    over = []
    for name, node in books.nodes.items():
        spec = books.index.nodes.get(name)
        if spec is None or spec.limit_w is None:
            continue
        if node_load_w(spec, node.gpus_shed_w, node.beside_w) > spec.limit_w:
            over.append(name)
    return tuple(over)


def shed(state: RackState, policy: Policy, books: Account, commanded_w: Mapping[GpuId, int], now_s: float) -> Shed:
    """Return the caps that meet every limit again, the lowest priority giving way first (invariants 4 and 12).

    Args:
        state: The state.
        policy: The policy in force.
        books: The account of the state.
        commanded_w: The cap that each GPU holds or was last told, in watts.
        now_s: The time.
    """
    if not deficits(books) and not node_deficits(books):
        return Shed()
    ranges = {
        gpu: Range(books.index.least_w(book.node, book.device), books.sheds_w[gpu], books.sheds_w[gpu])
        for gpu, book in state.gpus.items()
        if _can_give(book, books, commanded_w, now_s)
    }
    node_gpus_w = {name: node.gpus_shed_w for name, node in books.nodes.items()}
    request = build_request(state, policy, books, ranges, node_gpus_w)
    caps_w = dict(zip(request.membership, waterfill(request, by_priority=True), strict=True))
    needed_w = {gpu: cap_w for gpu, cap_w in caps_w.items() if cap_w < commanded_w[gpu]}
    return Shed(needed_w, _still_missing(request, caps_w))


def _can_give(book: GpuBook, books: Account, commanded_w: Mapping[GpuId, int], now_s: float) -> bool:
    node = books.nodes.get(book.node)
    if node is None or node.state not in (NodeState.LIVE, NodeState.WAITING) or not book.device.cappable:
        return False
    if book.gpu not in commanded_w or frozen(book, now_s):
        return False
    counted_w = books.sheds_w[book.gpu]
    return books.index.least_w(book.node, book.device) < counted_w <= commanded_w[book.gpu]


def _still_missing(request: PlanRequest, caps_w: Mapping[GpuId, int]) -> dict[DomainName, int]:
    """Return by how many watts domains stay above their ceiling with `caps_w` in force."""
    loads = loads_w(request, tuple(caps_w[gpu] for gpu in request.membership))
    return {
        domain.name: load_w - domain.ceiling_w
        for domain, load_w in zip(request.domains, loads, strict=False)
        if load_w > domain.ceiling_w
    }
