"""A policy made quick to ask: names to values, the tree in order, the class of a device.

Built once per policy object and remembered; it holds nothing that the policy does not say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rackpower_common.model.device import CapControl, Device
from rackpower_common.model.identity import ClassName, DomainName, GpuId, NodeName
from rackpower_common.model.policy import Domain, GpuClass, Node, Policy
from rackpower_common.policy.match import match_class


@dataclass(frozen=True, slots=True)
class Bounds:
    """A device's bounds in watts under one policy; see `RackIndex`."""

    node: NodeName
    device: Device
    least_w: int
    highest_grant_w: int
    most_w: int
    uncapped_w: int


@dataclass(frozen=True, slots=True)
class RackIndex:
    """The policy's names as mappings; `bottom_up` lists every domain after all of its children."""

    policy: Policy
    domains: Mapping[DomainName, Domain]
    nodes: Mapping[NodeName, Node]
    classes: Mapping[ClassName, GpuClass]
    bottom_up: tuple[Domain, ...]
    _by_model: dict[tuple[NodeName, str], GpuClass | None] = field(default_factory=dict)
    _bounds: dict[GpuId, Bounds] = field(default_factory=dict)
    _above: dict[NodeName, frozenset[DomainName]] = field(default_factory=dict)

    def class_of(self, node: NodeName, device: Device) -> GpuClass | None:
        """Return the class that describes a device: one of its node's classes first, then any; None when none fits."""
        key = (node, device.model)
        if key not in self._by_model:
            self._by_model[key] = self._match(node, device.model)
        return self._by_model[key]

    def _match(self, node: NodeName, model: str) -> GpuClass | None:
        spec = self.nodes.get(node)
        own = [self.classes[gpus.gpu_class] for gpus in spec.gpus] if spec else []
        found = match_class([*own, *self.policy.classes], model)
        return found if found is not None or len(own) != 1 else own[0]

    def ancestors(self, domain: DomainName) -> tuple[DomainName, ...]:
        """Return a domain and all above it, nearest first."""
        chain: list[DomainName] = []
        name: DomainName | None = domain
        while name is not None and name in self.domains and name not in chain:
            chain.append(name)
            name = self.domains[name].parent
        return tuple(chain)

    def above(self, node: NodeName) -> frozenset[DomainName]:
        """Return every domain that carries a node."""
        known = self._above.get(node)
        if known is None:
            spec = self.nodes.get(node)
            feeds = spec.feeds if spec else ()
            known = self._above[node] = frozenset(name for feed in feeds for name in self.ancestors(feed.domain))
        return known

    def bounds(self, node: NodeName, device: Device) -> Bounds:
        """Return what a device may be granted and draw; worked out once for each device."""
        known = self._bounds.get(device.gpu)
        if known is None or known.device is not device or known.node != node:
            known = self._bounds[device.gpu] = _bounds_of(node, device, self.class_of(node, device))
        return known

    def most_w(self, node: NodeName, device: Device) -> int:
        """Return the device maximum in watts: the highest that device and class together allow for."""
        return self.bounds(node, device).most_w

    def uncapped_w(self, node: NodeName, device: Device) -> int:
        """Return what a GPU that cannot be held counts for, in watts: its default where only persistence is missing."""
        return self.bounds(node, device).uncapped_w

    def least_w(self, node: NodeName, device: Device) -> int:
        """Return the lowest cap that may be granted, in watts: the stricter of device and class."""
        return self.bounds(node, device).least_w

    def highest_grant_w(self, node: NodeName, device: Device) -> int:
        """Return the highest cap that may be granted, in watts."""
        return self.bounds(node, device).highest_grant_w


def _bounds_of(node: NodeName, device: Device, gpu_class: GpuClass | None) -> Bounds:
    known = [device.max_cap_w, device.default_cap_w, device.largest_draw_w]
    low, high = device.min_cap_w or 0, device.max_cap_w or 0
    if gpu_class is not None:
        known += [gpu_class.max_cap_w, gpu_class.default_cap_w]
        if not device.cappable:
            known.append(gpu_class.largest_draw_w)
        low = max(low, gpu_class.min_cap_w)
    least_w = min(low, device.max_cap_w) if device.max_cap_w is not None else low
    most_w = max((watts for watts in known if watts is not None), default=0)
    default_counts = device.cap_control is CapControl.NOT_PERSISTENT and device.default_cap_w is not None
    return Bounds(
        node=node,
        device=device,
        least_w=least_w,
        highest_grant_w=max(min(high, gpu_class.max_cap_w), least_w) if gpu_class is not None else high,
        most_w=most_w,
        uncapped_w=(device.default_cap_w or 0) if default_counts else most_w,
    )


_remembered: list[RackIndex] = []


def rack_index(policy: Policy) -> RackIndex:
    """Return the index of a policy; the last few are remembered by identity, so a tick does not rebuild it."""
    for index in _remembered:
        if index.policy is policy:
            return index
    index = _build(policy)
    _remembered.insert(0, index)
    del _remembered[4:]
    return index


def _build(policy: Policy) -> RackIndex:
    domains = {domain.name: domain for domain in policy.domains}
    depth: dict[DomainName, int] = {}

    def depth_of(domain: Domain) -> int:
        if domain.name not in depth:
            depth[domain.name] = 0 if domain.parent is None else 1 + depth_of(domains[domain.parent])
        return depth[domain.name]

    bottom_up = tuple(sorted(policy.domains, key=lambda domain: -depth_of(domain)))
    return RackIndex(
        policy=policy,
        domains=domains,
        nodes={node.name: node for node in policy.nodes},
        classes={gpu_class.name: gpu_class for gpu_class in policy.classes},
        bottom_up=bottom_up,
    )
