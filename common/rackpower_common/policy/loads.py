"""What a policy's domains and nodes carry, in watts: overheads, losses and shares up the tree. Pure.

Computed in exact fractions and rounded up once: what the controller books may be compared with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from rackpower_common.errors import RackpowerError
from rackpower_common.model.identity import ClassName, DomainName, NodeName
from rackpower_common.model.policy import GpuClass, Node, Policy
from rackpower_common.policy.exact import loss_of, share_of, times_loss_w
from rackpower_common.quantity import quoted


class FitError(RackpowerError):
    """Watts were asked for of a policy with nodes that are not accounted for."""


def domain_loads_w(
    policy: Policy, node_gpu_sum_w: Mapping[NodeName, int], *, boot: bool = False
) -> Mapping[DomainName, int]:
    """Return what every domain carries when its nodes' GPUs draw so much.

    load(domain) = loss × (Σ share × load of its nodes + Σ load of its child domains + its own overhead), computed in
    exact fractions and rounded up once a domain; never below the true value, less than 1 W above it.

    Args:
        policy: The tree, with losses and overheads.
        node_gpu_sum_w: Whole watts of all GPUs of a node, for every node of the policy.
        boot: Count the larger of overhead and boot overhead for every node.

    Returns:
        Whole watts at each domain's input, in the policy's order.

    Raises:
        FitError: A node of the policy is missing: silence is not 0 W.
    """
    inside: dict[DomainName, Fraction] = {domain.name: Fraction(domain.overhead_w) for domain in policy.domains}
    for node in policy.nodes:
        if node.name not in node_gpu_sum_w:
            raise FitError(f"no watts are given for node {quoted(node.name)}", "count an unknown node at its maximum")
        load_w = _node_load(node, node_gpu_sum_w[node.name], boot)
        for feed in node.feeds:
            inside[feed.domain] += load_w * share_of(feed.share)
    loads: dict[DomainName, int] = {}
    for domain in reversed(policy.domains):  # parents come before their children
        load = inside[domain.name] * loss_of(domain.loss)
        loads[domain.name] = -(-load.numerator // load.denominator)
        if domain.parent is not None:
            inside[domain.parent] += load
    return {domain.name: loads[domain.name] for domain in policy.domains}


def node_load_w(node: Node, gpu_sum_w: int, *, boot: bool = False) -> int:
    """Return what a node draws at its input when its GPUs draw `gpu_sum_w`, whole watts, rounded up."""
    overhead_w = max(node.overhead_w, node.boot_overhead_w) if boot else node.overhead_w
    return times_loss_w(gpu_sum_w + overhead_w, loss_of(node.loss))


def minimum_gpu_sums_w(policy: Policy) -> Mapping[NodeName, int]:
    """Return Σ minimum cap of each node's GPUs, whole watts."""
    classes = _classes(policy)
    return {node.name: _sum_w(node, {name: item.min_cap_w for name, item in classes.items()}) for node in policy.nodes}


def fallback_gpu_sums_w(policy: Policy) -> Mapping[NodeName, int]:
    """Return Σ fallback of each node's GPUs, whole watts; automatic ones, and nodes that are off, at their minimum."""
    classes = _classes(policy)
    least_w = {name: item.min_cap_w for name, item in classes.items()}
    falls_w = {
        name: item.min_cap_w if item.fallback_w is None else max(item.fallback_w, item.min_cap_w)
        for name, item in classes.items()
    }
    return {node.name: _sum_w(node, least_w if node.off else falls_w) for node in policy.nodes}


def _classes(policy: Policy) -> Mapping[ClassName, GpuClass]:
    return {gpu_class.name: gpu_class for gpu_class in policy.classes}


def _sum_w(node: Node, each_w: Mapping[ClassName, int]) -> int:
    return sum(each_w[item.gpu_class] * item.count for item in node.gpus)


def _node_load(node: Node, gpu_sum_w: int, boot: bool) -> Fraction:
    overhead_w = max(node.overhead_w, node.boot_overhead_w) if boot else node.overhead_w
    return (gpu_sum_w + overhead_w) * loss_of(node.loss)
