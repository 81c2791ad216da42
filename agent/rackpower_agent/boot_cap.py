"""`rackpower-agent boot-cap`: every GPU to its smallest cap before any work starts. No network, no controller."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from rackpower_agent.deadline import all_within
from rackpower_agent.devices.base import BackendUnavailable, DeviceError, Gpu
from rackpower_agent.hardware import Hardware
from rackpower_common.clock import Clock
from rackpower_common.model.device import CapControl

DEADLINE_S: Final = 30.0
"""A driver that has not set a cap after so long may never do."""

SETTLE_S: Final = 5.0
"""A draw follows its cap within 1 to 4 s: work that starts sooner rides down from the default cap."""

LOOK_AGAIN_S: Final = 1.0
"""How often a driver that is not there is looked for again."""

_NEVER_HELD: Final = (CapControl.NOT_SUPPORTED, CapControl.NOT_PERSISTENT, CapControl.VIRTUALISED)
"""What nobody can mend on the node: the controller counts such a GPU at its largest draw, work may start."""


@dataclass(frozen=True, slots=True)
class Capped:
    """What became of one GPU, in words; `failure` means that it does not stand at its smallest cap."""

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
        why = device.cap_control_detail or device.cap_control.value.replace("_", " ")
        if device.cap_control in _NEVER_HELD:
            return Capped(device.gpu, f"{name}: cannot be capped ({why}), it counts at its largest draw", failure=False)
        return Capped(device.gpu, f"{name}: not capped: {why}", failure=True)
    try:
        gpu.write_cap(device.min_cap_w)
        found = gpu.read_cap()
    except DeviceError as error:
        return Capped(device.gpu, f"{name}: not capped: {error}", failure=True)
    except Exception as error:  # noqa: BLE001 - a vendor library may raise anything
        return Capped(device.gpu, f"{name}: not capped: {type(error).__name__}: {error}", failure=True)
    stands_w = max(watts for watts in (found.requested_w, found.enforced_w, 0) if watts is not None)
    if found.enforced_w is None or stands_w > device.min_cap_w:
        words = f"{name}: asked for {device.min_cap_w} W, the driver holds {stands_w or '?'} W"
        return Capped(device.gpu, words, failure=True)
    return Capped(device.gpu, f"{name}: {device.min_cap_w} W", failure=False)


def cap_all(gpus: Iterable[Gpu], clock: Clock, deadline_s: float = DEADLINE_S) -> tuple[Capped, ...]:
    """Set every GPU's smallest cap, all at once: one that hangs keeps no other from its cap.

    Args:
        gpus: The node's.
        clock: Time.
        deadline_s: How long all of it may take, in seconds; what has not returned by then has failed.
    """
    gpus = tuple(gpus)
    calls = {gpu.device.gpu: partial(cap_at_minimum, gpu) for gpu in gpus}
    finished = all_within(calls, clock, deadline_s)
    return tuple(finished.get(gpu.device.gpu) or _hung(gpu, deadline_s) for gpu in gpus)


def wait_until_settled(seconds: float = SETTLE_S) -> None:
    """Wait until the caps are at work: only then the unit counts as started, and work begins."""
    threading.Event().wait(seconds)


def list_patiently(
    open_all: Callable[[], Hardware], clock: Clock, wait_s: float, say: Callable[[str], None]
) -> Hardware:
    """Return the node's GPUs, waiting for drivers that come up late.

    Args:
        open_all: Lists them.
        clock: Time.
        wait_s: How long to wait, in seconds.
        say: Tells the operator what is waited for.

    Raises:
        BackendUnavailable: A library or driver is still not there.
    """
    ends_s, told = clock.now_s() + wait_s, ""
    while True:
        try:
            return open_all()
        except BackendUnavailable as error:
            if clock.now_s() >= ends_s:
                raise
            if str(error) != told:
                say(f"waiting up to {wait_s:g} s for the devices: {error}")
                told = str(error)
        threading.Event().wait(LOOK_AGAIN_S)


def _hung(gpu: Gpu, deadline_s: float) -> Capped:
    device = gpu.device
    words = f"{device.model} {device.gpu}: not capped: the driver has not returned within {deadline_s:g} s"
    return Capped(device.gpu, words, failure=True)
