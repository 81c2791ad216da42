"""The compiled policy: what the core decides by. The YAML's models live in `rackpower_common.policy`.

Everything here is frozen, checked and in whole watts and seconds. Order is the
policy's own and stable: the same files give the same value.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rackpower_common.model.identity import ClassName, DomainName, NodeName, Revision


class Objective(Enum):
    """What the planner maximises once limits and floors hold."""

    TOKENS = "tokens"
    TOKENS_PER_WATT = "tokens_per_watt"
    GPUS = "gpus"


@dataclass(frozen=True, slots=True)
class Curve:
    """Tokens per second by watts: r(P) = peak · (1 − b(1 − P/Pn)^c) below Pn, flat above.

    `natural_draw_w` is Pn, what the GPU draws uncapped; `b` ≥ 0, `c` ≥ 1.
    `lowest_w` is the lowest watt at which the curve was seen; below it nothing is promised.
    """

    natural_draw_w: float
    b: float
    c: float
    peak_tokens_per_s: float
    lowest_w: float


@dataclass(frozen=True, slots=True)
class GpuClass:
    """What the policy says of a kind of GPU; the device's own range wins where it is known and narrower.

    `models` are case-insensitive glob patterns matched against the driver's model name.
    `largest_draw_w` counts for a GPU that cannot be held; it is at least `max_cap_w`.
    """

    name: ClassName
    models: tuple[str, ...]
    min_cap_w: int
    max_cap_w: int
    default_cap_w: int
    largest_draw_w: int
    idle_w: int
    curve: Curve
    fallback_w: int | None = None


@dataclass(frozen=True, slots=True)
class Domain:
    """A point of the power tree. load = loss × (Σ load of children × share + overhead).

    `parent` is None for a root. `headroom_w` is kept free below `limit_w`.
    """

    name: DomainName
    parent: DomainName | None
    kind: str
    limit_w: int
    headroom_w: int
    overhead_w: int
    loss: float

    @property
    def ceiling_w(self) -> int:
        """Return limit − headroom: what the ledger must not pass."""
        return self.limit_w - self.headroom_w


@dataclass(frozen=True, slots=True)
class Feed:
    """A domain that a node hangs on, and the share of the node's load that it carries, 0 < share ≤ 1."""

    domain: DomainName
    share: float


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """So many GPUs of one class in a node."""

    gpu_class: ClassName
    count: int


@dataclass(frozen=True, slots=True)
class Node:
    """A node that the policy describes.

    `overhead_w` is what it draws beside its GPUs at its power supplies' output, `boot_overhead_w` the same
    just after a power cycle; `loss` is input over output of its supplies, ≥ 1. `priority` 0 to 100, higher
    is more important. `limit_w` bounds the node's own load, None for none.
    """

    name: NodeName
    feeds: tuple[Feed, ...]
    gpus: tuple[NodeGpus, ...]
    overhead_w: int
    boot_overhead_w: int
    loss: float
    priority: int = 50
    weight: float = 1.0
    limit_w: int | None = None
    off: bool = False


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds; checked at load: settle < lease, 3 ticks ≤ watchdog < lease."""

    tick_s: float = 1.0
    report_period_s: float = 1.0
    settle_s: float = 5.0
    lease_s: float = 15.0
    leader_ttl_s: float = 5.0
    watchdog_s: float = 8.0


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy in force.

    `tracking_error` is the share by which a steady draw may pass its cap (0.02 is 2 %).
    A change of a cap smaller than `dead_band_w` is not sent unless a limit needs it.
    """

    revision: Revision
    domains: tuple[Domain, ...]
    nodes: tuple[Node, ...]
    classes: tuple[GpuClass, ...]
    timing: Timing = Timing()
    objective: Objective = Objective.TOKENS
    tracking_error: float = 0.02
    dead_band_w: int = 5
    fallback_auto: bool = True
