"""The tree of a plan request as arrays: the loads of many candidate answers at once, rounded as the ledger rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rackpower_controller.core.planning import PlanRequest

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PowerTree:
    """Limits are numbered: every node, then every domain.

    `carried_by[n]` marks the limits above node n, itself among them. `whole` says that no load is ever rounded.
    """

    node_loss: Floats
    node_fixed_w: Floats
    ceilings_w: Floats
    carried_by: Bools
    direct: tuple[tuple[tuple[int, float], ...], ...]
    children: tuple[tuple[int, ...], ...]
    domain_loss: tuple[float, ...]
    domain_fixed_w: tuple[int, ...]
    whole: bool

    @classmethod
    def of(cls, request: PlanRequest) -> PowerTree:
        """Return the tree of a request."""
        nodes, domains = request.nodes, request.domains
        direct: list[list[tuple[int, float]]] = [[] for _ in domains]
        children: list[list[int]] = [[] for _ in domains]
        carried_by = np.zeros((len(nodes), len(nodes) + len(domains)), dtype=np.bool_)
        for index, node in enumerate(nodes):
            carried_by[index, index] = True
            for number, share in node.feeds:
                direct[number].append((index, share))
                above = number
                while above >= 0:
                    carried_by[index, len(nodes) + above] = True
                    above = domains[above].parent
        for number in range(len(domains) - 1, -1, -1):
            if domains[number].parent >= 0:
                children[domains[number].parent].append(number)
        ceilings = [np.inf if node.ceiling_w is None else node.ceiling_w for node in nodes]
        ceilings += [domain.ceiling_w for domain in domains]
        losses = [*(node.loss for node in nodes), *(domain.loss for domain in domains)]
        shares = [share for node in nodes for _number, share in node.feeds]
        return cls(
            node_loss=np.array([[node.loss] for node in nodes], dtype=np.float64).reshape(-1, 1),
            node_fixed_w=np.array([[node.fixed_w] for node in nodes], dtype=np.float64).reshape(-1, 1),
            ceilings_w=np.array(ceilings, dtype=np.float64).reshape(-1, 1),
            carried_by=carried_by,
            direct=tuple(map(tuple, direct)),
            children=tuple(map(tuple, children)),
            domain_loss=tuple(domain.loss for domain in domains),
            domain_fixed_w=tuple(domain.fixed_w for domain in domains),
            whole=all(factor == 1.0 for factor in [*losses, *shares]),
        )

    def over(self, gpus_w: Ints) -> Bools:
        """Return which limits are passed.

        Args:
            gpus_w: Σ caps of each node's plannable GPUs, in watts; shape (nodes, candidates).

        Returns:
            Shape (limits, candidates).
        """
        nodes, candidates = gpus_w.shape
        loads_w = np.empty((nodes + len(self.children), candidates), dtype=np.float64)
        np.ceil(self.node_loss * (gpus_w + self.node_fixed_w), out=loads_w[:nodes])
        for number in range(len(self.children) - 1, -1, -1):
            # the order of these sums is the ledger's: a float sum in another order may round to another watt
            below_w = np.zeros(candidates, dtype=np.float64)
            for index, share in self.direct[number]:
                below_w += loads_w[index] * share if share != 1.0 else loads_w[index]
            for child in self.children[number]:
                below_w += loads_w[nodes + child]
            below_w += self.domain_fixed_w[number]
            if self.domain_loss[number] != 1.0:
                below_w *= self.domain_loss[number]
            np.ceil(below_w, out=loads_w[nodes + number])
        return loads_w > self.ceilings_w

    def root_watts(self, request: PlanRequest) -> list[float]:
        """Return what a watt on each node's GPUs costs at the roots of its trees, in watts: for comparing slopes."""
        factors: list[float] = []
        for domain, loss in zip(request.domains, self.domain_loss, strict=True):
            factors.append(loss * (factors[domain.parent] if domain.parent >= 0 else 1.0))
        costs = []
        for node in request.nodes:
            above = sum(share * factors[number] for number, share in node.feeds)
            costs.append(node.loss * (above if node.feeds else 1.0))
        return costs
