"""The status as JSON: stable names, the unit is a name's last word, unknown is null and never 0.

Documented in docs/rackctl.md. Keys are only ever added; `format` rises when one changes its meaning.
"""

from __future__ import annotations

import math
from typing import Final

from google.protobuf.message import Message

from rackpower.v1 import operator_pb2
from rackpower_ctl.render import words

FORMAT: Final = 1

Value = str | int | float | bool | None
Record = dict[str, Value]
Document = dict[str, object]


def status_document(status: operator_pb2.Status) -> Document:
    """Return the whole status as plain values for `json.dumps`."""
    return {
        "format": FORMAT,
        "time_unix_seconds": status.unix_seconds,
        "controller_version": status.controller_version,
        "term_number": status.term.number,
        "term_instance": status.term.instance,
        "tick": status.tick,
        "policy_revision": status.policy_revision,
        "store": status.store,
        "planner": status.planner,
        "decide_seconds": status.decide_seconds,
        "decide_p99_seconds": status.decide_p99_seconds,
        "plan_seconds": status.plan_seconds,
        "plan_p99_seconds": status.plan_p99_seconds,
        "sentence": status.sentence,
        "attention": [
            {"severity": words.severity(item.severity), "reason": item.reason, "message": item.message}
            for item in status.attention
        ],
        "totals": totals_record(status.totals),
        "domains": [domain_record(domain) for domain in status.domains],
        "nodes": [node_record(node) for node in status.nodes],
        "gpus": [gpu_record(gpu) for gpu in status.gpus],
    }


def totals_record(totals: operator_pb2.Totals) -> Record:
    """Return the sums of the rack."""
    return {
        "limit_watts": _watts(totals.limit_milliwatts),
        "ledger_watts": _watts(totals.ledger_milliwatts),
        "measured_watts": _optional_watts(totals, "measured_milliwatts"),
        "gpus": totals.gpus,
        "gpus_running": totals.gpus_running,
        "gpus_at_nameplate": totals.gpus_at_nameplate,
        "tokens_per_second": _optional(totals, "tokens_per_second"),
        "tokens_per_watt": _optional(totals, "tokens_per_watt"),
    }


def domain_record(domain: operator_pb2.Domain) -> Record:
    """Return one point of the power tree."""
    return {
        "name": domain.name,
        "parent": domain.parent or None,
        "kind": domain.kind,
        "limit_watts": _watts(domain.limit_milliwatts),
        "headroom_watts": _watts(domain.headroom_milliwatts),
        "ledger_watts": _watts(domain.ledger_milliwatts),
        "measured_watts": _optional_watts(domain, "measured_milliwatts"),
        "deficit_watts": _watts(domain.deficit_milliwatts),
        "overhead_watts": _watts(domain.overhead_milliwatts),
        "held_watts": _watts(domain.held_milliwatts),
    }


def node_record(node: operator_pb2.Node) -> Document:
    """Return one node."""
    age_ms = _optional(node, "report_age_milliseconds")
    return {
        "name": node.name,
        "state": words.node_state(node.state),
        "detail": node.detail,
        "domains": list(node.domains),
        "report_age_seconds": None if age_ms is None else age_ms / 1000,
        "agent_version": node.agent_version,
        "exposure_watts": _watts(node.exposure_milliwatts),
        "power_watts": _optional_watts(node, "power_milliwatts"),
        "overhead_watts": _watts(node.overhead_milliwatts),
        "peers": list(node.peers),
    }


def gpu_record(gpu: operator_pb2.Gpu) -> Record:
    """Return one GPU."""
    return {
        "gpu_uuid": gpu.gpu_uuid,
        "node": gpu.node,
        "model": gpu.model,
        "vendor": words.vendor(gpu.vendor),
        "target_cap_watts": _optional_watts(gpu, "target_cap_milliwatts"),
        "granted_cap_watts": _optional_watts(gpu, "granted_cap_milliwatts"),
        "enforced_cap_watts": _optional_watts(gpu, "enforced_cap_milliwatts"),
        "fallback_cap_watts": _optional_watts(gpu, "fallback_cap_milliwatts"),
        "min_cap_watts": _watts(gpu.min_cap_milliwatts),
        "max_cap_watts": _watts(gpu.max_cap_milliwatts),
        "default_cap_watts": _watts(gpu.default_cap_milliwatts),
        "exposure_watts": _watts(gpu.exposure_milliwatts),
        "power_watts": _optional_watts(gpu, "power_milliwatts"),
        "core_celsius": _optional(gpu, "core_celsius"),
        "limit_reason": words.limit_reason(gpu.limit_reason),
        "health": words.health(gpu.health),
        "cap_control": words.cap_control(gpu.cap_control),
        "workload": gpu.workload or None,
        "tokens_per_second": _optional(gpu, "tokens_per_second"),
        "why": gpu.why,
    }


def _watts(milliwatts: int) -> int | float:
    """Return watts: whole where they are whole, else with what decimals there are."""
    return milliwatts // 1000 if milliwatts % 1000 == 0 else milliwatts / 1000


def _optional(message: Message, field: str) -> int | float | None:
    value: int | float = getattr(message, field)
    return value if message.HasField(field) and math.isfinite(value) else None


def _optional_watts(message: Message, field: str) -> int | float | None:
    value: int = getattr(message, field)
    return _watts(value) if message.HasField(field) else None
