"""Whether a cap can be lowered and put back: a few watts, for a moment, read back both times."""

from __future__ import annotations

from typing import Final

from rackpower_agent.devices.base import DeviceError, Gpu
from rackpower_agent.doctor.finding import Area, Finding, Level

STEP_W: Final = 5
"""By how much a cap is lowered: enough for any driver's grain, too little for any server to notice."""


def write_test(gpu: Gpu) -> Finding:
    """Lower a GPU's cap by a few watts, read it back, and put it back. Blocks as its driver does; never raises.

    It never asks for more than what was asked for before.
    """
    try:
        return _tried(gpu)
    except DeviceError as error:
        words = f"a cap write failed: {error}"
    except Exception as error:  # noqa: BLE001 - a vendor library may raise anything
        words = f"a cap write failed: {type(error).__name__}: {error}"
    return _problem(gpu, words, "run as root on the host; see what the driver logged: dmesg")


def _tried(gpu: Gpu) -> Finding:
    device, before_w = gpu.device, gpu.read_cap().requested_w
    if not device.cappable or device.min_cap_w is None:
        return Finding(Level.NOTE, Area.GPU, "write_not_tried", device.gpu, "no write tried: it cannot be capped")
    if before_w is None:
        return _problem(gpu, "no write tried: the driver does not say which cap was asked for", "update the driver")
    lower_w = before_w - STEP_W
    if lower_w < device.min_cap_w:
        words = f"no write tried: its cap of {before_w} W is the smallest already"
        return Finding(Level.NOTE, Area.GPU, "write_not_tried", device.gpu, words)
    gpu.write_cap(lower_w)
    try:
        lowered_w = gpu.read_cap().requested_w
    finally:
        gpu.write_cap(before_w)
    restored_w = gpu.read_cap().requested_w
    if lowered_w != lower_w:
        words = f"{lower_w} W was asked for and accepted, but {lowered_w} W is read back"
        return _problem(gpu, words, "writes have no effect here: run as root on the host, update the driver")
    if restored_w != before_w:
        words = f"the cap was not put back: it was {before_w} W and is {restored_w} W"
        return _problem(gpu, words, "the agent corrects it when it starts")
    words = f"a write works: {before_w} W to {lower_w} W and back"
    return Finding(Level.FINE, Area.GPU, "write_works", device.gpu, words)


def _problem(gpu: Gpu, words: str, do: str) -> Finding:
    return Finding(Level.PROBLEM, Area.GPU, "write_failed", gpu.device.gpu, words, do)
