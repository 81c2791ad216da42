"""The tree of a plan request as arrays: the loads of many candidate answers at once, rounded as the ledger rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rackpower_controller.core.planning import PlanDomain, PlanNode, PlanRequest

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Level:
    """Domains at one depth, and the parent of each; −1 stands for all of them at the top."""

    domains: Ints
    parents: Ints


@dataclass(frozen=True, slots=True)
class PowerTree:
    """Limits are numbered: every node, then every domain.

    `carried_by[n]` marks the limits above node n, itself among them. `feeds` are (node, domain, share), `levels` the
    domains from the deepest up. `exact_shares` says that every share is 1, `whole` that no load is ever rounded.
    """

    losses: Floats
    fixed_w: Floats
    ceilings_w: Floats
    carried_by: Bools
    feeds: tuple[tuple[int, int, float], ...]
    shares: Floats
    levels: tuple[Level, ...]
    exact_shares: bool
    whole: bool

    @classmethod
    def of(cls, request: PlanRequest) -> PowerTree:
        """Return the tree of a request."""
        nodes, domains = request.nodes, request.domains
        limits: list[PlanNode | PlanDomain] = [*nodes, *domains]
        feeds = tuple((index, number, share) for index, node in enumerate(nodes) for number, share in node.feeds)
        carried_by = np.zeros((len(nodes), len(limits)), dtype=np.bool_)
        carried_by[np.arange(len(nodes)), np.arange(len(nodes))] = True
        shares = np.zeros((len(domains), len(nodes)), dtype=np.float64)
        for index, number, share in feeds:
            shares[number, index] += share
            above = number
            while above >= 0:
                carried_by[index, len(nodes) + above] = True
                above = domains[above].parent
        losses = [limit.loss for limit in limits]
        exact_shares = all(share == 1.0 for _index, _number, share in feeds)
        ceilings_w = [np.inf if limit.ceiling_w is None else limit.ceiling_w for limit in limits]
        return cls(
            losses=np.array(losses, dtype=np.float64).reshape(-1, 1),
            fixed_w=np.array([limit.fixed_w for limit in limits], dtype=np.float64).reshape(-1, 1),
            ceilings_w=np.array(ceilings_w, dtype=np.float64).reshape(-1, 1),
            carried_by=carried_by,
            feeds=feeds,
            shares=shares,
            levels=_levels(request),
            exact_shares=exact_shares,
            whole=exact_shares and all(loss == 1.0 for loss in losses),
        )

    def over(self, gpus_w: Ints) -> Bools:
        """Return which limits are passed.

        Args:
            gpus_w: Σ caps of each node's plannable GPUs, in watts; shape (nodes, candidates).

        Returns:
            Shape (limits, candidates).
        """
        nodes, candidates = gpus_w.shape
        loads_w = np.empty((len(self.losses), candidates), dtype=np.float64)
        np.ceil(self.losses[:nodes] * (gpus_w + self.fixed_w[:nodes]), out=loads_w[:nodes])
        below_w = self._on_domains(loads_w[:nodes])
        for level in self.levels:
            places = nodes + level.domains
            loads_w[places] = np.ceil(self.losses[places] * (below_w[level.domains] + self.fixed_w[places]))
            if level.parents[0] >= 0:
                np.add.at(below_w, level.parents, loads_w[places])
        return loads_w > self.ceilings_w

    def _on_domains(self, loads_w: Floats) -> Floats:
        """Return what nodes put on domains, in watts. The order of the sums is the ledger's: floats round."""
        if self.exact_shares:
            return self.shares @ loads_w  # whole numbers: no order matters
        below_w = np.zeros((len(self.shares), loads_w.shape[1]), dtype=np.float64)
        for index, number, share in self.feeds:
            below_w[number] += loads_w[index] * share
        return below_w

    def root_watts(self, request: PlanRequest) -> list[float]:
        """Return what a watt on each node's GPUs costs at the roots of its trees, in watts: for comparing slopes."""
        factors: list[float] = []
        for domain in request.domains:
            factors.append(domain.loss * (factors[domain.parent] if domain.parent >= 0 else 1.0))
        costs = []
        for node in request.nodes:
            above = sum(share * factors[number] for number, share in node.feeds)
            costs.append(node.loss * (above if node.feeds else 1.0))
        return costs


def _levels(request: PlanRequest) -> tuple[Level, ...]:
    """Return the domains by depth, the deepest first; within a depth the last first, as the ledger sums them."""
    depths: list[int] = []
    for domain in request.domains:
        depths.append(depths[domain.parent] + 1 if domain.parent >= 0 else 0)
    found = []
    for depth in range(max(depths, default=-1), -1, -1):
        numbers = [number for number in range(len(depths) - 1, -1, -1) if depths[number] == depth]
        parents = [request.domains[number].parent for number in numbers]
        found.append(Level(np.array(numbers, dtype=np.int64), np.array(parents, dtype=np.int64)))
    return tuple(found)
