"""What an agent says, from what it holds and has measured. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from rackpower_agent.devices.worker import Sampled
from rackpower_agent.lease import views
from rackpower_agent.lease.keeper import LeaseKeeper
from rackpower_agent.meters.base import MeterReading
from rackpower_common.model.device import Device, Health, NoData, PowerReading, Workload
from rackpower_common.model.identity import GpuId, NodeName
from rackpower_common.model.messages import PROTOCOL_VERSION, GpuReport, Hello, Report

STALE_S: Final = 2.0
"""An older reading of the power says nothing about now: the sampling period is 0.1 s."""

SENSORS_STALE_S: Final = 5.0
"""Older readings of all else say nothing about now: they are made once a second."""


def build_hello(
    keeper: LeaseKeeper,
    devices: Iterable[Device],
    *,
    complete: bool,
    node: NodeName,
    version: str,
    boot_id: str,
    instance: str,
    now_s: float,
) -> Hello:
    """Return the first message of a stream."""
    return Hello(
        protocol_version=PROTOCOL_VERSION,
        node=node,
        agent_version=version,
        boot_id=boot_id,
        agent_instance=instance,
        devices=tuple(devices),
        devices_complete=complete,
        holdings=keeper.holdings(now_s),
        highest_term=keeper.highest_term,
        journal_read=keeper.journal_read,
    )


def build_report(
    keeper: LeaseKeeper,
    sampled: Mapping[GpuId, Sampled],
    hung: frozenset[GpuId],
    workloads: tuple[Workload, ...],
    meter: MeterReading | None,
    sequence: int,
    now_s: float,
) -> Report:
    """Return a report.

    Args:
        keeper: What is held.
        sampled: The newest sample of each GPU.
        hung: GPUs with a call that has not returned in time.
        workloads: What runs.
        meter: The node's draw, as old as it says now; None when unknown.
        sequence: Of this stream.
        now_s: The time.
    """
    lines = tuple(_line(keeper, gpu, one, gpu in hung, now_s) for gpu, one in sampled.items())
    return Report(
        sequence=sequence,
        gpus=lines,
        highest_term=keeper.highest_term,
        node_power_w=meter.power_w if meter is not None else None,
        node_power_age_s=meter.age_s if meter is not None else None,
        workloads=workloads,
    )


def _line(keeper: LeaseKeeper, gpu: GpuId, sampled: Sampled, hung: bool, now_s: float) -> GpuReport:
    holding, lease = keeper.holding(gpu, now_s), keeper.state.gpus[gpu]
    line = GpuReport(holding, override_w=lease.override_w, overrides=lease.overrides)
    trouble = views.trouble(keeper.state, gpu)
    if hung:
        return replace(
            line,
            power=PowerReading(no_data=NoData.QUARANTINED),
            health=Health.QUARANTINED,
            health_detail=trouble or "a driver call has not returned",
        )
    sample, power = sampled.sample, sampled.power
    if sample is None or power is None or now_s - sampled.at_s > STALE_S:
        cause = NoData.READ_FAILED if sampled.error else NoData.STALE
        words = trouble or sampled.error
        return replace(line, power=PowerReading(no_data=cause), health=Health.DEGRADED, health_detail=words)
    highest_w = sampled.highest_instant_w if sampled.highest_instant_w is not None else power.instant_w
    power = replace(power, age_s=power.age_s + now_s - sampled.at_s, instant_w=highest_w)
    if now_s - sampled.sample_at_s > SENSORS_STALE_S:
        words = trouble or f"its other sensors were last read {now_s - sampled.sample_at_s:.0f} s ago"
        return replace(line, power=power, health=Health.DEGRADED, health_detail=words)
    return replace(
        line,
        power=power,
        energy_j=sample.energy_j,
        temperatures=sample.temperatures,
        utilisation_percent=sample.utilisation_percent,
        limit_reason=sample.limit_reason,
        power_limited_share=sample.power_limited_share,
        health=Health.DEGRADED if trouble else sample.health,
        health_detail=trouble or sample.health_detail,
    )
