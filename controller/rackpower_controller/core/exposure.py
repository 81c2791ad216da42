"""What one GPU counts for, and how its node is seen.

Two views of one book. For *raises* a GPU counts at everything it might still draw, and one not heard in this term at
its maximum. For *lowered limits* a lower in flight counts at its new value for a short while, so that one cut makes
one wave.
"""

from __future__ import annotations

import math

from rackpower_common.model.policy import Node, Policy
from rackpower_controller.core.rack_index import rack_index
from rackpower_controller.core.state import GpuBook, NodeBook, NodeState

REPORTS_UNTIL_SILENT = 3
"""A node is silent after so many report periods without a report."""

REPORTS_UNTIL_UNACKNOWLEDGED = 2
"""A lower in flight counts at its new value for so many report periods, then at the old one again."""


def node_state(book: NodeBook | None, spec: Node | None, policy: Policy, now_s: float) -> NodeState:
    """Return how the controller sees a node now."""
    if spec is None:
        return NodeState.UNKNOWN
    if book is None or book.stream is None:
        # a node that ever connected contradicted the policy's word: from then on its silence frees nothing
        never_seen = book is None or not book.boot_id
        if (spec.off and never_seen) or (book is not None and book.declared_off):
            return NodeState.OFF
    if book is None or not book.heard or book.last_report_s is None:
        return NodeState.UNHEARD
    silent_after_s = REPORTS_UNTIL_SILENT * policy.timing.report_period_s
    if book.stream is None or now_s - book.last_report_s > silent_after_s:
        return NodeState.SILENT
    return NodeState.LIVE if book.admitted else NodeState.WAITING


def with_tracking_w(cap_w: int, policy: Policy) -> int:
    """Return the highest steady draw in watts that a cap still explains."""
    return math.ceil(cap_w * (1.0 + policy.tracking_error))


def exposure_w(book: GpuBook, policy: Policy) -> int:
    """Return the most that a GPU may draw until we say otherwise, in watts (invariants 1, 2, 6, 7 and 9)."""
    index = rack_index(policy)
    if not book.heard:
        return index.most_w(book.node, book.device)
    known = [
        watts for watts in (book.requested_w, book.enforced_w, book.highest_w, book.unsettled_w) if watts is not None
    ]
    known += book.pending_w
    known += [grant.cap_w for grant in book.outstanding]
    if not book.device.cappable:
        known.append(index.uncapped_w(book.node, book.device))
    elif book.enforced_w is None:
        known.append(index.most_w(book.node, book.device))
    most_w = max(known)
    reading_w = book.last.power.average_w if book.last is not None else None
    if reading_w is not None and reading_w > with_tracking_w(most_w, policy):
        return reading_w
    return most_w


def shed_w(book: GpuBook, policy: Policy, now_s: float, exposed_w: int) -> int:
    """Return what a GPU counts for when limits are to be met, in watts: lowers under way count as done for a while.

    Args:
        book: Its account.
        policy: The policy in force.
        now_s: The time.
        exposed_w: Its exposure, in watts.
    """
    if not book.heard or not book.device.cappable or book.enforced_w is None:
        return exposed_w
    if book.pending_w or book.refused_at_s is not None:
        return exposed_w
    if book.outstanding:
        newest = book.outstanding[-1]
        patience_s = REPORTS_UNTIL_UNACKNOWLEDGED * policy.timing.report_period_s
        return min(exposed_w, newest.cap_w) if now_s - newest.sent_s <= patience_s else exposed_w
    if book.unsettled_w is not None and book.unsettled_since_s is not None:
        standing_w = max(book.enforced_w, book.requested_w or 0)
        patience_s = policy.timing.settle_s + REPORTS_UNTIL_SILENT * policy.timing.report_period_s
        settling = now_s - book.unsettled_since_s <= patience_s
        return min(exposed_w, standing_w) if settling else exposed_w
    return exposed_w
