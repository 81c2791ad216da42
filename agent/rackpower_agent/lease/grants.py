"""Grants, renewals, lease ends and the fence that keeps other controllers' words out."""

from __future__ import annotations

from dataclasses import replace

from rackpower_agent.lease.events import Level
from rackpower_agent.lease.state import NEVER_S, GpuLease, HeldGrant
from rackpower_agent.lease.writing import Step
from rackpower_common.model.device import CapControl
from rackpower_common.model.identity import Term
from rackpower_common.model.messages import Grant, Renewal, WriteFailure


def term_is_refused(highest: Term | None, offered: Term) -> bool:
    """Return whether a term is fenced: lower than the highest seen, or its number under another instance."""
    if highest is None:
        return False
    return offered.number < highest.number or (
        offered.number == highest.number and offered.instance != highest.instance
    )


def take_grant(step: Step, gpu: GpuLease, term: Term, grant: Grant) -> GpuLease:
    """Take or refuse one grant whose term has passed the fence."""
    refusal = _refusal(gpu, grant)
    if refusal is not None:
        reason, detail = refusal
        step.tell(replace(gpu, term=term), reason, detail, grant.cap_w, grant.sequence)
        if reason is not WriteFailure.OLD_SEQUENCE:
            gpu = replace(gpu, seen_sequence=max(gpu.seen_sequence, grant.sequence))
            step.next_revision()
        return gpu
    lease_s = min(grant.lease_s, step.limits.lease_limit_s)
    held = HeldGrant(
        term=term,
        sequence=grant.sequence,
        cap_w=grant.cap_w,
        fallback_w=grant.fallback_w,
        lease_s=lease_s,
        deadline_s=step.now_s + lease_s,
        journalled_deadline_s=step.now_s + lease_s,
        revision=step.next_revision(),
    )
    gpu = replace(gpu, seen_sequence=grant.sequence, incoming=None)
    if _raises(gpu, held.cap_w):
        return replace(gpu, incoming=held)
    return put_in_force(step, gpu, held)


def _refusal(gpu: GpuLease, grant: Grant) -> tuple[WriteFailure, str] | None:
    if grant.sequence <= gpu.seen_sequence:
        return WriteFailure.OLD_SEQUENCE, f"sequence {grant.sequence} is not above {gpu.seen_sequence}"
    device = gpu.device
    if not device.cappable:
        no_right = device.cap_control is CapControl.NO_PERMISSION
        reason = WriteFailure.NO_PERMISSION if no_right else WriteFailure.REFUSED
        return reason, f"this GPU's cap cannot be held: {device.cap_control.value} {device.cap_control_detail}".rstrip()
    if grant.cap_w <= 0 or grant.fallback_w <= 0 or not grant.lease_s > 0:
        return (
            WriteFailure.REFUSED,
            f"cap {grant.cap_w} W, fallback {grant.fallback_w} W, lease {grant.lease_s} s: not above 0",
        )
    if gpu.hung and _raises(gpu, grant.cap_w):
        return WriteFailure.TIMEOUT, "the device does not answer; a hung device takes no raise"
    return None


def _raises(gpu: GpuLease, cap_w: int) -> bool:
    """Return whether a cap lies above what stands; when nothing was ever read, any cap may."""
    return not gpu.known or gpu.level_w is None or cap_w > min(gpu.level_w, _ceiling_or(gpu, gpu.level_w))


def _ceiling_or(gpu: GpuLease, other_w: int) -> int:
    return other_w if gpu.ceiling_w is None else max(gpu.ceiling_w, gpu.min_w)


def put_in_force(step: Step, gpu: GpuLease, held: HeldGrant) -> GpuLease:
    """Make a grant the one that holds; the write follows from it."""
    device = gpu.device
    step.verify.append(gpu.gpu)
    gpu = replace(
        gpu,
        term=held.term,
        sequence=held.sequence,
        grant=held,
        incoming=None,
        ceiling_w=held.cap_w,
        placed=True,
        fresh=False,
        raise_due=True,
        overridden=False,
        contested=False,
        lower_tries=0,
        next_try_s=NEVER_S,
        clamp_due_s=step.now_s + step.limits.clamp_after_s,
    )
    low_w, high_w = device.min_cap_w or 0, device.max_cap_w or held.cap_w
    if not low_w <= held.cap_w <= high_w:
        detail = f"{held.cap_w} W lies outside the driver's {low_w} to {high_w} W"
        step.tell(gpu, WriteFailure.CLAMPED, detail, held.cap_w, held.sequence)
        gpu = replace(gpu, clamp_due_s=None)
    return gpu


def settle_incoming(step: Step, gpu: GpuLease) -> GpuLease:
    """Put a raise in force once the journal holds it, unless its lease has run out meanwhile."""
    incoming = gpu.incoming
    if incoming is None or step.saved < incoming.revision:
        return gpu
    if step.now_s >= incoming.deadline_s:
        return replace(gpu, incoming=None)
    return put_in_force(step, gpu, incoming)


def refuse_unjournalled(step: Step, gpu: GpuLease, detail: str) -> GpuLease:
    """Refuse the raises that the journal could not take; lowers stay."""
    grant = gpu.grant
    if gpu.incoming is not None:
        refused = gpu.incoming
        step.tell(replace(gpu, term=refused.term), WriteFailure.JOURNAL, detail, refused.cap_w, refused.sequence)
        gpu = replace(gpu, incoming=None)
    if gpu.raise_due and grant is not None and step.saved < grant.revision:
        step.tell(gpu, WriteFailure.JOURNAL, detail, grant.cap_w, grant.sequence)
        gpu = replace(gpu, raise_due=False)
    return gpu


def renew(step: Step, gpu: GpuLease, term: Term, renewal: Renewal) -> GpuLease:
    """Extend the lease that the renewal names; another one, or one that has run out, is not renewed."""
    for held, where in ((gpu.incoming, "incoming"), (gpu.grant, "grant")):
        if held is None or held.expired or held.term != term or held.sequence != renewal.sequence:
            continue
        if step.now_s >= held.deadline_s or not renewal.lease_s > 0:
            break
        renewed = _extended(step, held, min(renewal.lease_s, step.limits.lease_limit_s))
        return replace(gpu, incoming=renewed) if where == "incoming" else replace(gpu, grant=renewed)
    step.report_soon()
    return gpu


def _extended(step: Step, held: HeldGrant, lease_s: float) -> HeldGrant:
    """Return the grant with its new end; the journal may lag behind a longer lease, never behind a shorter one."""
    deadline_s = step.now_s + lease_s
    journalled_s = held.journalled_deadline_s
    if deadline_s < journalled_s or deadline_s - journalled_s > step.limits.deadline_lag_share * lease_s:
        step.dirty = True
        journalled_s = deadline_s
    return replace(held, lease_s=lease_s, deadline_s=deadline_s, journalled_deadline_s=journalled_s)


def end_lease(step: Step, gpu: GpuLease) -> GpuLease:
    """At the lease's end, alone: the lower of cap in force and fallback."""
    grant = gpu.grant
    if gpu.incoming is not None and step.now_s >= gpu.incoming.deadline_s:
        gpu = replace(gpu, incoming=None)
    if grant is None or grant.expired or step.now_s < grant.deadline_s:
        return gpu
    ceiling_w = grant.fallback_w if gpu.ceiling_w is None else min(gpu.ceiling_w, grant.fallback_w)
    if gpu.in_force_w is not None and gpu.quiet:
        ceiling_w = min(ceiling_w, gpu.in_force_w)
    step.note(
        Level.WARNING,
        "lease_ended",
        f"GPU {gpu.gpu}: no controller renewed the lease in {grant.lease_s:g} s; keeping at most {ceiling_w} W",
        gpu.gpu,
    )
    step.report_soon()
    return replace(
        gpu,
        grant=replace(grant, expired=True),
        ceiling_w=ceiling_w,
        raise_due=False,
        lower_tries=0,
        next_try_s=NEVER_S,
        clamp_due_s=None,
    )
