"""What agents say: hello, report, write error, goodbye."""

from __future__ import annotations

from typing import Final

from rackpower.v1 import agent_pb2 as pb
from rackpower_common.model.identity import GpuId, NodeName
from rackpower_common.model.messages import (
    GPUS_PER_NODE_LIMIT,
    AgentGoodbye,
    AgentMessage,
    GpuReport,
    Hello,
    Report,
    WriteError,
    WriteFailure,
)
from rackpower_common.units import MILLI, mw_from_w
from rackpower_common.wire import quantities as q
from rackpower_common.wire import vocabulary as v
from rackpower_common.wire.devices import (
    device_from,
    device_to,
    power_from,
    put_power,
    temperatures_from,
    temperatures_to,
    workload_from,
    workload_to,
)
from rackpower_common.wire.holdings import (
    holding_from,
    holding_to,
    holdings_from,
    holdings_to,
    optional_cap_mw,
    term_from,
    term_to,
)

FEATURES_LIMIT: Final = 64
WORKLOADS_LIMIT: Final = 256
"""Workloads of one node."""

_FAILURES: Final = {failure.value: failure for failure in WriteFailure}


def agent_message_from(message: pb.ConnectRequest) -> AgentMessage:
    """Return what an agent said.

    Raises:
        WireError: It is empty, of a kind that this build does not know, or holds what cannot be meant.
    """
    match message.WhichOneof("message"):
        case "hello":
            return hello_from(message.hello)
        case "report":
            return report_from(message.report)
        case "write_error":
            return write_error_from(message.write_error)
        case "goodbye":
            goodbye = message.goodbye
            return AgentGoodbye(q.text(goodbye.reason), holdings_from(goodbye.holdings, "goodbye.holdings"))
        case _:
            raise q.WireError("the message is empty, or of a kind that this version does not know")


def agent_message_to(message: AgentMessage) -> pb.ConnectRequest:
    """Return a message of an agent for the wire.

    Raises:
        WireError: A value cannot be sent; the words name it.
    """
    match message:
        case Hello():
            return pb.ConnectRequest(hello=hello_to(message))
        case Report():
            return pb.ConnectRequest(report=report_to(message))
        case WriteError():
            return pb.ConnectRequest(write_error=write_error_to(message))
        case AgentGoodbye():
            holdings = holdings_to(message.holdings, "goodbye.holdings")
            return pb.ConnectRequest(goodbye=pb.AgentGoodbye(reason=q.text(message.reason), holdings=holdings))


def hello_from(message: pb.Hello) -> Hello:
    """Return a hello.

    Raises:
        WireError: A field cannot be meant.
    """
    q.at_most_items(message.devices, GPUS_PER_NODE_LIMIT, "hello.devices")
    devices = tuple(device_from(device, f"hello.devices[{place}]") for place, device in enumerate(message.devices))
    q.no_duplicate((device.gpu for device in devices), "hello.devices")
    return Hello(
        protocol_version=message.protocol_version,
        node=NodeName(q.name(message.node, "hello.node")),
        agent_version=q.optional_name(message.agent_version, "hello.agent_version"),
        boot_id=q.name(message.boot_id, "hello.boot_id"),
        agent_instance=q.name(message.agent_instance, "hello.agent_instance"),
        devices=devices,
        devices_complete=message.devices_complete,
        holdings=holdings_from(message.holdings, "hello.holdings"),
        highest_term=term_from(message.highest_term, "hello.highest_term")
        if message.HasField("highest_term")
        else None,
        journal_read=message.journal_read,
        features=q.names(message.features, FEATURES_LIMIT, "hello.features"),
    )


def hello_to(hello: Hello) -> pb.Hello:
    """Return a hello for the wire.

    Raises:
        WireError: A value cannot be sent.
    """
    q.at_most_items(hello.devices, GPUS_PER_NODE_LIMIT, "hello.devices")
    q.no_duplicate((device.gpu for device in hello.devices), "hello.devices")
    return pb.Hello(
        protocol_version=q.count(hello.protocol_version, "hello.protocol_version"),
        node=q.name(hello.node, "hello.node"),
        agent_version=q.optional_name(hello.agent_version, "hello.agent_version"),
        boot_id=q.name(hello.boot_id, "hello.boot_id"),
        agent_instance=q.name(hello.agent_instance, "hello.agent_instance"),
        devices=[device_to(device, f"hello.devices[{place}]") for place, device in enumerate(hello.devices)],
        devices_complete=hello.devices_complete,
        holdings=holdings_to(hello.holdings, "hello.holdings"),
        highest_term=term_to(hello.highest_term, "hello.highest_term"),
        journal_read=hello.journal_read,
        features=q.names(hello.features, FEATURES_LIMIT, "hello.features"),
    )


def gpu_report_from(message: pb.GpuReport, where: str) -> GpuReport:
    """Return one GPU's line of a report.

    Raises:
        WireError: A field cannot be meant.
    """
    energy_mj = q.optional(message, "energy_millijoules", _energy_mj, where)
    limited = q.optional(message, "power_limited_permille", _permille, where)
    return GpuReport(
        holding=holding_from(message.holding, f"{where}.holding"),
        power=power_from(message, where),
        energy_j=None if energy_mj is None else energy_mj / MILLI,
        temperatures=temperatures_from(message.temperatures, f"{where}.temperatures"),
        utilisation_percent=q.optional(message, "utilisation_percent", _percent, where),
        limit_reason=v.limit_reason(message.limit_reason),
        power_limited_share=None if limited is None else limited / MILLI,
        health=v.health(message.health),
        health_detail=q.text(message.health_detail),
        override_w=q.optional(message, "override_cap_milliwatts", q.cap_w, where),
        overrides=message.overrides,
    )


def gpu_report_to(report: GpuReport, where: str) -> pb.GpuReport:
    """Return one GPU's line for the wire; what no sensor can mean is left out.

    Raises:
        WireError: A value that caps depend on cannot be sent.
    """
    energy_j, share, busy = report.energy_j, report.power_limited_share, report.utilisation_percent
    message = pb.GpuReport(
        holding=holding_to(report.holding, f"{where}.holding"),
        energy_millijoules=round(energy_j * MILLI)
        if energy_j is not None and 0 <= energy_j <= q.ENERGY_LIMIT_MJ / MILLI
        else None,
        temperatures=temperatures_to(report.temperatures),
        utilisation_percent=busy if busy is not None and 0 <= busy <= 100 else None,
        limit_reason=v.LIMIT_REASON_TO[report.limit_reason],
        power_limited_permille=round(share * MILLI) if share is not None and 0 <= share <= 1 else None,
        health=v.HEALTH_TO[report.health],
        health_detail=q.text(report.health_detail),
        override_cap_milliwatts=optional_cap_mw(report.override_w, f"{where}.override_cap"),
        overrides=q.count(report.overrides, f"{where}.overrides"),
    )
    put_power(report.power, message, where)
    return message


def _energy_mj(value: int, field: str) -> int:
    return q.within(value, 0, q.ENERGY_LIMIT_MJ, field)


def _permille(value: int, field: str) -> int:
    return q.within(value, 0, 1000, field)


def _percent(value: int, field: str) -> int:
    return q.within(value, 0, 100, field)


def report_from(message: pb.Report) -> Report:
    """Return a report.

    Raises:
        WireError: A field cannot be meant, a GPU is named twice, or there are too many.
    """
    q.at_most_items(message.gpus, GPUS_PER_NODE_LIMIT, "report.gpus")
    q.at_most_items(message.workloads, WORKLOADS_LIMIT, "report.workloads")
    gpus = tuple(gpu_report_from(gpu, f"report.gpus[{place}]") for place, gpu in enumerate(message.gpus))
    q.no_duplicate((gpu.gpu for gpu in gpus), "report.gpus")
    return Report(
        sequence=q.sequence(message.sequence, "report.sequence"),
        gpus=gpus,
        highest_term=term_from(message.highest_term, "report.highest_term")
        if message.HasField("highest_term")
        else None,
        node_power_w=q.optional(message, "node_power_milliwatts", q.draw_w, "report"),
        node_power_age_s=q.optional(message, "node_power_age_milliseconds", q.age_s, "report"),
        workloads=tuple(
            workload_from(workload, f"report.workloads[{place}]") for place, workload in enumerate(message.workloads)
        ),
    )


def report_to(report: Report) -> pb.Report:
    """Return a report for the wire.

    Raises:
        WireError: A value that caps depend on cannot be sent.
    """
    q.at_most_items(report.gpus, GPUS_PER_NODE_LIMIT, "report.gpus")
    q.at_most_items(report.workloads, WORKLOADS_LIMIT, "report.workloads")
    q.no_duplicate((gpu.gpu for gpu in report.gpus), "report.gpus")
    node_w = report.node_power_w if q.is_draw(report.node_power_w) else None
    age_s = report.node_power_age_s
    return pb.Report(
        sequence=q.sequence(report.sequence, "report.sequence"),
        gpus=[gpu_report_to(gpu, f"report.gpus[{place}]") for place, gpu in enumerate(report.gpus)],
        highest_term=term_to(report.highest_term, "report.highest_term"),
        node_power_milliwatts=None if node_w is None else mw_from_w(node_w),
        node_power_age_milliseconds=None if age_s is None else q.ms_up(age_s, "report.node_power_age"),
        workloads=[
            workload_to(workload, f"report.workloads[{place}]") for place, workload in enumerate(report.workloads)
        ],
    )


def write_error_from(message: pb.WriteError) -> WriteError:
    """Return a write error; a reason that this build does not know is unknown.

    Raises:
        WireError: A field cannot be meant.
    """
    where = "write_error"
    return WriteError(
        gpu=GpuId(q.name(message.gpu_uuid, f"{where}.gpu_uuid")),
        term=term_from(message.term, f"{where}.term") if message.HasField("term") else None,
        sequence=q.sequence(message.sequence, f"{where}.sequence"),
        cap_w=q.cap_w(message.cap_milliwatts, f"{where}.cap_milliwatts"),
        reason=_FAILURES.get(message.reason, WriteFailure.UNKNOWN),
        detail=q.text(message.detail),
        enforced_w=q.optional(message, "enforced_cap_milliwatts", q.cap_w, where),
    )


def write_error_to(error: WriteError) -> pb.WriteError:
    """Return a write error for the wire.

    Raises:
        WireError: A value cannot be sent.
    """
    return pb.WriteError(
        gpu_uuid=q.name(error.gpu, "write_error.gpu_uuid"),
        term=term_to(error.term, "write_error.term"),
        sequence=q.sequence(error.sequence, "write_error.sequence"),
        cap_milliwatts=q.cap_mw(error.cap_w, "write_error.cap"),
        reason=error.reason.value,
        detail=q.text(error.detail),
        enforced_cap_milliwatts=optional_cap_mw(error.enforced_w, "write_error.enforced_cap"),
    )
