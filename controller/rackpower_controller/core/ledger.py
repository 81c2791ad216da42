"""The ledger: what may be drawn, summed up the tree in two views (see `exposure`). Every rounding is upward."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rackpower_common.model.identity import DomainName, GpuId, NodeName
from rackpower_common.model.policy import Node, Policy
from rackpower_controller.core.exposure import exposure_w, node_state, shed_w
from rackpower_controller.core.rack_index import RackIndex, rack_index
from rackpower_controller.core.state import GpuBook, NodeBook, NodeState, RackState


@dataclass(frozen=True, slots=True)
class DomainLedger:
    """A domain's account in watts.

    `load_w` is the ledger that gates raises; `recalled_w` the one that sheds; `deficit_w` how far the latter stands
    above `ceiling_w`; `held_w` what nodes that cannot be spoken to hold of `load_w`, before losses.
    """

    load_w: int
    ceiling_w: int
    recalled_w: int
    deficit_w: int
    held_w: int


def overhead_w(spec: Node, book: NodeBook | None, state: NodeState) -> int:
    """Return what a node counts for beside its GPUs, in watts; one unseen may yet boot, its fans at full speed."""
    if state in (NodeState.OFF, NodeState.UNHEARD):
        return max(spec.overhead_w, spec.boot_overhead_w)
    return spec.overhead_w + (book.extra_overhead_w if book is not None else 0)


def node_load_w(spec: Node, gpus_w: int, beside_w: int) -> int:
    """Return a node's load at its supplies' input, in watts."""
    return math.ceil(spec.loss * (gpus_w + beside_w))


def class_sum_w(spec: Node, index: RackIndex, *, most: bool) -> int:
    """Return Σ of the policy's class maxima (`most`) or minima over a node's GPUs, in watts."""
    total_w = 0
    for gpus in spec.gpus:
        gpu_class = index.classes[gpus.gpu_class]
        total_w += gpus.count * (gpu_class.max_cap_w if most else gpu_class.min_cap_w)
    return total_w


def domain_loads_w(index: RackIndex, node_loads_w: Mapping[DomainName, float]) -> dict[DomainName, int]:
    """Return every domain's load in watts, from the loads that nodes put directly on domains."""
    children_w: dict[DomainName, float] = dict(node_loads_w)
    loads_w: dict[DomainName, int] = {}
    for domain in index.bottom_up:
        load_w = math.ceil(domain.loss * (children_w.get(domain.name, 0.0) + domain.overhead_w))
        loads_w[domain.name] = load_w
        if domain.parent is not None:
            children_w[domain.parent] = children_w.get(domain.parent, 0.0) + load_w
    return loads_w


def _gpus_by_node(state: RackState) -> dict[NodeName, list[GpuBook]]:
    by_node: dict[NodeName, list[GpuBook]] = {}
    for book in state.gpus.values():
        by_node.setdefault(book.node, []).append(book)
    return by_node


@dataclass(frozen=True, slots=True)
class NodeAccount:
    """A node's account in watts: what its GPUs count for in both views, and what it draws beside them."""

    state: NodeState
    gpus_w: int
    gpus_shed_w: int
    beside_w: int


@dataclass(frozen=True, slots=True)
class Account:
    """The rack's books added up at one moment, in watts; `exposures_w` for raises, `sheds_w` for lowered limits."""

    index: RackIndex
    exposures_w: Mapping[GpuId, int]
    sheds_w: Mapping[GpuId, int]
    nodes: Mapping[NodeName, NodeAccount]
    domains: Mapping[DomainName, DomainLedger]

    def places(self, name: NodeName, state: RackState) -> list[Node]:
        """Return where a node's load counts."""
        return _places(self.index.nodes.get(name), state.former_nodes.get(name, ()))

    def carriers(self, gpu: GpuId, state: RackState) -> frozenset[DomainName]:
        """Return every domain in which a GPU counts."""
        name = state.gpus[gpu].node
        former = state.former_nodes.get(name)
        if former is None:
            return self.index.above(name)
        feeds = [feed for place in self.places(name, state) for feed in place.feeds]
        return frozenset(above for feed in feeds for above in self.index.ancestors(feed.domain))


def missing_w(spec: Node, books: list[GpuBook], book: NodeBook | None, index: RackIndex) -> int:
    """Return what GPUs that the policy names and the node never listed count for, in watts: their class's maximum."""
    if book is not None and book.devices_complete:
        return 0
    wanted = [index.classes[gpus.gpu_class] for gpus in spec.gpus for _ in range(gpus.count)]
    for gpu in books:
        gpu_class = index.class_of(gpu.node, gpu.device)
        if gpu_class in wanted:
            wanted.remove(gpu_class)
        elif wanted:
            wanted.pop()
    return sum(gpu_class.max_cap_w for gpu_class in wanted)


def account(state: RackState, policy: Policy, now_s: float) -> Account:
    """Add up the books (invariants 1, 3, 9 and 10)."""
    index = rack_index(policy)
    by_node = _gpus_by_node(state)
    exposures_w = {gpu: exposure_w(book, policy) for gpu, book in state.gpus.items()}
    sheds_w = {gpu: shed_w(book, policy, now_s, exposures_w[gpu]) for gpu, book in state.gpus.items()}
    nodes: dict[NodeName, NodeAccount] = {}
    views = _Views({}, {}, {})
    for name in dict.fromkeys([*index.nodes, *state.former_nodes]):
        spec, book, books = index.nodes.get(name), state.nodes.get(name), by_node.get(name, [])
        former = state.former_nodes.get(name, ())
        seen = node_state(book, spec, policy, now_s)
        anyhow = spec if spec is not None else former[0]
        own_w, own_shed_w = sum(exposures_w[gpu.gpu] for gpu in books), sum(sheds_w[gpu.gpu] for gpu in books)
        least_w = class_sum_w(spec, index, most=False) if spec is not None else 0
        if seen is NodeState.OFF:
            own_w = own_shed_w = least_w
        else:
            absent_w = missing_w(spec, books, book, index) if spec is not None else _absent_w(state, name, book)
            own_w, own_shed_w = own_w + absent_w, own_shed_w + absent_w
        if seen is NodeState.UNHEARD or (seen is NodeState.UNKNOWN and (book is None or not book.heard)):
            own_shed_w = min(own_shed_w, max(least_w, _recalled_w(state, name, books, own_shed_w)))
        nodes[name] = NodeAccount(seen, own_w, own_shed_w, overhead_w(anyhow, book, seen))
        for place in _places(spec, former):
            views.put(place, nodes[name], index)
    return Account(index, exposures_w, sheds_w, nodes, _domain_ledgers(state, index, views))


@dataclass(frozen=True, slots=True)
class _Views:
    """What nodes put directly on domains, in watts, while the books are added up."""

    raises_w: dict[DomainName, float]
    sheds_w: dict[DomainName, float]
    held_w: dict[DomainName, float]

    def put(self, place: Node, node: NodeAccount, index: RackIndex) -> None:
        load_w = node_load_w(place, node.gpus_w, node.beside_w)
        shed_load_w = node_load_w(place, node.gpus_shed_w, node.beside_w)
        spoken_to = node.state in (NodeState.LIVE, NodeState.WAITING)
        for feed in place.feeds:
            if feed.domain not in index.domains:
                continue
            self.raises_w[feed.domain] = self.raises_w.get(feed.domain, 0.0) + load_w * feed.share
            self.sheds_w[feed.domain] = self.sheds_w.get(feed.domain, 0.0) + shed_load_w * feed.share
            for above in () if spoken_to else index.ancestors(feed.domain):
                self.held_w[above] = self.held_w.get(above, 0.0) + node.gpus_w * feed.share


def _absent_w(state: RackState, name: NodeName, book: NodeBook | None) -> int:
    """Return what the GPUs that a dropped node never listed count for, in watts; a complete list frees them."""
    return 0 if book is not None and book.devices_complete else state.former_absent_w.get(name, 0)


def _recalled_w(state: RackState, name: NodeName, books: list[GpuBook], otherwise_w: int) -> int:
    """Return what an unheard node counts for when limits are to be met, in watts: its record, else its maximum.

    What was in force before we came was safe: without a record it is no reason to shed until a limit was lowered.
    """
    if books and all(book.recalled_w is not None for book in books):
        return sum(book.recalled_w or 0 for book in books)
    if name in state.recalled_w:
        return state.recalled_w[name]
    return otherwise_w if state.limits_lowered else 0


def _places(spec: Node | None, former: tuple[Node, ...]) -> list[Node]:
    """Return where a node's load counts: its place in the policy, and former places on other domains."""
    places = [spec] if spec is not None else []
    taken = {feed.domain for place in places for feed in place.feeds}
    for old in former:
        if not taken.issuperset(feed.domain for feed in old.feeds):
            places.append(old)
            taken |= {feed.domain for feed in old.feeds}
    return places


def _domain_ledgers(state: RackState, index: RackIndex, views: _Views) -> dict[DomainName, DomainLedger]:
    loads_w, sheds_w = domain_loads_w(index, views.raises_w), domain_loads_w(index, views.sheds_w)
    ledgers: dict[DomainName, DomainLedger] = {}
    for name, domain in index.domains.items():
        meter = state.meters.get(name)
        extra_w = meter.extra_w if meter is not None else 0
        recalled_w = sheds_w[name] + extra_w
        ledgers[name] = DomainLedger(
            load_w=loads_w[name] + extra_w,
            ceiling_w=domain.ceiling_w,
            recalled_w=recalled_w,
            deficit_w=max(0, recalled_w - domain.ceiling_w),
            held_w=math.ceil(views.held_w.get(name, 0.0)),
        )
    return ledgers


def ledger(state: RackState, policy: Policy, now_s: float) -> Mapping[DomainName, DomainLedger]:
    """Return every domain's account."""
    return account(state, policy, now_s).domains
