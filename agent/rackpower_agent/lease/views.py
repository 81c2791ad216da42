"""What the lease keeper's state says to others: holdings, readiness, trouble, emergency caps."""

from __future__ import annotations

from rackpower_agent.lease.state import GpuLease, LeaseState
from rackpower_common.errors import invariant
from rackpower_common.model.identity import GpuId
from rackpower_common.model.messages import Holding, PendingWrite


def holding(state: LeaseState, name: GpuId, now_s: float) -> Holding:
    """Return what is held for one GPU. A write counts as pending until it has returned *and* was read back."""
    gpu = state.gpus[name]
    grant = gpu.grant
    pending = [(record.cap_w, record.issued_s) for record in (*gpu.former, *gpu.unread)]
    if gpu.write is not None:
        pending.append((gpu.write.cap_w, gpu.write.issued_s))
    invariant(
        gpu.applied_sequence <= max(gpu.sequence, gpu.seen_sequence),
        2,
        f"GPU {name}: acknowledged what was never taken",
    )
    since_s = gpu.enforced_since_s
    return Holding(
        gpu=name,
        term=gpu.term,
        sequence=gpu.sequence,
        applied_sequence=gpu.applied_sequence,
        requested_w=gpu.requested_w,
        enforced_w=gpu.enforced_w,
        highest_enforced_w=gpu.highest_w,
        enforced_age_s=max(now_s - since_s, 0.0) if since_s is not None and gpu.quiet else None,
        fallback_w=grant.fallback_w if grant is not None else None,
        lease_remaining_s=max(grant.deadline_s - now_s, 0.0) if grant is not None else None,
        pending_writes=tuple(PendingWrite(cap_w, max(now_s - issued_s, 0.0)) for cap_w, issued_s in pending),
    )


def holdings(state: LeaseState, now_s: float) -> tuple[Holding, ...]:
    """Return what is held for every GPU, in the order in which they were listed."""
    return tuple(holding(state, name, now_s) for name in state.gpus)


def ready(state: LeaseState) -> bool:
    """Return whether every GPU stands at or below its safe cap, or is known not to obey: the node may start work."""
    return all(_is_ready(state, gpu) for gpu in state.gpus.values())


def _is_ready(state: LeaseState, gpu: GpuLease) -> bool:
    if not gpu.device.cappable or gpu.hung or (gpu.former and state.former_writer_alive):
        return True
    if gpu.write is not None:
        return gpu.write.late
    level_w, floor_w = gpu.level_w, gpu.floor_w
    low = gpu.placed and gpu.quiet and level_w is not None and floor_w is not None and level_w <= floor_w
    unreadable = gpu.read_failures >= state.limits.start_read_failures and not gpu.fresh
    return low or unreadable or gpu.lower_tries >= state.limits.lower_tries


def trouble(state: LeaseState, name: GpuId) -> str:
    """Return what is wrong with a GPU's cap, in words; empty when nothing is."""
    gpu = state.gpus[name]
    if gpu.contested:
        return "its cap is changed by somebody else again and again; not fought any longer"
    if gpu.former:
        return "a driver call of the agent process before this one has not returned"
    if gpu.write is not None and gpu.write.late:
        return f"the driver has not returned from setting {gpu.write.cap_w} W"
    if gpu.lower_tries >= state.limits.lower_tries:
        return f"the driver does not lower its cap to {gpu.floor_w} W"
    return ""


def emergency_caps(state: LeaseState) -> dict[GpuId, int]:
    """Return the lower of cap in force and fallback for every GPU that takes a write: what a failed invariant asks for.

    Only lowers appear; a GPU that already stands there, hangs, or has a write under way does not.
    """
    caps: dict[GpuId, int] = {}
    for name, gpu in state.gpus.items():
        if not gpu.device.cappable or gpu.hung or gpu.write is not None or gpu.former:
            continue
        wanted = [value for value in (gpu.in_force_w, gpu.ceiling_w) if value is not None]
        if gpu.grant is not None:
            wanted.append(gpu.grant.fallback_w)
        target_w = max(min(wanted), gpu.min_w) if wanted else gpu.min_w
        level_w = gpu.level_w
        if level_w is None or target_w < level_w:
            caps[name] = target_w
    return caps
