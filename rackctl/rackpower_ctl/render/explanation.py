"""Why a GPU has its cap: the limits above it, the tightest first said, then plan, grant and hardware."""

from __future__ import annotations

from rich.text import Text

from rackpower.v1 import agent_pb2, operator_pb2
from rackpower_ctl.render import words
from rackpower_ctl.render.gpu_groups import short_model
from rackpower_ctl.render.status_json import domain_record, gpu_record


def domains_above(status: operator_pb2.Status, node_name: str) -> list[operator_pb2.Domain]:
    """Return the domains that carry a node, nearest first; each once, also where trees go in circles."""
    known = {domain.name: domain for domain in status.domains}
    waiting = [name for node in status.nodes if node.name == node_name for name in node.domains]
    above: dict[str, operator_pb2.Domain] = {}
    while waiting:
        name = waiting.pop(0)
        if name in known and name not in above:
            above[name] = known[name]
            waiting.append(known[name].parent)
    return list(above.values())


def free_milliwatts(domain: operator_pb2.Domain) -> int:
    """Return what a domain's ledger leaves below limit − headroom; negative in a deficit."""
    return domain.limit_milliwatts - domain.headroom_milliwatts - domain.ledger_milliwatts


def tightest(domains: list[operator_pb2.Domain]) -> operator_pb2.Domain | None:
    """Return the domain with the smallest free share of its limit."""
    return min(
        domains,
        key=lambda domain: free_milliwatts(domain) / max(1, domain.limit_milliwatts),
        default=None,
    )


def explanation_text(status: operator_pb2.Status, gpu: operator_pb2.Gpu) -> Text:
    """Return the explanation for a person, a line a step."""
    above = domains_above(status, gpu.node)
    narrowest = tightest(above)
    lines = [
        f"{gpu.gpu_uuid}, {short_model(gpu.model)} on {gpu.node}: {_watts(gpu, 'enforced_cap_milliwatts')} W in force",
        f"because: {gpu.why or 'the controller has not said'}",
        "",
    ]
    for domain in above:
        free = free_milliwatts(domain)
        room = f"{words.watts(free)} W free" if free >= 0 else f"{words.watts(-free)} W over"
        mark = "  <- the tightest" if narrowest is not None and domain.name == narrowest.name else ""
        lines.append(
            f"{domain.name}: ledger {words.watts(domain.ledger_milliwatts)} of "
            f"{words.watts(domain.limit_milliwatts - domain.headroom_milliwatts)} W, {room}{mark}"
        )
    low, high = words.watts(gpu.min_cap_milliwatts), words.watts(gpu.max_cap_milliwatts)
    held, draw = _watts(gpu, "enforced_cap_milliwatts"), _watts(gpu, "power_milliwatts")
    lines += [
        f"plan: {_watts(gpu, 'target_cap_milliwatts')} W, inside its bounds of {low} to {high} W",
        f"grant: {_watts(gpu, 'granted_cap_milliwatts')} W{_waiting(gpu)}",
        f"hardware: {held} W read back, draws {draw} W; {_limited(gpu)}",
        f"ledger: counts at {words.watts(gpu.exposure_milliwatts)} W, the most it may draw as far as is proven",
        f"without a controller: {_watts(gpu, 'fallback_cap_milliwatts')} W when its lease ends",
    ]
    return Text("\n".join(words.clean(line) for line in lines))


def explanation_document(status: operator_pb2.Status, gpu: operator_pb2.Gpu) -> dict[str, object]:
    """Return the explanation for scripts."""
    above = domains_above(status, gpu.node)
    narrowest = tightest(above)
    return {
        "why": gpu.why,
        "gpu": gpu_record(gpu),
        "domains": [domain_record(domain) for domain in above],
        "tightest_domain": None if narrowest is None else narrowest.name,
    }


def _waiting(gpu: operator_pb2.Gpu) -> str:
    if gpu.HasField("granted_cap_milliwatts") and gpu.HasField("enforced_cap_milliwatts"):
        if gpu.granted_cap_milliwatts < gpu.enforced_cap_milliwatts:
            return ", a lower that is not read back yet"
        if gpu.granted_cap_milliwatts > gpu.enforced_cap_milliwatts:
            return ", a raise that is not read back yet"
    if not gpu.HasField("target_cap_milliwatts") or not gpu.HasField("granted_cap_milliwatts"):
        return ""
    if gpu.granted_cap_milliwatts < gpu.target_cap_milliwatts:
        return ", a raise that waits for its watts"
    if gpu.granted_cap_milliwatts > gpu.target_cap_milliwatts:
        return ", a lower that is due or inside the dead-band"
    return ", as planned"


def _limited(gpu: operator_pb2.Gpu) -> str:
    if gpu.limit_reason == agent_pb2.LIMIT_REASON_NONE:
        return "nothing holds it back"
    word = words.LIMITED_BY.get(gpu.limit_reason)
    return "what limits it is not known" if word is None else f"limited by {word}"


def _watts(gpu: operator_pb2.Gpu, field: str) -> str:
    known = gpu.HasField(field)  # type: ignore[arg-type]  # the stubs list the names, we pass one on
    return words.watts(getattr(gpu, field) if known else None)
