"""Why a GPU has the cap that it has, in a short sentence."""

from __future__ import annotations

import math

from rackpower_common.model.device import Health
from rackpower_common.model.policy import Policy
from rackpower_controller.core.planning import Plan
from rackpower_controller.core.rack_index import rack_index
from rackpower_controller.core.state import GpuBook

CLOSE_W = 1
"""Caps this close are the same for a reader."""


def why(book: GpuBook, policy: Policy, plan: Plan | None, now_s: float) -> str:
    """Return why a GPU has its cap, a short sentence.

    Args:
        book: The GPU's account.
        policy: The policy in force.
        plan: The last accepted plan.
        now_s: The time, in seconds.
    """
    del now_s
    trouble = _trouble(book)
    if trouble:
        return trouble
    target_w = plan.targets_w.get(book.gpu) if plan is not None else None
    if target_w is None or book.enforced_w is None:
        return "no plan for it yet: keeps its cap"
    if book.pending_w:
        return f"a write of {max(book.pending_w)} W has not returned"
    if book.unsettled_w is not None and book.unsettled_w > book.enforced_w:
        return f"lowered from {book.unsettled_w} W, waiting for its draw to follow"
    if target_w > book.enforced_w + policy.dead_band_w:
        return f"wants {target_w} W, waits for watts to come free"
    return _at_target(book, policy, target_w)


def _trouble(book: GpuBook) -> str:
    if not book.heard:
        return "not heard in this term: counts at its maximum"
    if not book.device.cappable:
        return f"cannot be capped ({book.device.cap_control.value}): counts at its most"
    if book.last is not None and book.last.health in (Health.LOST, Health.QUARANTINED):
        return f"{book.last.health.value}: {book.last.health_detail or 'does not answer'}"
    if book.ceiling_w is not None:
        return f"a limit below ours holds it at {book.ceiling_w} W"
    return ""


def _at_target(book: GpuBook, policy: Policy, target_w: int) -> str:
    index = rack_index(policy)
    gpu_class = index.class_of(book.node, book.device)
    if target_w <= index.least_w(book.node, book.device) + CLOSE_W:
        return "minimum cap: its watts bring more elsewhere"
    if target_w >= index.highest_grant_w(book.node, book.device) - CLOSE_W:
        return "maximum cap"
    if gpu_class is not None and target_w >= math.ceil(gpu_class.curve.natural_draw_w) - CLOSE_W:
        return "at its natural draw: more watts bring nothing"
    return "its share of the budget: the next watt brings as much anywhere"
