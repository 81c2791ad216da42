"""One GPU under examination: what it says of itself, what it reads, and whether its cap can be held."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from rackpower_agent.devices.base import CapReading, DeviceError, Gpu, GpuProcess, Sample
from rackpower_agent.doctor.finding import Area, Finding, Level
from rackpower_common.model.device import CapControl, Device, Health

Value = TypeVar("Value")

PLAUSIBLE_DRAW: Final = 1.5
"""A draw of so many times the highest cap is a sensor's fault."""

_CONTROL: Final = {
    CapControl.NOT_SUPPORTED: (Level.NOTE, "this GPU has no power cap", "it counts at its largest draw"),
    CapControl.VIRTUALISED: (
        Level.NOTE,
        "a virtual machine may not set the cap of this GPU",
        "run the agent on the host; until then it counts at its largest draw",
    ),
    CapControl.NOT_PERSISTENT: (
        Level.PROBLEM,
        "persistence is off: the driver forgets the cap with its last client, so this GPU counts at its default cap",
        "systemctl enable --now nvidia-persistenced",
    ),
    CapControl.NO_PERMISSION: (
        Level.PROBLEM,
        "we may not set this GPU's cap",
        "run as root, on the host, not in a container",
    ),
    CapControl.UNKNOWN: (Level.PROBLEM, "whether the cap can be set is unknown", "look at the driver's log"),
}


@dataclass(frozen=True, slots=True)
class Examined:
    """What one GPU answered; None and words in `errors` for what it did not. `hung` says that a call never returned."""

    device: Device
    sample: Sample | None = None
    caps: CapReading | None = None
    processes: tuple[GpuProcess, ...] = ()
    errors: tuple[str, ...] = ()
    hung: bool = False


def examine(gpu: Gpu) -> Examined:
    """Ask a GPU for everything that it can tell. Blocks as long as its driver does; never raises."""
    errors: list[str] = []
    sample = _ask(gpu.sample, errors)
    caps = _ask(gpu.read_cap, errors)
    processes = _ask(gpu.processes, errors)
    return Examined(gpu.device, sample, caps, processes or (), tuple(errors))


def _ask(call: Callable[[], Value], errors: list[str]) -> Value | None:
    try:
        return call()
    except DeviceError as error:
        errors.append(str(error))
    except Exception as error:  # noqa: BLE001 - a vendor library may raise anything
        errors.append(f"{type(error).__name__}: {error}")
    return None


def findings_of(seen: Examined) -> tuple[Finding, ...]:
    """Return what is to be said about one GPU; a fine one is told too."""
    if seen.hung:
        what = "its driver does not answer"
        return (_say(seen, Level.PROBLEM, "hung", what, "look for Xid errors in dmesg; reset the GPU or the node"),)
    found = [*_unread(seen), *_control(seen), *_bounds(seen), *_enforced(seen), *_draw(seen), *_health(seen)]
    if all(one.level is Level.NOTE for one in found):
        found.insert(0, _say(seen, Level.FINE, "fine", _summary(seen)))
    return tuple(found)


def _say(seen: Examined, level: Level, code: str, words: str, do: str = "") -> Finding:
    return Finding(level, Area.GPU, code, seen.device.gpu, words, do)


def _summary(seen: Examined) -> str:
    device, caps = seen.device, seen.caps
    parts = [f"{device.model} at {device.pci_address}"]
    if device.cappable:
        parts.append(f"caps {device.min_cap_w} to {device.max_cap_w} W, default {device.default_cap_w} W")
    if caps is not None and caps.enforced_w is not None:
        parts.append(f"{caps.enforced_w} W in force")
    return ", ".join(parts)


def _unread(seen: Examined) -> Iterable[Finding]:
    for words in seen.errors:
        yield _say(seen, Level.PROBLEM, "read_failed", f"a call failed: {words}", "see what the driver logged: dmesg")


def _control(seen: Examined) -> Iterable[Finding]:
    device = seen.device
    if device.cap_control in _CONTROL:
        level, words, do = _CONTROL[device.cap_control]
        detail = f" ({device.cap_control_detail})" if device.cap_control_detail else ""
        yield _say(seen, level, device.cap_control.value, words + detail, do)
    elif not device.cappable:
        words = "the driver names no range of caps, so this GPU counts at its largest draw"
        yield _say(seen, Level.PROBLEM, "no_range", words, "update the driver")


def _bounds(seen: Examined) -> Iterable[Finding]:
    device = seen.device
    low_w, high_w, default_w = device.min_cap_w, device.max_cap_w, device.default_cap_w
    if not device.cappable or low_w is None or high_w is None:
        return
    if low_w >= high_w:
        words = f"the smallest cap is the largest, {high_w} W: nothing can be lowered"
        yield _say(seen, Level.NOTE, "fixed_range", words, "it counts at that; ask the vendor for other firmware")
    elif default_w is not None and low_w >= default_w:
        words = f"the smallest cap, {low_w} W, is not below the default, {default_w} W: it can hardly be lowered"
        yield _say(seen, Level.NOTE, "narrow_range", words)
    if default_w is not None and default_w > high_w:
        words = f"the default cap, {default_w} W, is above the largest, {high_w} W"
        yield _say(seen, Level.NOTE, "default_above_range", words, "check the firmware's version")


def _enforced(seen: Examined) -> Iterable[Finding]:
    caps = seen.caps
    if caps is None or not seen.device.cappable:
        return
    if caps.enforced_w is None:
        words = "the driver does not say which cap it enforces, so no cap can be trusted"
        yield _say(seen, Level.PROBLEM, "enforced_unknown", words, "update the driver")
    elif caps.requested_w is not None and caps.enforced_w < caps.requested_w:
        words = f"{caps.requested_w} W is asked for, {caps.enforced_w} W is enforced: a BMC or firmware limits it"
        yield _say(seen, Level.NOTE, "foreign_limit", words, "plan with the lower one, or lift the limit in the BMC")
    elif caps.requested_w is not None and caps.enforced_w > caps.requested_w:
        words = f"{caps.requested_w} W is asked for, {caps.enforced_w} W is enforced: the driver does not follow"
        yield _say(seen, Level.PROBLEM, "not_followed", words, "see what the driver logged: dmesg")


def _draw(seen: Examined) -> Iterable[Finding]:
    if seen.sample is None:
        return
    power = seen.sample.power
    draw_w = power.average_w if power.average_w is not None else power.instant_w
    if draw_w is None:
        why = f" ({power.no_data.value.replace('_', ' ')})" if power.no_data is not None else ""
        words = f"no power reading{why}: nothing shows that a cap is at work, so watts are freed late"
        yield _say(seen, Level.PROBLEM, "no_power", words, "update driver and firmware")
    elif seen.device.max_cap_w is not None and draw_w > PLAUSIBLE_DRAW * seen.device.max_cap_w:
        words = f"it reads {draw_w} W with a largest cap of {seen.device.max_cap_w} W"
        yield _say(seen, Level.PROBLEM, "implausible_power", words, "update driver and firmware")


def _health(seen: Examined) -> Iterable[Finding]:
    sample = seen.sample
    if sample is not None and sample.health not in (Health.OK, Health.UNKNOWN):
        words = f"it is {sample.health.value}" + (f": {sample.health_detail}" if sample.health_detail else "")
        yield _say(seen, Level.PROBLEM, sample.health.value, words, "see what the driver logged: dmesg")


def unlike(all_seen: Iterable[Examined]) -> tuple[Finding, ...]:
    """Return notes about GPUs of one model whose ranges differ: boards and firmware do, whatever the name says."""
    ranges: dict[str, dict[tuple[int | None, ...], list[str]]] = {}
    for seen in all_seen:
        device = seen.device
        key = (device.min_cap_w, device.default_cap_w, device.max_cap_w)
        ranges.setdefault(device.model, {}).setdefault(key, []).append(device.gpu)
    notes = []
    for model, kinds in ranges.items():
        if len(kinds) > 1:
            words = "; ".join(
                f"{low} to {high} W, default {default} W: {len(gpus)}" for (low, default, high), gpus in kinds.items()
            )
            notes.append(Finding(Level.NOTE, Area.DEVICES, "unlike", model, f"GPUs of one model differ: {words}"))
    return tuple(notes)
