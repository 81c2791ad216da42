"""Devices, readings and workloads.

What a sensor tells that nothing can mean is left out by the sender, with its cause: one broken sensor must not
silence its node. The receiver refuses it.
"""

from __future__ import annotations

import math
from typing import Final

from rackpower.v1 import agent_pb2 as pb
from rackpower_common.model.device import Device, NoData, PowerReading, Temperatures, Workload
from rackpower_common.model.identity import GpuId
from rackpower_common.model.messages import GPUS_PER_NODE_LIMIT
from rackpower_common.units import mw_from_w
from rackpower_common.wire import quantities as q
from rackpower_common.wire import vocabulary as v
from rackpower_common.wire.holdings import optional_cap_mw

PARTITIONS_LIMIT: Final = 64
COLDEST_C: Final = -273
HOTTEST_C: Final = 1000

UNTOLD_S: Final = 3600.0
"""A reading whose window or age is not told counts as this old: it proves nothing about a cap just read back."""


def device_from(message: pb.Device, where: str) -> Device:
    """Return a device.

    Raises:
        WireError: A field cannot be meant.
    """
    device = Device(
        gpu=GpuId(q.name(message.gpu_uuid, f"{where}.gpu_uuid")),
        vendor=v.vendor(message.vendor),
        model=q.optional_name(message.model, f"{where}.model"),
        pci_address=q.optional_name(message.pci_address, f"{where}.pci_address"),
        min_cap_w=q.optional(message, "min_cap_milliwatts", q.cap_w, where),
        max_cap_w=q.optional(message, "max_cap_milliwatts", q.cap_w, where),
        default_cap_w=q.optional(message, "default_cap_milliwatts", q.cap_w, where),
        cap_control=v.cap_control(message.cap_control),
        cap_control_detail=q.text(message.cap_control_detail),
        largest_draw_w=q.optional(message, "largest_draw_milliwatts", q.draw_w, where),
        serial=q.optional_name(message.serial, f"{where}.serial"),
        partitions=q.names(message.partitions, PARTITIONS_LIMIT, f"{where}.partitions"),
        link_group=q.optional_name(message.link_group, f"{where}.link_group"),
        driver_version=q.optional_name(message.driver_version, f"{where}.driver_version"),
    )
    _check_range(device, where)
    return device


def device_to(device: Device, where: str) -> pb.Device:
    """Return a device for the wire.

    Raises:
        WireError: A value cannot be sent.
    """
    _check_range(device, where)
    largest_w = device.largest_draw_w
    return pb.Device(
        gpu_uuid=q.name(device.gpu, f"{where}.gpu_uuid"),
        vendor=v.VENDOR_TO[device.vendor],
        model=q.optional_name(device.model, f"{where}.model"),
        pci_address=q.optional_name(device.pci_address, f"{where}.pci_address"),
        serial=q.optional_name(device.serial, f"{where}.serial"),
        min_cap_milliwatts=optional_cap_mw(device.min_cap_w, f"{where}.min_cap"),
        max_cap_milliwatts=optional_cap_mw(device.max_cap_w, f"{where}.max_cap"),
        default_cap_milliwatts=optional_cap_mw(device.default_cap_w, f"{where}.default_cap"),
        cap_control=v.CAP_CONTROL_TO[device.cap_control],
        cap_control_detail=q.text(device.cap_control_detail),
        largest_draw_milliwatts=None
        if largest_w is None
        else mw_from_w(q.within(largest_w, 0, q.POWER_LIMIT_W, f"{where}.largest_draw")),
        partitions=q.names(device.partitions, PARTITIONS_LIMIT, f"{where}.partitions"),
        link_group=q.optional_name(device.link_group, f"{where}.link_group"),
        driver_version=q.optional_name(device.driver_version, f"{where}.driver_version"),
    )


def _check_range(device: Device, where: str) -> None:
    low_w, high_w = device.min_cap_w, device.max_cap_w
    if low_w is not None and high_w is not None and low_w > high_w:
        raise q.WireError(f"{where}: its smallest cap of {low_w} W is above its largest of {high_w} W")


def power_from(message: pb.GpuReport, where: str) -> PowerReading:
    """Return a power reading; a missing average keeps its cause."""
    average_w = q.optional(message, "power_average_milliwatts", q.draw_w, where)
    instant_w = q.optional(message, "power_instant_milliwatts", q.draw_w, where)
    window_s = q.optional(message, "power_window_milliseconds", q.age_s, where)
    age_s = q.optional(message, "power_age_milliseconds", q.age_s, where)
    cause = v.no_data(message.power_no_data)
    if average_w is not None and cause is NoData.UNKNOWN:
        told = None
    else:
        told = cause
    return PowerReading(
        average_w=average_w,
        instant_w=instant_w,
        window_s=UNTOLD_S if window_s is None else window_s,
        age_s=UNTOLD_S if age_s is None else age_s,
        no_data=told,
        scope=v.power_scope(message.power_scope),
    )


def put_power(power: PowerReading, message: pb.GpuReport, where: str) -> None:
    """Write a power reading into a report; an impossible one is left out with that as its cause."""
    cause = power.no_data
    if power.average_w is not None and q.is_draw(power.average_w):
        message.power_average_milliwatts = mw_from_w(power.average_w)
    elif power.average_w is not None:
        cause = NoData.IMPLAUSIBLE
    if power.instant_w is not None and q.is_draw(power.instant_w):
        message.power_instant_milliwatts = mw_from_w(power.instant_w)
    message.power_window_milliseconds = q.ms_up(power.window_s, f"{where}.power_window")
    message.power_age_milliseconds = q.ms_up(power.age_s, f"{where}.power_age")
    message.power_no_data = v.NO_DATA_TO[cause or NoData.UNKNOWN]
    message.power_scope = v.POWER_SCOPE_TO[power.scope]


def _celsius(value: int, field: str) -> int:
    return q.within(value, COLDEST_C, HOTTEST_C, field)


def _sent_celsius(value: int | None) -> int | None:
    return value if value is not None and COLDEST_C <= value <= HOTTEST_C else None


def temperatures_from(message: pb.Temperatures, where: str) -> Temperatures:
    """Return temperatures in °C."""
    return Temperatures(
        core_c=q.optional(message, "core_celsius", _celsius, where),
        hotspot_c=q.optional(message, "hotspot_celsius", _celsius, where),
        memory_c=q.optional(message, "memory_celsius", _celsius, where),
        slowdown_c=q.optional(message, "slowdown_celsius", _celsius, where),
    )


def temperatures_to(heat: Temperatures) -> pb.Temperatures:
    """Return temperatures for the wire; impossible ones are left out."""
    return pb.Temperatures(
        core_celsius=_sent_celsius(heat.core_c),
        hotspot_celsius=_sent_celsius(heat.hotspot_c),
        memory_celsius=_sent_celsius(heat.memory_c),
        slowdown_celsius=_sent_celsius(heat.slowdown_c),
    )


def workload_from(message: pb.Workload, where: str) -> Workload:
    """Return a workload.

    Raises:
        WireError: A field cannot be meant.
    """
    gpus = q.names(message.gpu_uuids, GPUS_PER_NODE_LIMIT, f"{where}.gpu_uuids")
    q.no_duplicate(gpus, f"{where}.gpu_uuids")
    generated, prompt = "generated_tokens_per_second", "prompt_tokens_per_second"
    return Workload(
        name=q.name(message.name, f"{where}.name"),
        gpus=tuple(GpuId(gpu) for gpu in gpus),
        generated_tokens_per_s=q.rate(message.generated_tokens_per_second, f"{where}.{generated}")
        if message.HasField("generated_tokens_per_second")
        else None,
        prompt_tokens_per_s=q.rate(message.prompt_tokens_per_second, f"{where}.{prompt}")
        if message.HasField("prompt_tokens_per_second")
        else None,
        requests_running=q.optional(message, "requests_running", q.count, where),
        requests_waiting=q.optional(message, "requests_waiting", q.count, where),
        generated_tokens=q.optional(message, "generated_tokens", q.sequence, where),
        server=q.optional_name(message.server, f"{where}.server"),
        source=q.text(message.source),
    )


def workload_to(workload: Workload, where: str) -> pb.Workload:
    """Return a workload for the wire; its labels stay at home, and rates that nothing can mean are left out.

    Raises:
        WireError: A name cannot be sent.
    """
    gpus = q.names(workload.gpus, GPUS_PER_NODE_LIMIT, f"{where}.gpu_uuids")
    q.no_duplicate(gpus, f"{where}.gpu_uuids")
    return pb.Workload(
        name=q.name(workload.name, f"{where}.name"),
        gpu_uuids=gpus,
        generated_tokens_per_second=_sent_rate(workload.generated_tokens_per_s),
        prompt_tokens_per_second=_sent_rate(workload.prompt_tokens_per_s),
        requests_running=_sent_count(workload.requests_running, q.COUNT_LIMIT),
        requests_waiting=_sent_count(workload.requests_waiting, q.COUNT_LIMIT),
        generated_tokens=_sent_count(workload.generated_tokens, q.SEQUENCE_LIMIT),
        server=q.optional_name(workload.server, f"{where}.server"),
        source=q.text(workload.source),
    )


def _sent_rate(value: float | None) -> float | None:
    sent = value is not None and math.isfinite(value) and 0 <= value <= q.RATE_LIMIT
    return value if sent else None


def _sent_count(value: int | None, most: int) -> int | None:
    return value if value is not None and 0 <= value <= most else None
