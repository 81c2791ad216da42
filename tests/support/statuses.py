"""Status messages as a controller would send them, for rackctl's tests."""

from __future__ import annotations

from rackpower.v1 import agent_pb2, operator_pb2

NOON_UNIX_S = 1_790_000_000.0
MODELS = {
    "h100": ("NVIDIA H100 80GB HBM3", agent_pb2.VENDOR_NVIDIA, 200, 700),
    "mi300x": ("AMD Instinct MI300X", agent_pb2.VENDOR_AMD, 250, 750),
}


def gpu(node: str, index: int, model: str, cap_w: int, **changes: object) -> operator_pb2.Gpu:
    """Return a GPU that is held by its cap, with some fields changed; a field changed to None is left out."""
    name, vendor, min_w, max_w = MODELS[model]
    fields: dict[str, object] = {
        "gpu_uuid": f"GPU-{sum(map(ord, node)):04x}{index:04x}-5c1e-4a51-8f00-000000000000",
        "node": node,
        "model": name,
        "vendor": vendor,
        "target_cap_milliwatts": cap_w * 1000,
        "granted_cap_milliwatts": cap_w * 1000,
        "enforced_cap_milliwatts": cap_w * 1000,
        "exposure_milliwatts": cap_w * 1000,
        "power_milliwatts": (cap_w - 4) * 1000,
        "core_celsius": 61 + index % 3,
        "limit_reason": agent_pb2.LIMIT_REASON_POWER,
        "health": agent_pb2.HEALTH_OK,
        "tokens_per_second": 150.5 + index,
        "why": f"plan: rack-1 is full, the next watt is worth 0.{index}2 tokens/s here",
        "workload": f"{node}-replica-{index}",
        "min_cap_milliwatts": min_w * 1000,
        "max_cap_milliwatts": max_w * 1000,
        "default_cap_milliwatts": max_w * 1000,
        "fallback_cap_milliwatts": 300_000,
        "cap_control": agent_pb2.CAP_CONTROL_OK,
    } | changes
    return operator_pb2.Gpu(**{key: value for key, value in fields.items() if value is not None})  # type: ignore[arg-type]


def domain(name: str, parent: str, limit_w: int, ledger_w: int, **changes: object) -> operator_pb2.Domain:
    """Return a domain with 3 % headroom."""
    fields: dict[str, object] = {
        "name": name,
        "parent": parent,
        "kind": "rack" if parent else "row",
        "limit_milliwatts": limit_w * 1000,
        "headroom_milliwatts": limit_w * 30,
        "ledger_milliwatts": ledger_w * 1000,
        "measured_milliwatts": (ledger_w - 500) * 1000,
        "overhead_milliwatts": 1_200_000,
    } | changes
    return operator_pb2.Domain(**{key: value for key, value in fields.items() if value is not None})  # type: ignore[arg-type]


def node(name: str, **changes: object) -> operator_pb2.Node:
    """Return a live node in rack-1."""
    fields: dict[str, object] = {
        "name": name,
        "state": operator_pb2.NODE_STATE_LIVE,
        "domains": ["rack-1"],
        "report_age_milliseconds": 400,
        "agent_version": "0.1.0",
        "exposure_milliwatts": 6_900_000,
        "power_milliwatts": 6_650_000,
        "overhead_milliwatts": 2_800_000,
        "peers": [f"{name}.example:43210"],
    } | changes
    return operator_pb2.Node(**{key: value for key, value in fields.items() if value is not None})  # type: ignore[arg-type]


def rack(tick: int = 1234) -> operator_pb2.Status:
    """Return a healthy rack of two live nodes: four H100 and four MI300X."""
    gpus = [gpu("gpu-01", index, "h100", 512 + index // 2 * 40) for index in range(4)]
    gpus += [gpu("gpu-02", index, "mi300x", 598) for index in range(4)]
    return operator_pb2.Status(
        unix_seconds=NOON_UNIX_S,
        term=agent_pb2.Term(number=7, instance="c0ffee00-1111-4222-8333-444455556666"),
        tick=tick,
        sentence="moved 120 W from gpu-02 to gpu-01: two lowers confirmed, two raises sent",
        policy_revision="3784943be5fb",
        domains=[domain("row-a", "", 20_000, 15_500), domain("rack-1", "row-a", 16_000, 15_000)],
        nodes=[node("gpu-01"), node("gpu-02")],
        gpus=gpus,
        totals=operator_pb2.Totals(
            limit_milliwatts=20_000_000,
            ledger_milliwatts=15_500_000,
            measured_milliwatts=15_000_000,
            gpus_running=8,
            gpus_at_nameplate=6,
            gpus=8,
            tokens_per_second=1216.0,
            tokens_per_watt=0.081,
        ),
        store="ok",
        planner="lp",
        controller_version="0.1.0",
        decide_seconds=0.0011,
        plan_seconds=0.0042,
        decide_p99_seconds=0.0021,
        plan_p99_seconds=0.0081,
    )


def troubled() -> operator_pb2.Status:
    """Return the same rack with everything that can need attention."""
    status = rack()
    status.store = "redis at 10.0.0.5:6379 does not answer: no raises until it does"
    status.planner = "waterfill"
    status.sentence = "a meter stands above its limit: shed 900 W on gpu-01"
    status.domains[1].deficit_milliwatts = 730_000
    status.domains[1].ledger_milliwatts = 16_250_000
    status.domains[1].held_milliwatts = 6_000_000
    status.domains[1].ClearField("measured_milliwatts")
    status.totals.ClearField("measured_milliwatts")
    status.totals.ClearField("tokens_per_watt")
    status.nodes[1].MergeFrom(
        operator_pb2.Node(
            state=operator_pb2.NODE_STATE_SILENT,
            detail="no report for 95 s; its 6,900 W stay booked until it speaks or is declared off",
            report_age_milliseconds=95_000,
        )
    )
    status.nodes[1].ClearField("power_milliwatts")
    status.nodes.append(
        node(
            "gpu-03",
            state=operator_pb2.NODE_STATE_UNHEARD,
            report_age_milliseconds=None,
            power_milliwatts=None,
            agent_version="",
            detail="never heard in this term: counts at its maximum",
        )
    )
    sick = status.gpus[1]
    sick.health = agent_pb2.HEALTH_QUARANTINED
    sick.why = "the driver does not return: counts at 700 W"
    for field in ("power_milliwatts", "core_celsius", "tokens_per_second"):
        sick.ClearField(field)
    status.gpus[2].cap_control = agent_pb2.CAP_CONTROL_NO_PERMISSION
    status.gpus[3].granted_cap_milliwatts = 500_000
    status.attention.extend(
        operator_pb2.Attention(severity=severity, reason=reason, message=message)
        for severity, reason, message in (
            (operator_pb2.SEVERITY_INFO, "node_unheard", "gpu-03 has not been heard in this term"),
            (operator_pb2.SEVERITY_WARNING, "node_silent", "gpu-02 is silent for 95 s: look at it, or declare it off"),
            (operator_pb2.SEVERITY_ERROR, "deficit", "rack-1 stands 730 W over: power gpu-02 off if it stays dark"),
        )
    )
    return status
