"""The agent's token source on simulated servers: entry point `sim` of `rackpower.workloads`. Loads no numpy."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from rackpower_agent.inference.base import WorkloadSource
from rackpower_common.model.device import Workload
from rackpower_common.model.identity import GpuId
from rackpower_sim.devices import node_file_option
from rackpower_sim.node_layout import NodeState, ReplicaState
from rackpower_sim.shared_state import STALE_S, NodeFile, SharedStateError, boot_clock_s

RATE_WINDOW_S: Final = 5.0
"""Rates are means over the readings of so many seconds."""
_SHORTEST_S: Final = 0.5


class SimulatedServers:
    """Reads the inference servers of one simulated node.

    A node that is dark or whose simulator stopped has no workloads to tell: unknown is never 0.
    """

    name = "sim"

    def __init__(self) -> None:
        self._node: NodeFile | None = None
        self._readings: deque[tuple[NodeState, tuple[ReplicaState, ...]]] = deque(maxlen=64)

    async def open(self, options: Mapping[str, str]) -> None:
        """Map the node's file; option `path`.

        Raises:
            BackendUnavailable: The option is missing.
            SharedStateError: The file is missing or not a node's.
        """
        if self._node is not None:
            self._node.close()
        self._readings.clear()
        self._node = NodeFile.open(node_file_option(options))

    async def read(self) -> tuple[Workload, ...]:
        """Return one workload a replica.

        Raises:
            SharedStateError: Not open, or the simulator stopped in the middle of a step.
        """
        if self._node is None:
            raise SharedStateError("the simulated servers are not open")
        node, replicas = self._node.replicas()
        if not node.powered or boot_clock_s() - node.time_s > STALE_S:
            self._readings.clear()
            return ()
        while self._readings and node.time_s - self._readings[0][0].time_s > RATE_WINDOW_S:
            self._readings.popleft()
        oldest = self._readings[0] if self._readings else None
        if not self._readings or node.step != self._readings[-1][0].step:
            self._readings.append((node, replicas))
        return tuple(self._workload(self._node, index, replica, node, oldest) for index, replica in enumerate(replicas))

    @staticmethod
    def _workload(
        file: NodeFile,
        index: int,
        replica: ReplicaState,
        node: NodeState,
        oldest: tuple[NodeState, tuple[ReplicaState, ...]] | None,
    ) -> Workload:
        static = file.static.replicas[index]
        span_s = node.time_s - oldest[0].time_s if oldest is not None else 0.0
        before = oldest[1][index] if oldest is not None and span_s >= _SHORTEST_S else None
        return Workload(
            name=static.name,
            gpus=tuple(GpuId(file.static.gpus[gpu].uuid) for gpu in static.gpus),
            generated_tokens_per_s=_rate(replica.generated_tokens, before and before.generated_tokens, span_s),
            prompt_tokens_per_s=_rate(replica.prompt_tokens, before and before.prompt_tokens, span_s),
            requests_running=replica.running,
            requests_waiting=replica.waiting,
            generated_tokens=int(replica.generated_tokens),
            server="simulated",
            source="sim",
        )


def source() -> WorkloadSource:
    """Return the token source: the entry point."""
    return SimulatedServers()


def _rate(now: float, before: float | None, span_s: float) -> float | None:
    return None if before is None else max(0.0, now - before) / span_s
