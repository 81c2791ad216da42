"""The question put to the planner and its answer.

A `PlanRequest` is a self-contained, frozen image of what may be planned; the answer is judged by our
own integer check of every domain before it is accepted. Same request, same plan, byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rackpower_common.model.identity import DomainName, GpuId, NodeName, Revision
from rackpower_common.model.policy import Objective


@dataclass(frozen=True, slots=True)
class PlanDomain:
    """A domain: loss × (children's shares + `fixed_w`) ≤ `ceiling_w` (limit − headroom).

    `parent` is an index into the request's domains, −1 for a root; parents come before children.
    """

    name: DomainName
    parent: int
    ceiling_w: int
    fixed_w: int
    loss: float


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node: load = loss × (Σ caps of its plannable GPUs + `fixed_w`), on each feed times its share.

    `feeds` are (domain index, share). `fixed_w` is overhead plus the exposure of GPUs that cannot be planned.
    `ceiling_w` bounds the node's own load, None for none.
    """

    name: NodeName
    feeds: tuple[tuple[int, float], ...]
    fixed_w: int
    loss: float
    ceiling_w: int | None


@dataclass(frozen=True, slots=True)
class Segment:
    """`width_w` whole watts that each bring `slope` (weighted tokens/s per watt, > 0)."""

    width_w: int
    slope: float


@dataclass(frozen=True, slots=True)
class PlanGpu:
    """A GPU whose cap may be chosen in `lo_w`…`hi_w`, whole watts.

    `segments` start at `lo_w`, slopes do not rise, and end where a watt brings nothing (≤ `hi_w`): no cap
    beyond the last segment is wanted. GPUs with the same `alike` key (never across nodes) get equal caps.
    `priority` 0 to 100, higher more important: used when something must give way.
    """

    gpu: GpuId
    node: int
    lo_w: int
    hi_w: int
    segments: tuple[Segment, ...]
    alike: int
    priority: int = 50


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Everything the planner may know. `gpus` are sorted by UUID."""

    revision: Revision
    objective: Objective
    domains: tuple[PlanDomain, ...]
    nodes: tuple[PlanNode, ...]
    gpus: tuple[PlanGpu, ...]

    @property
    def membership(self) -> tuple[GpuId, ...]:
        """Return the GPUs that the plan is for."""
        return tuple(gpu.gpu for gpu in self.gpus)

    @property
    def ceilings_w(self) -> tuple[int, ...]:
        """Return the domains' ceilings in order."""
        return tuple(domain.ceiling_w for domain in self.domains)


@dataclass(frozen=True, slots=True)
class Plan:
    """Target caps for one request, in whole watts; immutable, made for one revision, membership and limits.

    `source` is `lp` or `waterfill`; `solve_s` and `objective` (weighted tokens/s above all minima) are for people.
    """

    revision: Revision
    membership: tuple[GpuId, ...]
    ceilings_w: tuple[int, ...]
    targets_w: Mapping[GpuId, int]
    source: str
    objective: float
    solve_s: float
    note: str = ""


class Planner(Protocol):
    """Answers a request within a deadline; never raises for a request that is merely hard."""

    def plan(self, request: PlanRequest, deadline_s: float) -> Plan:
        """Return targets for every GPU of the request that keep every ceiling.

        Where even the minima do not fit a domain, the GPUs below it get their `lo_w`.

        Args:
            request: What may be planned.
            deadline_s: Seconds for the solver; when it is late the water-fill answers.
        """
        ...
