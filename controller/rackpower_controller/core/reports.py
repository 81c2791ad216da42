"""Reports into books: acknowledgements, settling, overrides (invariants 2, 5 and 6)."""

from __future__ import annotations

import math
from dataclasses import replace

from rackpower_common.model.device import LimitReason
from rackpower_common.model.identity import GpuId
from rackpower_common.model.messages import GpuReport, Holding, WriteFailure
from rackpower_common.model.policy import Policy
from rackpower_controller.core.absorbed import Absorbed
from rackpower_controller.core.decision import Event, Severity
from rackpower_controller.core.exposure import exposure_w, with_tracking_w
from rackpower_controller.core.facts import NodeReported, WriteFailed
from rackpower_controller.core.rack_index import rack_index
from rackpower_controller.core.state import GpuBook, NodeBook, RackState
from rackpower_controller.core.terms import heed_term

CEILING_RETRY_S = 600.0
"""An enforced cap below ours is taken as a ceiling for so long, then tried again."""


def absorb_holding(book: GpuBook, holding: Holding) -> GpuBook:
    """Return a book with what an agent holds; a level that counted goes on counting until a reading settles it."""
    counted_w = _standing_w(book)
    still_open = tuple(grant for grant in book.outstanding if grant.sequence > holding.applied_sequence)
    # what was acknowledged was at work once: an agent whose lease ended since shows less, and may still draw it
    closed_w = [grant.cap_w for grant in book.outstanding if grant.sequence <= holding.applied_sequence]
    applied = holding.applied_sequence > book.acknowledged_sequence
    book = replace(
        book,
        requested_w=holding.requested_w,
        enforced_w=holding.enforced_w,
        highest_w=holding.highest_enforced_w,
        pending_w=tuple(write.cap_w for write in holding.pending_writes),
        outstanding=still_open,
        refusals=0 if applied else book.refusals,
        sequence=max(book.sequence, holding.sequence),
        agent_sequence=holding.sequence,
        acknowledged_sequence=max(book.acknowledged_sequence, holding.applied_sequence),
    )
    standing_w = max((watts for watts in (book.requested_w, book.enforced_w) if watts is not None), default=None)
    if standing_w is None:
        return book
    before_w = max(counted_w or 0, book.highest_w or 0, book.unsettled_w or 0, *closed_w)
    if before_w <= standing_w:
        return replace(book, unsettled_w=None, unsettled_since_s=None)
    return replace(book, unsettled_w=before_w)


def _standing_w(book: GpuBook) -> int | None:
    levels = [
        watts for watts in (book.requested_w, book.enforced_w, book.highest_w, *book.pending_w) if watts is not None
    ]
    return max(levels, default=None)


def is_settled(report: GpuReport, policy: Policy, drew_before_w: int | None) -> bool:
    """Whether a report proves that the cap read back is the cap at work.

    The reading's whole window must lie after the read-back and stay within the cap. That alone would prove only that
    there is no more load just now, since hardware takes seconds to follow: so either the settle time has passed too,
    or the GPU, which drew more before, now stands at this very cap, without bursts, and says that power holds it back.

    Args:
        report: The report.
        policy: The policy in force.
        drew_before_w: Its average draw in the last report before the lower, in watts.
    """
    holding, power = report.holding, report.power
    if holding.enforced_w is None or holding.enforced_age_s is None or power.average_w is None:
        return False
    if holding.enforced_age_s < power.age_s + power.window_s:
        return False
    highest_w = with_tracking_w(holding.enforced_w, policy)
    if power.average_w > highest_w:
        return False
    if holding.enforced_age_s - power.age_s >= policy.timing.settle_s:
        return True
    fell = drew_before_w is not None and drew_before_w > highest_w
    stands_at_it = power.average_w >= math.floor(holding.enforced_w * (1.0 - policy.tracking_error))
    bursts = power.instant_w is not None and power.instant_w > highest_w
    return fell and stands_at_it and not bursts and report.limit_reason is LimitReason.POWER


def reported(state: RackState, fact: NodeReported, policy: Policy) -> Absorbed:
    """Absorb a report of the node's current stream; older ones and those of other streams change nothing."""
    node = state.nodes.get(fact.node)
    report = fact.report
    if node is None or node.stream != fact.stream or report.sequence <= node.last_sequence:
        return Absorbed(state)
    state = heed_term(state, report.highest_term)
    ours = state.term is not None and report.highest_term == state.term
    events: list[Event] = []
    gpus: dict[GpuId, GpuBook] = {}
    urgent = False
    for line in report.gpus:
        book = state.gpus.get(line.gpu)
        if book is None or book.node != fact.node:
            continue
        gpus[line.gpu], told = _absorb_line(book, line, fact.at_s, policy, ours=ours)
        events += told
        urgent = urgent or line.override_w is not None
    heard_now = ours and not node.heard
    node = replace(
        node,
        placed_boot_id=node.placed_boot_id or node.boot_id,
        last_sequence=report.sequence,
        last_report_s=fact.at_s,
        heard=node.heard or ours,
        workloads=report.workloads,
        node_power_w=report.node_power_w,
    )
    state = replace(state, gpus={**state.gpus, **gpus}, nodes={**state.nodes, fact.node: node})
    state = replace(state, nodes={**state.nodes, fact.node: _with_meter(state, node, report.node_power_age_s, policy)})
    if heard_now:
        events.append(
            Event(Severity.INFO, "node_heard", f"node {fact.node} is heard in term {state.term}", node=fact.node)
        )
    return Absorbed(state, (), tuple(events), urgent)


def _absorb_line(
    book: GpuBook, line: GpuReport, now_s: float, policy: Policy, *, ours: bool
) -> tuple[GpuBook, list[Event]]:
    was_unsettled = book.unsettled_w
    drew_w = book.last.power.average_w if book.last is not None else None
    book = replace(absorb_holding(book, line.holding), last=line, heard=book.heard or ours)
    if book.unsettled_w is not None:
        if was_unsettled is None or book.unsettled_since_s is None:
            book = replace(book, unsettled_since_s=now_s, drew_before_w=drew_w)
        if is_settled(line, policy, book.drew_before_w):
            book = replace(book, unsettled_w=None, unsettled_since_s=None, drew_before_w=None)
    book = _with_ceiling(book, line, now_s, policy)
    if book.refused_at_s is not None and not book.outstanding:
        book = replace(book, refused_at_s=None)
    return book, _override_events(book, line)


def _with_ceiling(book: GpuBook, line: GpuReport, now_s: float, policy: Policy) -> GpuBook:
    """Note an enforced cap that stays below the requested one: somebody else's limit, the lowest wins (invariant 6)."""
    enforced_w, aged_s = line.holding.enforced_w, line.holding.enforced_age_s or 0.0
    below = enforced_w is not None and enforced_w < (line.holding.requested_w or 0)
    if below and aged_s >= policy.timing.settle_s:
        return replace(book, ceiling_w=enforced_w, ceiling_at_s=now_s)
    if book.ceiling_at_s is not None and now_s - book.ceiling_at_s > CEILING_RETRY_S:
        return replace(book, ceiling_w=None, ceiling_at_s=None)
    return book


def _override_events(book: GpuBook, line: GpuReport) -> list[Event]:
    if line.override_w is None:
        return []
    default = book.device.default_cap_w
    cause = (
        "it equals the default cap: a driver reload, a GPU reset or lost persistence"
        if line.override_w == default
        else "another hand (nvidia-smi, amd-smi, a BMC)"
    )
    wanted = book.granted_w if book.granted_w is not None else line.holding.requested_w
    message = (
        f"GPU {book.gpu} on {book.node}: cap found at {line.override_w} W instead of {wanted} W, likely cause: {cause}"
    )
    return [Event(Severity.WARNING, "override", message, node=book.node, gpu=book.gpu)]


def _with_meter(state: RackState, node: NodeBook, age_s: float | None, policy: Policy) -> NodeBook:
    """Book draw above the node's account as overhead at once, and let it go slowly (invariant 12)."""
    spec = rack_index(policy).nodes.get(node.name)
    if spec is None or node.node_power_w is None or age_s is None or age_s > METER_FRESH_S:
        return replace(node, extra_overhead_w=let_go_w(node.extra_overhead_w))
    books = [book for book in state.gpus.values() if book.node == node.name]
    index = rack_index(policy)
    most_w = sum(index.most_w(node.name, book.device) for book in books)
    if not 0 < node.node_power_w <= PLAUSIBLE_FACTOR * spec.loss * (most_w + spec.overhead_w):
        return replace(node, node_power_w=None)
    gpus_w = sum(with_tracking_w(exposure_w(book, policy), policy) for book in books)
    excess_w = int(node.node_power_w / spec.loss) - gpus_w - spec.overhead_w
    return replace(node, extra_overhead_w=max(excess_w, let_go_w(node.extra_overhead_w), 0))


METER_FRESH_S = 3.0
"""An older meter reading says nothing about now."""

PLAUSIBLE_FACTOR = 1.5
"""A node's reading above this multiple of everything at its maximum is a fault of the meter."""

LET_GO_SHARE = 0.02
"""So much of a booked excess is let go with every report that does not confirm it: half of it in about 35 s."""


def let_go_w(extra_w: int) -> int:
    """Return what is left of a booked excess, in watts, after a reading that does not confirm it."""
    return max(0, extra_w - max(1, round(extra_w * LET_GO_SHARE))) if extra_w > 0 else 0


def write_failed(state: RackState, fact: WriteFailed) -> Absorbed:
    """A write failed: its grant goes on counting until a read-back closes it (invariant 2)."""
    node = state.nodes.get(fact.node)
    book = state.gpus.get(fact.error.gpu)
    if node is None or node.stream != fact.stream or book is None or book.node != fact.node:
        return Absorbed(state)
    error = fact.error
    stale = error.reason in (WriteFailure.OLD_SEQUENCE, WriteFailure.OLD_TERM)
    if not stale:
        book = replace(book, refusals=book.refusals + 1, refused_at_s=fact.at_s)
    state = replace(state, gpus={**state.gpus, book.gpu: book})
    found = f", the driver holds {error.enforced_w} W" if error.enforced_w is not None else ""
    message = (
        f"GPU {book.gpu} on {book.node}: a cap of {error.cap_w} W was not applied "
        f"({error.reason.value}: {error.detail}){found}"
    )
    severity = Severity.INFO if stale else Severity.WARNING
    return Absorbed(
        state, (), (Event(severity, "write_failed", message, node=fact.node, gpu=book.gpu),), urgent=not stale
    )
