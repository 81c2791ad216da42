"""What every GPU falls to when its lease runs out: a sum that fits every domain (invariant 4)."""

from __future__ import annotations

import math

from rackpower_common.model.identity import DomainName, NodeName
from rackpower_common.model.policy import GpuClass, Node, Policy
from rackpower_controller.core.ledger import class_sum_w, domain_loads_w, node_load_w
from rackpower_controller.core.rack_index import RackIndex, rack_index
from rackpower_controller.core.state import GpuBook

STEPS = 1024
"""Fineness of the common share of the way from minimum to wish."""

_remembered: list[tuple[Policy, int]] = []


def fallback_share(policy: Policy) -> int:
    """Return the largest share, in 1/1024 of the way from minimum to wish, at which every domain's fallbacks fit.

    The wish is the class's own `fallback_w`, or its default cap with `fallback: auto`. It is 0 where even the minima
    do not fit: a lower limit is never refused, fallbacks scale down.
    """
    for known, share in _remembered:
        if known is policy:
            return share
    index = rack_index(policy)
    low, high = 0, STEPS
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _fits(index, middle) else (low, middle - 1)
    _remembered.insert(0, (policy, low))
    del _remembered[4:]
    return low


def _wish_w(gpu_class: GpuClass) -> int:
    wish_w = gpu_class.fallback_w if gpu_class.fallback_w is not None else gpu_class.default_cap_w
    return min(max(wish_w, gpu_class.min_cap_w), gpu_class.max_cap_w)


def _class_fallback_w(gpu_class: GpuClass, share: int) -> int:
    return gpu_class.min_cap_w + (_wish_w(gpu_class) - gpu_class.min_cap_w) * share // STEPS


def _node_w(spec: Node, index: RackIndex, share: int) -> int:
    if spec.off:
        return class_sum_w(spec, index, most=False)
    return sum(gpus.count * _class_fallback_w(index.classes[gpus.gpu_class], share) for gpus in spec.gpus)


def _fits(index: RackIndex, share: int) -> bool:
    on_domains_w: dict[DomainName, float] = {}
    for spec in index.policy.nodes:
        load_w = node_load_w(spec, _node_w(spec, index, share), max(spec.overhead_w, spec.boot_overhead_w))
        if spec.limit_w is not None and load_w > spec.limit_w:
            return False
        for feed in spec.feeds:
            on_domains_w[feed.domain] = on_domains_w.get(feed.domain, 0.0) + load_w * feed.share
    loads_w = domain_loads_w(index, on_domains_w)
    return all(loads_w[name] <= domain.ceiling_w for name, domain in index.domains.items())


def fallback_w(book: GpuBook, policy: Policy) -> int:
    """Return a GPU's fallback cap in watts, inside what its device accepts."""
    index = rack_index(policy)
    bounds = index.bounds(book.node, book.device)
    gpu_class = index.class_of(book.node, book.device)
    wished_w = _class_fallback_w(gpu_class, fallback_share(policy)) if gpu_class is not None else bounds.least_w
    return max(bounds.least_w, min(wished_w, bounds.highest_grant_w))


def boot_reserve_misfit(policy: Policy, node: NodeName) -> str:
    """Return why a node's boot reserve does not fit beside all others, empty when it does.

    Nodes that are in the policy but not here count too: their boot reserve is kept until they leave the policy.
    """
    index = rack_index(policy)
    on_domains_w: dict[DomainName, float] = {}
    for spec in policy.nodes:
        beside_w = max(spec.overhead_w, spec.boot_overhead_w)
        load_w = node_load_w(spec, class_sum_w(spec, index, most=False), beside_w)
        for feed in spec.feeds:
            on_domains_w[feed.domain] = on_domains_w.get(feed.domain, 0.0) + load_w * feed.share
    loads_w = domain_loads_w(index, on_domains_w)
    for name in sorted(index.above(node)):
        missing_w = loads_w[name] - index.domains[name].ceiling_w
        if missing_w > 0:
            return f"its boot reserve does not fit {name}: {math.ceil(missing_w)} W are missing"
    return ""
