"""True hardware of one node: what each GPU could draw at any instant, whoever believes what.

A lower takes 1 to 4 s to bite, a raise bites at once. A power cycle brings every cap back to its default; until the
node is ready no workload runs and it draws no more than its idle watts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rackpower_common.model.device import Device, LimitReason, PowerReading
from rackpower_common.model.identity import GpuId, NodeName
from rackpower_sim.world.scheduler import Scheduler

IDLE_W = 60
"""What a GPU without work draws."""

SETTLE_S = (1.0, 4.0)
"""How long a lower takes to bite, from and to (sweep authors wait 3 s)."""

TRACKING_SHARE = 0.015
"""A steady draw may pass the cap by so much, inside the policy's tracking error."""


@dataclass(slots=True)
class TrueGpu:
    """One GPU. `biting` holds (cap, until when it may still bite) of caps that were lowered."""

    device: Device
    requested_w: int
    ceiling_w: int | None = None
    busy_share: float = 1.0
    biting: list[tuple[int, float]] = field(default_factory=list)
    history: list[tuple[float, float]] = field(default_factory=list)

    @property
    def enforced_w(self) -> int:
        """Return the cap that the driver shows."""
        return self.requested_w if self.ceiling_w is None else min(self.requested_w, self.ceiling_w)

    def could_draw_w(self, now_s: float) -> int:
        """Return the highest cap that may be at work."""
        self.biting = [(cap_w, until_s) for cap_w, until_s in self.biting if until_s > now_s]
        return max([self.enforced_w, *(cap_w for cap_w, _ in self.biting)])

    @property
    def wish_w(self) -> float:
        """Return what its load asks for."""
        return IDLE_W + self.busy_share * ((self.device.default_cap_w or 0) - IDLE_W)

    def draws_w(self, now_s: float) -> float:
        """Return the draw: what its load asks for, up to the cap at work and a little over it."""
        return min(self.wish_w, self.could_draw_w(now_s) * (1.0 + TRACKING_SHARE))


class Node:
    """A node's hardware, and whether its workloads may run."""

    def __init__(self, name: NodeName, devices: tuple[Device, ...], time: Scheduler) -> None:
        self.name = name
        self.time = time
        self.boots = 1
        self.powered = True
        self.may_work = False
        self.gpus = {device.gpu: TrueGpu(device, device.default_cap_w or 0) for device in devices}

    @property
    def boot_id(self) -> str:
        """Return the boot id."""
        return f"{self.name}-boot-{self.boots}"

    def write(self, gpu: GpuId, cap_w: int) -> None:
        """Take a cap, as the driver would."""
        true = self.gpus[gpu]
        before_w = true.could_draw_w(self.time.now_s)
        if cap_w < before_w:
            true.biting.append((before_w, self.time.now_s + self.time.between(*SETTLE_S)))
        true.requested_w = cap_w

    def reboot(self) -> None:
        """Cycle the power: default caps, no work until ready."""
        self.boots += 1
        self.may_work = False
        for true in self.gpus.values():
            true.requested_w = true.device.default_cap_w or 0
            true.biting.clear()

    def could_draw_w(self) -> int:
        """Return what the GPUs could draw now."""
        if not self.may_work:
            return IDLE_W * len(self.gpus)
        return sum(true.could_draw_w(self.time.now_s) for true in self.gpus.values())

    def look(self) -> None:
        """Note every draw, for the averages; to be called several times a second."""
        for true in self.gpus.values():
            draw_w = true.draws_w(self.time.now_s) if self.may_work else float(IDLE_W)
            true.history.append((self.time.now_s, draw_w))
            true.history = [(at_s, watts) for at_s, watts in true.history if at_s > self.time.now_s - 1.0 - 1e-9]

    def reading(self, gpu: GpuId) -> PowerReading:
        """Return the sensor: an average over the last second."""
        history = self.gpus[gpu].history
        if not history:
            return PowerReading()
        average_w = sum(watts for _, watts in history) / len(history)
        return PowerReading(average_w=round(average_w + 0.5), instant_w=round(history[-1][1] + 0.5), window_s=1.0)

    def limit_reason(self, gpu: GpuId) -> LimitReason:
        """Return whether the cap at work holds the GPU back."""
        true = self.gpus[gpu]
        held = self.may_work and true.wish_w > true.could_draw_w(self.time.now_s)
        return LimitReason.POWER if held else LimitReason.NONE
