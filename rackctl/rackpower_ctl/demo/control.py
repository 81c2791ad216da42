"""The controller as the demo sees it: up, down, or started again by the operator, and what its statuses told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from rackpower.v1 import operator_pb2
from rackpower_ctl.demo.guardian import start_ticks
from rackpower_ctl.demo.peer import listener_pid
from rackpower_ctl.follower import Seen


class News(Enum):
    """What changed with the controller."""

    NONE = "none"
    DOWN = "down"
    BACK = "back"


@dataclass(slots=True)
class Reign:
    """What one controller process told: ticks, and its slowest decisions and plans, in seconds."""

    ticks: int = 0
    decide_p99_s: float = 0.0
    plan_p99_s: float = 0.0


@dataclass(slots=True)
class Controllers:
    """Follows which process is the controller.

    `adopt` is called with the pid of one that the operator started, so that it ends with the demo.
    """

    socket: Path
    pid: int
    adopt: Callable[[int], None]
    down_since_s: float | None = None
    reigns: dict[str, Reign] = field(default_factory=dict)
    _begun: int | None = None

    def __post_init__(self) -> None:
        self._begun = start_ticks(self.pid)

    def look(self, now_s: float) -> News:
        """Look whether the controller lives, or another one answers in its place."""
        if self._begun is not None and start_ticks(self.pid) == self._begun:
            return News.NONE
        pid = listener_pid(self.socket)
        begun = None if pid is None else start_ticks(pid)
        if pid is not None and begun is not None:
            self.pid, self._begun, self.down_since_s = pid, begun, None
            self.adopt(pid)
            return News.BACK
        if self.down_since_s is None:
            self.down_since_s = now_s
            return News.DOWN
        return News.NONE

    def hear(self, seen: Seen) -> None:
        """Keep what the newest status tells of the controller itself."""
        status = seen.status
        if status is None or not status.tick:
            return
        reign = self.reigns.setdefault(status.term.instance, Reign())
        reign.ticks = max(reign.ticks, status.tick)
        reign.decide_p99_s = status.decide_p99_seconds
        reign.plan_p99_s = status.plan_p99_seconds

    @property
    def ticks(self) -> int:
        """Return the ticks of all controllers together."""
        return sum(reign.ticks for reign in self.reigns.values())

    @property
    def decide_p99_s(self) -> float:
        """Return the slowest controller's 99th percentile of decisions."""
        return max((reign.decide_p99_s for reign in self.reigns.values()), default=0.0)

    @property
    def plan_p99_s(self) -> float:
        """Return the slowest controller's 99th percentile of plans."""
        return max((reign.plan_p99_s for reign in self.reigns.values()), default=0.0)


def limits_of(status: operator_pb2.Status) -> Mapping[str, int]:
    """Return the limits in force, whole watts by domain."""
    return {domain.name: domain.limit_milliwatts // 1000 for domain in status.domains}


def live_nodes(status: operator_pb2.Status) -> set[str]:
    """Return the nodes that report."""
    reporting = (operator_pb2.NODE_STATE_LIVE, operator_pb2.NODE_STATE_WAITING)
    return {node.name for node in status.nodes if node.state in reporting}


def boot_capped(status: operator_pb2.Status) -> set[str]:
    """Return the nodes whose every GPU was read back below its default cap: their servers may run."""
    capped: dict[str, bool] = {}
    for gpu in status.gpus:
        held = gpu.HasField("enforced_cap_milliwatts") and gpu.enforced_cap_milliwatts < gpu.default_cap_milliwatts
        capped[gpu.node] = capped.get(gpu.node, True) and held
    return {node for node, held in capped.items() if held} & live_nodes(status)


def at_plan(status: operator_pb2.Status, within_milliwatts: int) -> bool:
    """Return whether every GPU has the cap that the plan wants for it, so nearly."""
    return bool(status.gpus) and all(
        gpu.HasField("target_cap_milliwatts")
        and gpu.HasField("enforced_cap_milliwatts")
        and abs(gpu.enforced_cap_milliwatts - gpu.target_cap_milliwatts) <= within_milliwatts
        for gpu in status.gpus
    )
