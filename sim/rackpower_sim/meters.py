"""The agent's node meter on simulated hardware: entry point `sim` of `rackpower.meters`. Loads no numpy."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rackpower_agent.meters.base import MeterReading, NodeMeter
from rackpower_sim.devices import node_file_option
from rackpower_sim.shared_state import STALE_S, NodeFile, SharedStateError, boot_clock_s


class SimulatedMeter:
    """Reads a simulated node's whole draw at its supplies' input."""

    name = "sim"

    def __init__(self) -> None:
        self._node: NodeFile | None = None

    async def open(self, options: Mapping[str, str]) -> None:
        """Map the node's file; option `path`.

        Raises:
            BackendUnavailable: The option is missing.
            SharedStateError: The file is missing or not a node's.
        """
        if self._node is not None:
            self._node.close()
        self._node = NodeFile.open(node_file_option(options))

    async def read(self) -> MeterReading | None:
        """Return the draw of the last step, None when the simulator stopped.

        Raises:
            SharedStateError: Not open, or the simulator stopped in the middle of a step.
        """
        if self._node is None:
            raise SharedStateError("the simulated meter is not open")
        node = self._node.node()
        age_s = max(0.0, boot_clock_s() - node.time_s)
        return None if age_s > STALE_S else MeterReading(math.ceil(node.power_w), age_s)


def meter() -> NodeMeter:
    """Return the meter: the entry point."""
    return SimulatedMeter()
