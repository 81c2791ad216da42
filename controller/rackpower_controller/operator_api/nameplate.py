"""How many GPUs the same limits would hold without capping: what an operator compares with. Pure."""

from __future__ import annotations

import math

from rackpower_common.model.identity import DomainName
from rackpower_common.model.policy import Node, Policy
from rackpower_controller.core.ledger import domain_loads_w, node_load_w
from rackpower_controller.core.rack_index import RackIndex, rack_index

_remembered: list[tuple[Policy, int]] = []


def gpus_at_nameplate(policy: Policy) -> int:
    """Return how many of the policy's GPUs fit its limits at their default caps, with every overhead counted.

    Nodes are filled in the order of watts a GPU, least first, so that the number is not made small; a node without a
    GPU is not built and has no overhead. The last few policies are remembered by identity.
    """
    for known, count in _remembered:
        if known is policy:
            return count
    count = _count(policy)
    _remembered.insert(0, (policy, count))
    del _remembered[4:]
    return count


def _count(policy: Policy) -> int:
    index = rack_index(policy)
    on_domains_w: dict[DomainName, float] = {}
    total = 0
    for node in sorted(policy.nodes, key=lambda node: (_watts_a_gpu(node, index), node.name)):
        caps_w = _default_caps_w(node, index)
        fitting, most = 0, len(caps_w)
        while fitting < most:
            middle = (fitting + most + 1) // 2
            if _fits(node, sum(caps_w[:middle]), on_domains_w, index):
                fitting = middle
            else:
                most = middle - 1
        if fitting:
            on_domains_w = _with_node(node, sum(caps_w[:fitting]), on_domains_w)
            total += fitting
    return total


def _default_caps_w(node: Node, index: RackIndex) -> list[int]:
    return sorted(index.classes[gpus.gpu_class].default_cap_w for gpus in node.gpus for _ in range(gpus.count))


def _watts_a_gpu(node: Node, index: RackIndex) -> float:
    caps_w = _default_caps_w(node, index)
    return node_load_w(node, sum(caps_w), node.overhead_w) / len(caps_w) if caps_w else math.inf


def _with_node(node: Node, gpus_w: int, on_domains_w: dict[DomainName, float]) -> dict[DomainName, float]:
    loads_w = dict(on_domains_w)
    for feed in node.feeds:
        loads_w[feed.domain] = loads_w.get(feed.domain, 0.0) + node_load_w(node, gpus_w, node.overhead_w) * feed.share
    return loads_w


def _fits(node: Node, gpus_w: int, on_domains_w: dict[DomainName, float], index: RackIndex) -> bool:
    if node.limit_w is not None and node_load_w(node, gpus_w, node.overhead_w) > node.limit_w:
        return False
    loads_w = domain_loads_w(index, _with_node(node, gpus_w, on_domains_w))
    return all(loads_w[name] <= index.domains[name].ceiling_w for name in index.above(node.name))
