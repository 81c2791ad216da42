"""Terms and what an agent holds for a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rackpower.v1 import agent_pb2 as pb
from rackpower_common.model.identity import GpuId, Term
from rackpower_common.model.messages import GPUS_PER_NODE_LIMIT, Holding, PendingWrite
from rackpower_common.wire import quantities as q

PENDING_WRITES_LIMIT: Final = 16
"""Driver calls of one GPU that have not returned; a hung device takes no second write."""


def term_from(message: pb.Term, where: str) -> Term:
    """Return a term.

    Raises:
        WireError: It has no number or no instance.
    """
    number = q.within(message.number, 1, q.SEQUENCE_LIMIT, f"{where}.number")
    return Term(number, q.name(message.instance, f"{where}.instance"))


def term_to(term: Term | None, where: str) -> pb.Term | None:
    """Return a term for the wire, None for none."""
    if term is None:
        return None
    number = q.within(term.number, 1, q.SEQUENCE_LIMIT, f"{where}.number")
    return pb.Term(number=number, instance=q.name(term.instance, f"{where}.instance"))


def holding_from(message: pb.Holding, where: str) -> Holding:
    """Return a holding.

    Raises:
        WireError: A field cannot be meant.
    """
    writes = message.pending_writes
    q.at_most_items(writes, PENDING_WRITES_LIMIT, f"{where}.pending_writes")
    return Holding(
        gpu=GpuId(q.name(message.gpu_uuid, f"{where}.gpu_uuid")),
        term=term_from(message.term, f"{where}.term") if message.HasField("term") else None,
        sequence=q.sequence(message.sequence, f"{where}.sequence"),
        applied_sequence=q.sequence(message.applied_sequence, f"{where}.applied_sequence"),
        requested_w=q.optional(message, "requested_cap_milliwatts", q.cap_w, where),
        enforced_w=q.optional(message, "enforced_cap_milliwatts", q.cap_w, where),
        highest_enforced_w=q.optional(message, "highest_enforced_cap_milliwatts", q.cap_w, where),
        enforced_age_s=q.optional(message, "enforced_age_milliseconds", q.age_s, where),
        fallback_w=q.optional(message, "fallback_cap_milliwatts", q.cap_w, where),
        lease_remaining_s=q.optional(message, "lease_remaining_milliseconds", q.duration_s, where),
        pending_writes=tuple(
            PendingWrite(
                q.cap_w(write.cap_milliwatts, f"{where}.pending_writes.cap_milliwatts"),
                q.age_s(write.age_milliseconds, f"{where}.pending_writes.age_milliseconds"),
            )
            for write in writes
        ),
    )


def holding_to(holding: Holding, where: str) -> pb.Holding:
    """Return a holding for the wire.

    Raises:
        WireError: A value cannot be sent.
    """
    q.at_most_items(holding.pending_writes, PENDING_WRITES_LIMIT, f"{where}.pending_writes")
    enforced_age_s, remaining_s = holding.enforced_age_s, holding.lease_remaining_s
    return pb.Holding(
        gpu_uuid=q.name(holding.gpu, f"{where}.gpu_uuid"),
        term=term_to(holding.term, f"{where}.term"),
        sequence=q.sequence(holding.sequence, f"{where}.sequence"),
        applied_sequence=q.sequence(holding.applied_sequence, f"{where}.applied_sequence"),
        requested_cap_milliwatts=optional_cap_mw(holding.requested_w, f"{where}.requested_cap"),
        enforced_cap_milliwatts=optional_cap_mw(holding.enforced_w, f"{where}.enforced_cap"),
        highest_enforced_cap_milliwatts=optional_cap_mw(holding.highest_enforced_w, f"{where}.highest_enforced_cap"),
        enforced_age_milliseconds=None
        if enforced_age_s is None
        else q.ms_down(enforced_age_s, f"{where}.enforced_age"),
        fallback_cap_milliwatts=optional_cap_mw(holding.fallback_w, f"{where}.fallback_cap"),
        lease_remaining_milliseconds=None
        if remaining_s is None
        else q.ms_down(max(0.0, remaining_s), f"{where}.lease_remaining"),
        pending_writes=[
            pb.PendingWrite(
                cap_milliwatts=q.cap_mw(write.cap_w, f"{where}.pending_writes.cap"),
                age_milliseconds=q.ms_down(write.age_s, f"{where}.pending_writes.age"),
            )
            for write in holding.pending_writes
        ],
    )


def holdings_from(messages: Sequence[pb.Holding], where: str) -> tuple[Holding, ...]:
    """Return what an agent holds for each of its GPUs, each named once."""
    q.at_most_items(messages, GPUS_PER_NODE_LIMIT, where)
    holdings = tuple(holding_from(message, f"{where}[{place}]") for place, message in enumerate(messages))
    q.no_duplicate((holding.gpu for holding in holdings), where)
    return holdings


def holdings_to(holdings: Sequence[Holding], where: str) -> Iterable[pb.Holding]:
    """Return holdings for the wire."""
    q.at_most_items(holdings, GPUS_PER_NODE_LIMIT, where)
    q.no_duplicate((holding.gpu for holding in holdings), where)
    return [holding_to(holding, f"{where}[{place}]") for place, holding in enumerate(holdings)]


def optional_cap_mw(cap_w: int | None, field: str) -> int | None:
    """Return a cap in milliwatts, None for none."""
    return None if cap_w is None else q.cap_mw(cap_w, field)
