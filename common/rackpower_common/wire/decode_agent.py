"""What an agent says, from wire to model: checked, rounded to the safe side, unknown never 0."""

from __future__ import annotations

from rackpower.v1 import agent_pb2
from rackpower_common.model.device import Device, NoData, PowerReading, Temperatures, Workload
from rackpower_common.model.identity import GpuId, NodeName, Term
from rackpower_common.model.messages import (
    AgentGoodbye,
    AgentMessage,
    GpuReport,
    Hello,
    Holding,
    PendingWrite,
    Report,
    WriteError,
    WriteFailure,
)
from rackpower_common.units import MILLI, cap_w_from_mw
from rackpower_common.wire import checks, enums
from rackpower_common.wire.checks import WireError, optional

WORKLOADS_LIMIT = 256
"""Most workloads of one node."""

PENDING_WRITES_LIMIT = 16
"""Most driver writes of one GPU that have not returned."""


def decode_agent_message(message: agent_pb2.ConnectRequest) -> AgentMessage | None:
    """Return an agent's message, None for a kind that this build does not know.

    Raises:
        WireError: A field is missing, out of its limits, or contradicts another.
    """
    match message.WhichOneof("message"):
        case "hello":
            return _hello(message.hello)
        case "report":
            return _report(message.report)
        case "write_error":
            return _write_error(message.write_error)
        case "goodbye":
            return AgentGoodbye(checks.text(message.goodbye.reason), _holdings(message.goodbye.holdings, "goodbye"))
        case _:
            return None


def decode_term(message: agent_pb2.Term) -> Term:
    """Return a term."""
    if message.number < 1:
        raise WireError("term.number is 0, terms count from 1")
    return Term(checks.counter(message.number, "term.number"), checks.name(message.instance, "term.instance"))


def _hello(hello: agent_pb2.Hello) -> Hello:
    checks.gpus((device.gpu_uuid for device in hello.devices), "hello.devices")
    return Hello(
        protocol_version=hello.protocol_version,
        node=NodeName(checks.name(hello.node, "hello.node")),
        agent_version=checks.text(hello.agent_version),
        boot_id=checks.name(hello.boot_id, "hello.boot_id"),
        agent_instance=checks.name(hello.agent_instance, "hello.agent_instance"),
        devices=tuple(map(_device, hello.devices)),
        devices_complete=hello.devices_complete,
        holdings=_holdings(hello.holdings, "hello.holdings"),
        highest_term=decode_term(hello.highest_term) if hello.HasField("highest_term") else None,
        journal_read=hello.journal_read,
        features=tuple(map(checks.text, checks.short(hello.features, "hello.features"))),
    )


def _device(device: agent_pb2.Device) -> Device:
    found = Device(
        gpu=GpuId(checks.name(device.gpu_uuid, "device.gpu_uuid")),
        vendor=enums.VENDORS.member(device.vendor),
        model=checks.name(device.model, "device.model"),
        pci_address=checks.text(device.pci_address),
        min_cap_w=_up_w(device, "min_cap_milliwatts"),
        max_cap_w=_down_w(device, "max_cap_milliwatts"),
        default_cap_w=optional(device, "default_cap_milliwatts", checks.power_w),
        cap_control=enums.CAP_CONTROLS.member(device.cap_control),
        cap_control_detail=checks.text(device.cap_control_detail),
        largest_draw_w=optional(device, "largest_draw_milliwatts", checks.power_w),
        serial=checks.text(device.serial),
        partitions=tuple(map(checks.text, checks.short(device.partitions, "device.partitions"))),
        link_group=checks.text(device.link_group),
        driver_version=checks.text(device.driver_version),
    )
    if found.min_cap_w is not None and found.max_cap_w is not None and found.min_cap_w > found.max_cap_w:
        raise WireError(f"device {found.gpu}: its smallest cap of {found.min_cap_w} W is above the largest")
    return found


def _up_w(device: agent_pb2.Device, field: str) -> int | None:
    """Return a smallest cap in whole watts: what lies below it is refused, so up."""
    return optional(device, field, checks.power_w)


def _down_w(device: agent_pb2.Device, field: str) -> int | None:
    """Return a largest cap in whole watts: what lies above it is refused, so down."""
    value = optional(device, field, lambda milliwatts, name: (checks.power_w(milliwatts, name), milliwatts)[1])
    return cap_w_from_mw(value) if value is not None else None


def _holdings(messages: object, field: str) -> tuple[Holding, ...]:
    holdings = tuple(map(_holding, messages))  # type: ignore[call-overload]
    checks.gpus((holding.gpu for holding in holdings), field)
    return holdings


def _holding(holding: agent_pb2.Holding) -> Holding:
    writes = checks.short(holding.pending_writes, "holding.pending_writes", PENDING_WRITES_LIMIT)
    if holding.applied_sequence > holding.sequence:
        raise WireError(f"holding of {holding.gpu_uuid}: applied_sequence is above sequence")
    return Holding(
        gpu=GpuId(checks.name(holding.gpu_uuid, "holding.gpu_uuid")),
        term=decode_term(holding.term) if holding.HasField("term") else None,
        sequence=checks.counter(holding.sequence, "holding.sequence"),
        applied_sequence=holding.applied_sequence,
        requested_w=optional(holding, "requested_cap_milliwatts", checks.power_w),
        enforced_w=optional(holding, "enforced_cap_milliwatts", checks.power_w),
        highest_enforced_w=optional(holding, "highest_enforced_cap_milliwatts", checks.power_w),
        enforced_age_s=optional(holding, "enforced_age_milliseconds", checks.duration_s),
        fallback_w=optional(holding, "fallback_cap_milliwatts", checks.power_w),
        lease_remaining_s=optional(holding, "lease_remaining_milliseconds", checks.duration_s),
        pending_writes=tuple(
            PendingWrite(
                checks.power_w(write.cap_milliwatts, "pending_write.cap_milliwatts"),
                checks.duration_s(write.age_milliseconds, "pending_write.age_milliseconds"),
            )
            for write in writes
        ),
    )


def _report(report: agent_pb2.Report) -> Report:
    lines = tuple(map(_gpu_report, report.gpus))
    checks.gpus((line.gpu for line in lines), "report.gpus")
    return Report(
        sequence=checks.counter(report.sequence, "report.sequence"),
        gpus=lines,
        highest_term=decode_term(report.highest_term) if report.HasField("highest_term") else None,
        node_power_w=optional(report, "node_power_milliwatts", checks.power_w),
        node_power_age_s=optional(report, "node_power_age_milliseconds", checks.duration_s),
        workloads=tuple(map(_workload, checks.short(report.workloads, "report.workloads", WORKLOADS_LIMIT))),
    )


def _gpu_report(line: agent_pb2.GpuReport) -> GpuReport:
    permille = optional(line, "power_limited_permille", checks.number)
    energy_mj = optional(line, "energy_millijoules", checks.energy_mj)
    return GpuReport(
        holding=_holding(line.holding),
        power=_power(line),
        energy_j=energy_mj / MILLI if energy_mj is not None else None,
        temperatures=_temperatures(line.temperatures),
        utilisation_percent=_percent(line),
        limit_reason=enums.LIMIT_REASONS.member(line.limit_reason),
        power_limited_share=min(1.0, permille / MILLI) if permille is not None else None,
        health=enums.HEALTHS.member(line.health),
        health_detail=checks.text(line.health_detail),
        override_w=optional(line, "override_cap_milliwatts", checks.power_w),
        overrides=line.overrides,
    )


def _percent(line: agent_pb2.GpuReport) -> int | None:
    value = optional(line, "utilisation_percent", checks.number)
    return min(100, int(value)) if value is not None else None


def _power(line: agent_pb2.GpuReport) -> PowerReading:
    average_w = optional(line, "power_average_milliwatts", checks.power_w)
    instant_w = optional(line, "power_instant_milliwatts", checks.power_w)
    window_s = optional(line, "power_window_milliseconds", checks.duration_s)
    age_s = optional(line, "power_age_milliseconds", checks.duration_s)
    scope = enums.POWER_SCOPES.member(line.power_scope)
    if average_w is None and instant_w is None:
        return PowerReading(no_data=enums.NO_DATA.member(line.power_no_data), scope=scope)
    if window_s is None or age_s is None:
        return PowerReading(no_data=NoData.UNKNOWN, scope=scope)
    cause = enums.NO_DATA.member(line.power_no_data) if average_w is None else None
    return PowerReading(average_w, instant_w, window_s, age_s, cause, scope)


def _temperatures(heat: agent_pb2.Temperatures) -> Temperatures:
    return Temperatures(
        optional(heat, "core_celsius", checks.celsius),
        optional(heat, "hotspot_celsius", checks.celsius),
        optional(heat, "memory_celsius", checks.celsius),
        optional(heat, "slowdown_celsius", checks.celsius),
    )


def _workload(workload: agent_pb2.Workload) -> Workload:
    checks.gpus(workload.gpu_uuids, "workload.gpu_uuids")
    return Workload(
        name=checks.name(workload.name, "workload.name"),
        gpus=tuple(GpuId(checks.name(gpu, "workload.gpu_uuids")) for gpu in workload.gpu_uuids),
        generated_tokens_per_s=optional(workload, "generated_tokens_per_second", checks.rate),
        prompt_tokens_per_s=optional(workload, "prompt_tokens_per_second", checks.rate),
        requests_running=workload.requests_running if workload.HasField("requests_running") else None,
        requests_waiting=workload.requests_waiting if workload.HasField("requests_waiting") else None,
        generated_tokens=optional(workload, "generated_tokens", checks.counter),
        server=checks.text(workload.server),
        source=checks.text(workload.source),
    )


def _write_error(error: agent_pb2.WriteError) -> WriteError:
    known = {reason.value for reason in WriteFailure}
    return WriteError(
        gpu=GpuId(checks.name(error.gpu_uuid, "write_error.gpu_uuid")),
        term=decode_term(error.term) if error.HasField("term") else None,
        sequence=checks.counter(error.sequence, "write_error.sequence"),
        cap_w=checks.power_w(error.cap_milliwatts, "write_error.cap_milliwatts"),
        reason=WriteFailure(error.reason) if error.reason in known else WriteFailure.UNKNOWN,
        detail=checks.text(error.detail),
        enforced_w=optional(error, "enforced_cap_milliwatts", checks.power_w),
    )
