"""What an agent says, from model to wire."""

from __future__ import annotations

from rackpower.v1 import agent_pb2
from rackpower_common.model.device import Device, NoData, Temperatures, Workload
from rackpower_common.model.identity import Term
from rackpower_common.model.messages import (
    AgentGoodbye,
    AgentMessage,
    GpuReport,
    Hello,
    Holding,
    Report,
    WriteError,
)
from rackpower_common.units import MILLI, ms_from_s, ms_up_from_s, mw_from_w
from rackpower_common.wire import checks, enums

COUNT_LIMIT = 2**32 - 1
"""Largest count that its field holds."""


def encode_agent_message(message: AgentMessage) -> agent_pb2.ConnectRequest:
    """Return an agent's message as it goes over the wire."""
    match message:
        case Hello():
            return agent_pb2.ConnectRequest(hello=_hello(message))
        case Report():
            return agent_pb2.ConnectRequest(report=_report(message))
        case WriteError():
            return agent_pb2.ConnectRequest(write_error=_write_error(message))
        case AgentGoodbye():
            holdings = map(holding_message, message.holdings)
            return agent_pb2.ConnectRequest(
                goodbye=agent_pb2.AgentGoodbye(reason=checks.text(message.reason), holdings=holdings)
            )


def term_message(term: Term | None) -> agent_pb2.Term | None:
    """Return a term, None for none."""
    return agent_pb2.Term(number=term.number, instance=term.instance) if term is not None else None


def _mw(watts: int | None) -> int | None:
    return mw_from_w(watts) if watts is not None else None


def _ms(seconds: float | None) -> int | None:
    return ms_from_s(seconds) if seconds is not None else None


def _older_ms(seconds: float | None) -> int | None:
    """Return an age rounded up: a reading may only be stated older."""
    return ms_up_from_s(seconds) if seconds is not None else None


def _hello(hello: Hello) -> agent_pb2.Hello:
    return agent_pb2.Hello(
        protocol_version=hello.protocol_version,
        node=hello.node,
        agent_version=hello.agent_version,
        boot_id=hello.boot_id,
        agent_instance=hello.agent_instance,
        devices=map(_device, hello.devices),
        devices_complete=hello.devices_complete,
        holdings=map(holding_message, hello.holdings),
        highest_term=term_message(hello.highest_term),
        journal_read=hello.journal_read,
        features=hello.features,
    )


def _device(device: Device) -> agent_pb2.Device:
    return agent_pb2.Device(
        gpu_uuid=device.gpu,
        vendor=enums.VENDORS.number(device.vendor),  # type: ignore[arg-type]
        model=device.model,
        pci_address=device.pci_address,
        serial=device.serial,
        min_cap_milliwatts=_mw(device.min_cap_w),
        max_cap_milliwatts=_mw(device.max_cap_w),
        default_cap_milliwatts=_mw(device.default_cap_w),
        cap_control=enums.CAP_CONTROLS.number(device.cap_control),  # type: ignore[arg-type]
        cap_control_detail=checks.text(device.cap_control_detail),
        largest_draw_milliwatts=_mw(device.largest_draw_w),
        partitions=device.partitions,
        link_group=device.link_group,
        driver_version=device.driver_version,
    )


def holding_message(holding: Holding) -> agent_pb2.Holding:
    """Return what an agent holds for one GPU."""
    return agent_pb2.Holding(
        gpu_uuid=holding.gpu,
        term=term_message(holding.term),
        sequence=holding.sequence,
        applied_sequence=holding.applied_sequence,
        requested_cap_milliwatts=_mw(holding.requested_w),
        enforced_cap_milliwatts=_mw(holding.enforced_w),
        highest_enforced_cap_milliwatts=_mw(holding.highest_enforced_w),
        enforced_age_milliseconds=_ms(holding.enforced_age_s),
        fallback_cap_milliwatts=_mw(holding.fallback_w),
        lease_remaining_milliseconds=_ms(holding.lease_remaining_s),
        pending_writes=(
            agent_pb2.PendingWrite(cap_milliwatts=mw_from_w(write.cap_w), age_milliseconds=ms_from_s(write.age_s))
            for write in holding.pending_writes
        ),
    )


def _report(report: Report) -> agent_pb2.Report:
    return agent_pb2.Report(
        sequence=report.sequence,
        gpus=map(_gpu_report, report.gpus),
        node_power_milliwatts=_mw(checks.sent_power(report.node_power_w)),
        node_power_age_milliseconds=_older_ms(report.node_power_age_s),
        workloads=map(_workload, report.workloads),
        highest_term=term_message(report.highest_term),
    )


def _gpu_report(line: GpuReport) -> agent_pb2.GpuReport:
    power = line.power
    average_w, instant_w = checks.sent_power(power.average_w), checks.sent_power(power.instant_w)
    known = average_w is not None or instant_w is not None
    cause = NoData.IMPLAUSIBLE if average_w is None and power.average_w is not None else power.no_data
    limited, energy_j = line.power_limited_share, checks.sent_rate(line.energy_j)
    return agent_pb2.GpuReport(
        holding=holding_message(line.holding),
        power_average_milliwatts=_mw(average_w),
        power_instant_milliwatts=_mw(instant_w),
        power_window_milliseconds=_older_ms(power.window_s) if known else None,
        power_age_milliseconds=_older_ms(power.age_s) if known else None,
        power_no_data=enums.NO_DATA.number(cause or NoData.UNKNOWN),  # type: ignore[arg-type]
        power_scope=enums.POWER_SCOPES.number(power.scope),  # type: ignore[arg-type]
        energy_millijoules=round(energy_j * MILLI) if energy_j is not None else None,
        temperatures=_temperatures(line.temperatures),
        utilisation_percent=checks.sent_count(line.utilisation_percent, 100),
        limit_reason=enums.LIMIT_REASONS.number(line.limit_reason),  # type: ignore[arg-type]
        power_limited_permille=round(limited * MILLI) if limited is not None and 0 <= limited <= 1 else None,
        health=enums.HEALTHS.number(line.health),  # type: ignore[arg-type]
        health_detail=checks.text(line.health_detail),
        override_cap_milliwatts=_mw(line.override_w),
        overrides=line.overrides,
    )


def _temperatures(heat: Temperatures) -> agent_pb2.Temperatures:
    return agent_pb2.Temperatures(
        core_celsius=checks.sent_celsius(heat.core_c),
        hotspot_celsius=checks.sent_celsius(heat.hotspot_c),
        memory_celsius=checks.sent_celsius(heat.memory_c),
        slowdown_celsius=checks.sent_celsius(heat.slowdown_c),
    )


def _workload(workload: Workload) -> agent_pb2.Workload:
    return agent_pb2.Workload(
        name=workload.name,
        gpu_uuids=workload.gpus,
        generated_tokens_per_second=checks.sent_rate(workload.generated_tokens_per_s),
        prompt_tokens_per_second=checks.sent_rate(workload.prompt_tokens_per_s),
        requests_running=checks.sent_count(workload.requests_running, COUNT_LIMIT),
        requests_waiting=checks.sent_count(workload.requests_waiting, COUNT_LIMIT),
        generated_tokens=checks.sent_count(workload.generated_tokens, checks.NUMBER_LIMIT),
        server=workload.server,
        source=workload.source,
    )


def _write_error(error: WriteError) -> agent_pb2.WriteError:
    return agent_pb2.WriteError(
        gpu_uuid=error.gpu,
        term=term_message(error.term),
        sequence=error.sequence,
        cap_milliwatts=mw_from_w(error.cap_w),
        reason=error.reason.value,
        detail=checks.text(error.detail),
        enforced_cap_milliwatts=_mw(error.enforced_w),
    )
