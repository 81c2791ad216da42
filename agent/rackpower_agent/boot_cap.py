"""`rackpower-agent boot-cap`: every GPU to its smallest cap before any work starts. No network, no controller."""

from __future__ import annotations

from dataclasses import dataclass

from rackpower_agent.devices.base import DeviceError, Gpu


@dataclass(frozen=True, slots=True)
class Capped:
    """What became of one GPU; `failure` is empty when it stands at its smallest cap."""

    gpu: str
    words: str
    failure: bool


def cap_at_minimum(gpu: Gpu) -> Capped:
    """Set a GPU's smallest cap and read it back.

    A GPU that has no caps at all is told, not failed: the controller counts it at its largest draw.
    """
    device = gpu.device
    name = f"{device.model} {device.gpu}"
    if not device.cappable or device.min_cap_w is None:
        why = device.cap_control_detail or device.cap_control.value
        return Capped(device.gpu, f"{name}: cannot be capped ({why}), it counts at its largest draw", failure=False)
    try:
        gpu.write_cap(device.min_cap_w)
        found = gpu.read_cap()
    except DeviceError as error:
        return Capped(device.gpu, f"{name}: not capped: {error}", failure=True)
    stands_w = max(watts for watts in (found.requested_w, found.enforced_w, 0) if watts is not None)
    if found.enforced_w is None or stands_w > device.min_cap_w:
        words = f"{name}: asked for {device.min_cap_w} W, the driver holds {stands_w or '?'} W"
        return Capped(device.gpu, words, failure=True)
    return Capped(device.gpu, f"{name}: {device.min_cap_w} W", failure=False)
