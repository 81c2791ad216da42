"""Facts into state: the only way in which anything from outside changes a `RackState`."""

from __future__ import annotations

from dataclasses import replace

from rackpower_common.model.identity import NodeName
from rackpower_common.model.policy import Policy
from rackpower_controller.core.absorbed import Absorbed
from rackpower_controller.core.decision import Event, Severity
from rackpower_controller.core.facts import (
    ExposuresRecalled,
    Fact,
    MeterRead,
    NodeConnected,
    NodeLeft,
    NodeReported,
    OperatorSaid,
    PolicyChanged,
    StoreHealth,
    TermTaken,
    WriteFailed,
)
from rackpower_controller.core.former import FormerError, former_from_text
from rackpower_controller.core.meters import meter_read
from rackpower_controller.core.operator_words import operator_said
from rackpower_controller.core.policy_change import places_under, policy_changed
from rackpower_controller.core.rack_index import rack_index
from rackpower_controller.core.reports import reported, write_failed
from rackpower_controller.core.sessions import connected, left, term_taken
from rackpower_controller.core.state import NodeBook, RackState


def absorb(state: RackState, fact: Fact, policy: Policy) -> Absorbed:
    """Return the state after one fact.

    Args:
        state: The state before.
        fact: What happened.
        policy: The policy in force; for `PolicyChanged` the one before it.
    """
    match fact:
        case NodeConnected():
            return connected(state, fact, policy)
        case NodeReported():
            return reported(state, fact, policy)
        case WriteFailed():
            return write_failed(state, fact)
        case NodeLeft():
            return left(state, fact)
        case TermTaken():
            return term_taken(state, fact, policy)
        case MeterRead():
            return meter_read(state, fact, policy)
        case PolicyChanged():
            return policy_changed(state, fact, policy)
        case OperatorSaid():
            return operator_said(state, fact, policy)
        case ExposuresRecalled():
            return _recalled(state, fact, policy)
        case StoreHealth():
            return _store_health(state, fact)


def _recalled(state: RackState, fact: ExposuresRecalled, policy: Policy) -> Absorbed:
    recalled: dict[NodeName, int] = {}
    for gpu, watts in fact.exposures_w.items():
        node = fact.nodes.get(gpu)
        if node is not None:
            recalled[node] = recalled.get(node, 0) + watts
    state = replace(state, recalled_w=recalled)
    try:
        former = former_from_text(fact.former)
    except FormerError as error:
        hint = "nodes that an earlier policy moved or dropped may not be counted where they draw"
        return Absorbed(state, (), (Event(Severity.ERROR, "former_unreadable", f"{error}; {hint}"),))
    index = rack_index(policy)
    nodes = {name: NodeBook(name, placed_boot_id=boot_id) for name, boot_id in former.boot_ids.items()}
    state = replace(
        state,
        nodes={**nodes, **state.nodes},
        former_nodes={name: places_under(places, index) for name, places in former.places.items()},
        former_absent_w=former.absent_w,
    )
    return Absorbed(state)


def _store_health(state: RackState, fact: StoreHealth) -> Absorbed:
    if fact.detail == state.store_detail:
        return Absorbed(state)
    state = replace(state, store_detail=fact.detail)
    if fact.detail:
        message = f"the store does not take records: {fact.detail}; no cap is raised until it does"
        return Absorbed(state, (), (Event(Severity.ERROR, "store_down", message),))
    return Absorbed(state, (), (Event(Severity.INFO, "store_ok", "the store takes records again"),))
