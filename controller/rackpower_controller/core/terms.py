"""Terms: who fences whom (invariant 8)."""

from __future__ import annotations

from dataclasses import replace

from rackpower_common.model.identity import Term
from rackpower_controller.core.state import RackState


def heed_term(state: RackState, other: Term | None) -> RackState:
    """Note that somebody has seen a term that fences ours: a higher one, or our number from another instance."""
    if other is None or state.term is None:
        return state
    fenced = other.number > state.term.number or (
        other.number == state.term.number and other.instance != state.term.instance
    )
    if not fenced:
        return state
    return replace(state, needs_term_above=max(other.number, state.needs_term_above or 0))
