"""Decisions into state, in two steps: lowers at once, raises only after their exposures are recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rackpower_common.model.identity import NodeName
from rackpower_common.model.messages import Grant, GrantBatch
from rackpower_controller.core.decision import Decision
from rackpower_controller.core.state import GpuBook, Outstanding, RackState

OUTSTANDING_LIMIT = 8
"""So many grants of a GPU are kept apart while none is acknowledged; older ones are folded into their highest cap."""


def commit_lowers(state: RackState, decision: Decision) -> RackState:
    """Return the state in which a decision's lowers are sent; to be called before they are."""
    nodes = dict(state.nodes)
    for name in decision.admissions:
        nodes[name] = replace(nodes[name], admitted=True)
    state = replace(state, tick=decision.tick, nodes=nodes)
    return _with_grants(state, decision.lowers, decision.now_s)


def commit_raises(state: RackState, decision: Decision) -> RackState:
    """Return the state in which a decision's raises are sent; to be called after the record, before they are."""
    return _with_grants(state, decision.raises, decision.now_s)


def _with_grants(state: RackState, batches: Mapping[NodeName, GrantBatch], now_s: float) -> RackState:
    gpus = dict(state.gpus)
    for grant in _grants(batches):
        gpus[grant.gpu] = _granted(gpus[grant.gpu], grant, now_s)
    return replace(state, gpus=gpus)


def _grants(batches: Mapping[NodeName, GrantBatch]) -> Iterable[Grant]:
    for batch in batches.values():
        yield from batch.grants


def _granted(book: GpuBook, grant: Grant, now_s: float) -> GpuBook:
    outstanding = (*book.outstanding, Outstanding(grant.sequence, grant.cap_w, now_s))
    if len(outstanding) > OUTSTANDING_LIMIT:
        oldest, second = outstanding[0], outstanding[1]
        folded = Outstanding(second.sequence, max(oldest.cap_w, second.cap_w), second.sent_s)
        outstanding = (folded, *outstanding[2:])
    return replace(
        book,
        outstanding=outstanding,
        sequence=grant.sequence,
        granted_sequence=grant.sequence,
        granted_w=grant.cap_w,
        granted_fallback_w=grant.fallback_w,
        granted_at_s=now_s,
    )
