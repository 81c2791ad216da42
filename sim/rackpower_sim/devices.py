"""The agent's devices on simulated hardware: entry point `sim` of `rackpower.devices`.

Option `path` is the node's file, which `rackpower_sim.rack` makes and keeps moving. Calls fail, clamp and hang like
a driver's when a test asks for it through the same file. Loads no numpy: this is inside the agent.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rackpower_agent.devices.base import (
    Backend,
    BackendUnavailable,
    CapReading,
    DeviceError,
    Gpu,
    GpuProcess,
    Listing,
    Sample,
)
from rackpower_common.model.device import (
    CapControl,
    Device,
    Health,
    LimitReason,
    PowerReading,
    Temperatures,
    Vendor,
)
from rackpower_common.model.identity import GpuId
from rackpower_common.model.messages import WriteFailure
from rackpower_sim.node_layout import GpuState, LimitCode, NodeState, SampleMode, Slot, StaticGpu, WriteResult
from rackpower_sim.physics_facts import MEMORY_RISE_C, SENSOR_WINDOW_S
from rackpower_sim.shared_state import STALE_S, NodeFile, SharedStateError, boot_clock_s

_POLL_S: Final = 0.005
_REASONS: Final = {
    LimitCode.NONE: LimitReason.NONE,
    LimitCode.IDLE: LimitReason.IDLE,
    LimitCode.POWER: LimitReason.POWER,
}
_FAILURES: Final = {
    WriteResult.REFUSED: (WriteFailure.REFUSED, "the driver refused it"),
    WriteResult.NO_PERMISSION: (WriteFailure.NO_PERMISSION, "no permission"),
    WriteResult.LOST: (WriteFailure.LOST, "the GPU is off the bus"),
}


def node_file_option(options: Mapping[str, str]) -> Path:
    """Return the option `path`.

    Raises:
        BackendUnavailable: It is not there.
    """
    path = options.get("path", "")
    if not path:
        raise BackendUnavailable(
            "the simulated node needs the option `path`", "give the node's file in the rack's folder"
        )
    return Path(path)


class SimulatedGpu:
    """One GPU of a simulated node."""

    def __init__(self, node: NodeFile, index: int, closed: threading.Event) -> None:
        self._node = node
        self._index = index
        self._closed = closed
        self._device = _device(node.static.gpus[index])
        self._limited: tuple[float, float] | None = None

    @property
    def device(self) -> Device:
        """Who it is."""
        return self._device

    def sample(self) -> Sample:
        """Read the sensors of the last step.

        Raises:
            DeviceError: The GPU is dark, the simulator stopped, or a test asked for it.
        """
        self._wait_while_hung()
        if self._node.slot(self._index, Slot.SAMPLE_MODE) == SampleMode.FAIL:
            raise DeviceError(f"GPU {self._device.gpu}: reading the sensors failed", WriteFailure.UNKNOWN, "sample")
        node, gpu = self._state()
        power = PowerReading(
            average_w=math.ceil(gpu.average_w),
            instant_w=math.ceil(gpu.draw_w),
            window_s=SENSOR_WINDOW_S,
            age_s=max(0.0, boot_clock_s() - node.time_s),
        )
        core_c = round(gpu.temp_c)
        return Sample(
            power=power,
            energy_j=gpu.energy_j,
            temperatures=Temperatures(
                core_c=core_c,
                memory_c=core_c + round(MEMORY_RISE_C),
                slowdown_c=self._node.static.gpus[self._index].slowdown_c,
            ),
            utilisation_percent=round(100 * gpu.load),
            limit_reason=_REASONS.get(LimitCode(gpu.limit), LimitReason.UNKNOWN),
            power_limited_share=self._limited_share(node, gpu),
            health=Health.OK,
        )

    def read_power(self) -> PowerReading:
        """Read the power sensor of the last step.

        Raises:
            DeviceError: The GPU is dark, the simulator stopped, or a test asked for it.
        """
        mode = self._node.slot(self._index, Slot.SAMPLE_MODE)
        if mode:
            self._wait_while_hung()
            if mode == SampleMode.FAIL:
                raise DeviceError(f"GPU {self._device.gpu}: reading the sensors failed", WriteFailure.UNKNOWN, "sample")
        node, gpu = self._state()
        age_s = max(0.0, boot_clock_s() - node.time_s)
        return PowerReading(math.ceil(gpu.average_w), math.ceil(gpu.draw_w), SENSOR_WINDOW_S, age_s)

    def read_cap(self) -> CapReading:
        """Read the cap's register back.

        Raises:
            DeviceError: The GPU is dark or the simulator stopped.
        """
        self._wait_while_hung()
        _, gpu = self._state()
        return CapReading(requested_w=gpu.requested_w, enforced_w=gpu.enforced_w)

    def write_cap(self, cap_w: int) -> None:
        """Ask for a cap and wait for the driver to return, however long it takes.

        Raises:
            DeviceError: Refused, not permitted, the GPU is dark, or the simulator stopped.
        """
        self._state()
        number = self._node.request_cap(self._index, cap_w)
        while True:
            _, gpu = self._state()
            if gpu.applied >= number:
                break
            if self._closed.wait(_POLL_S):
                raise DeviceError(f"GPU {self._device.gpu}: the driver was closed while it set {cap_w} W")
        failure = _FAILURES.get(WriteResult(gpu.result))
        if failure is not None:
            reason, words = failure
            raise DeviceError(f"GPU {self._device.gpu}: {words} when asked for {cap_w} W", reason, str(gpu.result))

    def processes(self) -> tuple[GpuProcess, ...]:
        """Simulated servers are no processes."""
        return ()

    def _state(self) -> tuple[NodeState, GpuState]:
        try:
            node, gpu = self._node.gpu_at(self._index)
        except (SharedStateError, ValueError) as error:
            raise DeviceError(f"GPU {self._device.gpu}: {error}", WriteFailure.LOST, "stopped") from None
        if boot_clock_s() - node.time_s > STALE_S:
            raise DeviceError(f"GPU {self._device.gpu}: the simulated rack has stopped", WriteFailure.LOST, "stopped")
        if not node.powered:
            raise DeviceError(f"GPU {self._device.gpu}: the node is dark", WriteFailure.LOST, "dark")
        return node, gpu

    def _wait_while_hung(self) -> None:
        while self._node.slot(self._index, Slot.SAMPLE_MODE) == SampleMode.HANG:
            if self._closed.wait(_POLL_S):
                raise DeviceError(f"GPU {self._device.gpu}: the driver was closed while it hung")

    def _limited_share(self, node: NodeState, gpu: GpuState) -> float | None:
        """Return the share of time since the last sample in which the cap held the GPU back."""
        last, self._limited = self._limited, (node.time_s, gpu.limited_s)
        if last is None or node.time_s <= last[0] or gpu.limited_s < last[1]:
            return None
        return min(1.0, (gpu.limited_s - last[1]) / (node.time_s - last[0]))


class SimulatedBackend:
    """The library of simulated GPUs."""

    name = "sim"

    def __init__(self) -> None:
        self._node: NodeFile | None = None
        self._closed = threading.Event()

    def open(self, options: Mapping[str, str]) -> Listing:
        """List the node's GPUs.

        Args:
            options: `path`, the node's file.

        Raises:
            BackendUnavailable: The file is missing or not a node's.
        """
        self.close()
        try:
            node = NodeFile.open(node_file_option(options))
        except SharedStateError as error:
            raise BackendUnavailable(error.message, error.hint) from None
        self._node = node
        self._closed = threading.Event()
        gpus: tuple[Gpu, ...] = tuple(SimulatedGpu(node, index, self._closed) for index in range(len(node.static.gpus)))
        return Listing(gpus, complete=True)

    def close(self) -> None:
        """End hanging calls and let go of the file; the hardware goes on."""
        self._closed.set()
        if self._node is not None:
            self._node.close()
            self._node = None


def backend() -> Backend:
    """Return the backend: the entry point."""
    return SimulatedBackend()


def _device(static: StaticGpu) -> Device:
    return Device(
        gpu=GpuId(static.uuid),
        vendor=Vendor(static.vendor),
        model=static.model,
        pci_address=static.pci_address,
        min_cap_w=static.min_cap_w,
        max_cap_w=static.max_cap_w,
        default_cap_w=static.default_cap_w,
        cap_control=CapControl(static.cap_control),
        largest_draw_w=static.largest_draw_w,
        driver_version="sim",
    )
