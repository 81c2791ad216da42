"""Where a starting agent begins, and what it knows of each GPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rackpower_agent.lease.memory import GpuRecord, Memory, Recall
from rackpower_agent.lease.state import DEFAULT_LIMITS, GpuLease, HeldGrant, LeaseState, Limits
from rackpower_common.model.device import Device


def begin(
    devices: Iterable[Device], memory: Memory, boot_id: str, now_s: float, limits: Limits = DEFAULT_LIMITS
) -> LeaseState:
    """Return the state of a starting agent; feed it `DevicesListed` first, which asks for the first readings.

    Same boot: grants are kept, those whose lease has run out as expired. Another boot: only terms and sequences.
    No memory: nothing. Without a grant worth keeping a GPU goes to its device minimum.

    Args:
        devices: The node's GPUs, as listed.
        memory: What the journal brought.
        boot_id: The kernel's boot id.
        now_s: Boot clock.
        limits: Bounds.
    """
    recall = memory.recall(boot_id)
    image = memory.image
    state = LeaseState(
        boot_id=boot_id,
        recall=recall,
        strangers=image.gpus if image is not None else (),
        term=image.term if image is not None else None,
        journalled_term=image.term if image is not None else None,
        former_writer_alive=memory.former_writer_alive and recall is Recall.SAME_BOOT,
        limits=limits,
    )
    return admit(state, devices, now_s)


def admit(state: LeaseState, devices: Iterable[Device], now_s: float) -> LeaseState:
    """Return the state with every listed device: known ones with their range as read now, others from memory."""
    gpus = dict(state.gpus)
    strangers = {record.gpu: record for record in state.strangers}
    for device in devices:
        known = gpus.get(device.gpu)
        if known is not None:
            gpus[device.gpu] = replace(known, device=device)
            continue
        record = strangers.pop(device.gpu, None)
        gpus[device.gpu] = _recalled(device, record, state.recall, now_s, state.limits)
    return replace(state, gpus=gpus, strangers=tuple(strangers.values()))


def _recalled(device: Device, record: GpuRecord | None, recall: Recall, now_s: float, limits: Limits) -> GpuLease:
    if record is None:
        return GpuLease(device=device)
    gpu = GpuLease(
        device=device,
        term=record.term,
        sequence=record.sequence,
        seen_sequence=max(record.seen_sequence, record.sequence),
        applied_sequence=record.applied_sequence,
    )
    if recall is not Recall.SAME_BOOT:
        return replace(gpu, confirmed_sequence=record.applied_sequence)
    gpu = replace(gpu, former=record.writes)
    if record.term is None or record.cap_w is None or record.fallback_w is None or record.deadline_s is None:
        return gpu
    deadline_s = min(record.deadline_s, now_s + limits.lease_limit_s)
    grant = HeldGrant(
        term=record.term,
        sequence=record.sequence,
        cap_w=record.cap_w,
        fallback_w=record.fallback_w,
        lease_s=max(deadline_s - now_s, 0.0),
        deadline_s=deadline_s,
        journalled_deadline_s=deadline_s,
        revision=0,
        expired=now_s >= deadline_s,
    )
    return replace(gpu, grant=grant, fresh=False)
