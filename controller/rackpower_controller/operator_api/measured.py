"""What was measured, summed up the tree; unknown stays unknown, for a sum that leaves something out is a lie. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rackpower_common.model.identity import DomainName, GpuId, NodeName
from rackpower_common.model.policy import Node
from rackpower_controller.core.ledger import Account, NodeAccount
from rackpower_controller.core.reports import METER_FRESH_S
from rackpower_controller.core.state import GpuBook, NodeState, RackState

REPORTING = (NodeState.LIVE, NodeState.WAITING, NodeState.UNKNOWN)
"""States in which a node's last report is of now, if it came in time."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Draws in watts, None where unknown: of GPUs, of nodes and domains at their inputs."""

    gpus_w: Mapping[GpuId, int | None]
    nodes_w: Mapping[NodeName, int | None]
    domains_w: Mapping[DomainName, int | None]
    fresh: frozenset[NodeName]
    """Nodes whose last report is of now."""


def measured(state: RackState, books: Account, now_s: float, silent_after_s: float) -> Measured:
    """Return what everything draws now.

    Args:
        state: The state.
        books: Its account.
        now_s: The time, in seconds.
        silent_after_s: An older report says nothing about now, in seconds.
    """
    fresh = frozenset(name for name, node in books.nodes.items() if _is_fresh(state, name, node, now_s, silent_after_s))
    by_node: dict[NodeName, list[GpuBook]] = {}
    gpus_w: dict[GpuId, int | None] = {}
    for gpu, book in state.gpus.items():
        by_node.setdefault(book.node, []).append(book)
        heard_now = book.node in fresh and book.last is not None
        gpus_w[gpu] = book.last.power.average_w if heard_now and book.last is not None else None
    nodes_w = {
        name: _node_w(state, books, name, [gpus_w[book.gpu] for book in by_node.get(name, [])], fresh)
        for name in books.nodes
    }
    return Measured(gpus_w, nodes_w, _domains_w(state, books, nodes_w, now_s), fresh)


def _is_fresh(state: RackState, name: NodeName, node: NodeAccount, now_s: float, silent_after_s: float) -> bool:
    book = state.nodes.get(name)
    if book is None or book.stream is None or book.last_report_s is None:
        return False
    return node.state in REPORTING and now_s - book.last_report_s <= silent_after_s


def place_of(state: RackState, books: Account, name: NodeName) -> Node:
    """Return what the policy in force, or else the last one that knew it, says of a node."""
    spec = books.index.nodes.get(name)
    return spec if spec is not None else state.former_nodes[name][0]


def _node_w(
    state: RackState, books: Account, name: NodeName, gpus_w: list[int | None], fresh: frozenset[NodeName]
) -> int | None:
    if books.nodes[name].state is NodeState.OFF:
        return 0
    book = state.nodes.get(name)
    if name not in fresh or book is None:
        return None
    if book.node_power_w is not None:
        return book.node_power_w
    known_w = [watts for watts in gpus_w if watts is not None]
    if not known_w or len(known_w) < len(gpus_w):
        return None
    spec = place_of(state, books, name)
    return math.ceil(spec.loss * (sum(known_w) + books.nodes[name].beside_w))


def _domains_w(
    state: RackState, books: Account, nodes_w: Mapping[NodeName, int | None], now_s: float
) -> dict[DomainName, int | None]:
    below_w: dict[DomainName, float] = {}
    unknown: set[DomainName] = set()
    for name, node_w in nodes_w.items():
        for place in books.places(name, state):
            for feed in place.feeds:
                if node_w is None:
                    unknown.add(feed.domain)
                else:
                    below_w[feed.domain] = below_w.get(feed.domain, 0.0) + node_w * feed.share
    domains_w: dict[DomainName, int | None] = {}
    for domain in books.index.bottom_up:
        meter = state.meters.get(domain.name)
        load_w: int | None
        if meter is not None and now_s - meter.at_s <= METER_FRESH_S:
            load_w = meter.power_w
        elif domain.name in unknown:
            load_w = None
        else:
            load_w = math.ceil(domain.loss * (below_w.get(domain.name, 0.0) + domain.overhead_w))
        domains_w[domain.name] = load_w
        if domain.parent is not None and load_w is None:
            unknown.add(domain.parent)
        elif domain.parent is not None:
            below_w[domain.parent] = below_w.get(domain.parent, 0.0) + (load_w or 0)
    return domains_w
