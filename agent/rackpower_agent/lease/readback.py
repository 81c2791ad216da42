"""What reading a cap back teaches: acknowledgements, overrides, clamps, and where a starting agent stands."""

from __future__ import annotations

from dataclasses import replace

from rackpower_agent.lease.events import CapRead, CapReadFailed, Level, ReadCap, WriteLate, WriteReturned
from rackpower_agent.lease.memory import WriteRecord
from rackpower_agent.lease.state import NEVER_S, GpuLease
from rackpower_agent.lease.writing import Step
from rackpower_common.model.messages import WriteFailure

IMPLAUSIBLE_TIMES_MAX = 3
"""A cap reading above this many times the maximum is a unit mistake or a sentinel, not a cap (HAZARDS, units 7)."""

UNREAD_LIMIT = 4
"""Most writes kept that returned without a read-back; reading has failed so often by then that the oldest is moot."""


def write_returned(step: Step, gpu: GpuLease, event: WriteReturned) -> GpuLease:
    """The driver answered; only a read-back tells what it did, so ask for one in any case."""
    write = gpu.write
    if write is None or write.number != event.number:
        return gpu
    step.actions.append(ReadCap(gpu.gpu))
    failed = event.failure is not None
    if event.failure is not None:
        step.tell(gpu, event.failure, event.detail, write.cap_w, write.sequence)
    return replace(
        gpu,
        write=None,
        returned_s=step.now_s,
        unread=(*gpu.unread, WriteRecord(write.cap_w, write.issued_s))[-UNREAD_LIMIT:],
        asked_w=max(write.cap_w, gpu.asked_w or 0) if failed else write.cap_w,
        obeyed=failed,
        read_failures=0,
        clamp_due_s=None if failed or gpu.clamp_due_s is None else step.now_s + step.limits.clamp_after_s,
    )


def write_late(step: Step, gpu: GpuLease, event: WriteLate) -> GpuLease:
    """Tell that a write has passed its deadline; it counts until it returns and is read back."""
    write = gpu.write
    if write is None or write.number != event.number or write.late:
        return gpu
    step.tell(gpu, WriteFailure.TIMEOUT, "the driver call has not returned", write.cap_w, write.sequence)
    step.dirty = True
    return replace(gpu, write=replace(write, late=True))


def cap_read_failed(step: Step, gpu: GpuLease, event: CapReadFailed) -> GpuLease:
    """Count it; a GPU that never could be read starts at its minimum all the same when nothing forbids it."""
    failures = gpu.read_failures + 1
    if failures == step.limits.start_read_failures and not gpu.placed:
        step.note(Level.ERROR, "cap_unreadable", f"GPU {gpu.gpu}: its cap cannot be read: {event.detail}", gpu.gpu)
        if gpu.fresh and gpu.ceiling_w is None:
            gpu = replace(gpu, ceiling_w=gpu.min_w)
    return replace(gpu, read_failures=failures)


def cap_read(step: Step, gpu: GpuLease, event: CapRead) -> GpuLease:
    """Take a reading in: what stands, since when, whether it is ours, and what it acknowledges."""
    requested_w, enforced_w = _plausible(gpu, event.requested_w), _plausible(gpu, event.enforced_w)
    if requested_w is None and enforced_w is None:
        return cap_read_failed(step, gpu, CapReadFailed(gpu.gpu, WriteFailure.UNKNOWN, "no plausible cap was read"))
    if _as_before(gpu, requested_w, enforced_w) and event.started_s >= gpu.returned_s:
        return gpu
    seen_w = [value for value in (enforced_w, gpu.highest_w) if value is not None]
    gpu = replace(gpu, highest_w=max(seen_w) if seen_w else None)
    if event.started_s < gpu.returned_s:
        return gpu
    after_write = bool(gpu.unread)
    former = gpu.former if step.former_writer_alive else ()
    if gpu.former and not former:
        step.dirty, after_write = True, True
    changed = enforced_w != gpu.enforced_w or after_write or gpu.enforced_since_s is None
    before_w = gpu.expected_w
    gpu = replace(
        gpu,
        requested_w=requested_w,
        enforced_w=enforced_w,
        enforced_since_s=step.now_s if changed else gpu.enforced_since_s,
        unread=() if gpu.write is None else gpu.unread,
        former=former,
        read_failures=0,
    )
    if gpu.write is not None or gpu.former:
        return gpu
    stands_w = requested_w if requested_w is not None else enforced_w
    ours = stands_w == gpu.asked_w
    late_effect = ours and not gpu.obeyed
    gpu = replace(gpu, expected_w=stands_w, obeyed=gpu.obeyed or ours)
    if not gpu.placed:
        gpu = _place(gpu)
    elif before_w is not None and stands_w is not None and stands_w != before_w and not after_write and not late_effect:
        gpu = _overridden(step, gpu, before_w, stands_w)
    return _judge(step, gpu)


def _as_before(gpu: GpuLease, requested_w: int | None, enforced_w: int | None) -> bool:
    """Return whether a reading shows what the last one did, with nothing open that it could close: nearly all do."""
    stands_w = requested_w if requested_w is not None else enforced_w
    nothing_open = (
        gpu.quiet
        and gpu.placed
        and gpu.obeyed
        and not gpu.read_failures
        and not gpu.overridden
        and not gpu.lower_tries
        and gpu.next_try_s == NEVER_S
        and gpu.enforced_since_s is not None
        and (gpu.grant is None or gpu.confirmed_sequence >= gpu.grant.sequence)
    )
    return (
        nothing_open
        and (requested_w, enforced_w, stands_w) == (gpu.requested_w, gpu.enforced_w, gpu.expected_w)
        and (enforced_w is None or (gpu.highest_w is not None and gpu.highest_w >= enforced_w))
    )


def _plausible(gpu: GpuLease, cap_w: int | None) -> int | None:
    max_w = gpu.device.max_cap_w
    if cap_w is None or cap_w <= 0 or (max_w is not None and cap_w > IMPLAUSIBLE_TIMES_MAX * max_w):
        return None
    return cap_w


def _place(gpu: GpuLease) -> GpuLease:
    """First reading after a start: the device minimum, or the lower of cap in force and journalled grant."""
    in_force_w = gpu.in_force_w
    ceiling_w = gpu.min_w
    if not gpu.fresh and gpu.grant is not None and in_force_w is not None:
        ceiling_w = min(in_force_w, gpu.grant.cap_w)
        if gpu.grant.expired:
            ceiling_w = min(ceiling_w, gpu.grant.fallback_w)
    return replace(gpu, placed=True, ceiling_w=ceiling_w)


def _overridden(step: Step, gpu: GpuLease, before_w: int, found_w: int) -> GpuLease:
    """Somebody else changed the cap: above ours it is put right, below ours it becomes our ceiling, never raised."""
    found = [value for value in (gpu.override_w, found_w) if value is not None]
    step.note(
        Level.WARNING,
        "override",
        f"GPU {gpu.gpu}: its cap was changed from {before_w} W to {found_w} W by somebody else",
        gpu.gpu,
    )
    step.report_soon()
    gpu = replace(gpu, overrides=gpu.overrides + 1, override_w=max(found))
    floor_w = gpu.floor_w
    if floor_w is not None and found_w > floor_w:
        return replace(gpu, overridden=True)
    return replace(gpu, ceiling_w=found_w, raise_due=False)


def _judge(step: Step, gpu: GpuLease) -> GpuLease:
    """Close what this reading proves: tries of a lower, the grant's acknowledgement."""
    level_w, floor_w = gpu.level_w, gpu.floor_w
    if level_w is not None and floor_w is not None and level_w <= floor_w:
        gpu = replace(gpu, lower_tries=0, next_try_s=NEVER_S, overridden=False)
    grant = gpu.grant
    if grant is None or gpu.confirmed_sequence >= grant.sequence or not _shows(gpu, grant.cap_w):
        return gpu
    return acknowledge(step, replace(gpu, confirmed_sequence=grant.sequence, clamp_due_s=None, raise_due=False))


def _shows(gpu: GpuLease, cap_w: int) -> bool:
    """Return whether the driver holds just this cap: asked for, and enforced no higher."""
    if gpu.requested_w is None:
        return gpu.enforced_w == cap_w
    return gpu.requested_w == cap_w and (gpu.enforced_w is None or gpu.enforced_w <= cap_w)


def acknowledge(step: Step, gpu: GpuLease) -> GpuLease:
    """Raise the acknowledged sequence when the grant was both read back and journalled."""
    grant = gpu.grant
    if grant is None or gpu.confirmed_sequence != grant.sequence or gpu.applied_sequence >= grant.sequence:
        return gpu
    if step.saved < grant.revision:
        return gpu
    step.report_soon()
    return replace(gpu, applied_sequence=grant.sequence)


def tell_clamped(step: Step, gpu: GpuLease) -> GpuLease:
    """Tell once that a written grant is not what the driver shows."""
    grant = gpu.grant
    if gpu.clamp_due_s is None or step.now_s < gpu.clamp_due_s or grant is None or grant.expired:
        return gpu
    if not gpu.quiet or gpu.raise_due or gpu.confirmed_sequence >= grant.sequence:
        return gpu
    detail = f"the driver shows {gpu.requested_w} W requested, {gpu.enforced_w} W enforced"
    step.tell(gpu, WriteFailure.CLAMPED, detail, grant.cap_w, grant.sequence)
    return replace(gpu, clamp_due_s=None)
