"""What operators say of nodes (invariant 3): a node is off because somebody says so, never because it is silent."""

from __future__ import annotations

from dataclasses import replace

from rackpower_common.model.policy import Policy
from rackpower_controller.core.absorbed import Absorbed
from rackpower_controller.core.decision import Event, Severity
from rackpower_controller.core.exposure import node_state
from rackpower_controller.core.facts import NodeWord, OperatorSaid
from rackpower_controller.core.rack_index import rack_index
from rackpower_controller.core.state import NodeBook, NodeState, RackState


def operator_said(state: RackState, fact: OperatorSaid, policy: Policy) -> Absorbed:
    """Heed an operator's word on a node; a node that still reports is not off (invariant 3)."""
    name = fact.node
    book = state.nodes.get(name, NodeBook(name))
    if fact.word is NodeWord.RESUME:
        state = replace(state, nodes={**state.nodes, name: replace(book, declared_off=False)})
        return Absorbed(state, (), (_word(fact, f"node {name} is no longer declared off"),))
    if fact.word is NodeWord.DRAIN:
        return Absorbed(state, (), (_word(fact, f"node {name} cannot be drained in this version", Severity.WARNING),))
    seen = node_state(book, rack_index(policy).nodes.get(name), policy, fact.at_s)
    if book.stream is not None or seen in (NodeState.LIVE, NodeState.WAITING):
        message = f"node {name} still has a stream from {book.peer}: it is not off, nothing was freed"
        return Absorbed(state, (), (_word(fact, message, Severity.WARNING),))
    gpus = {gpu: other for gpu, other in state.gpus.items() if other.node != name}
    former = {other: places for other, places in state.former_nodes.items() if other != name}
    recalled = {other: watts for other, watts in state.recalled_w.items() if other != name}
    off = replace(book, declared_off=True, heard=False, admitted=False)
    state = replace(state, gpus=gpus, former_nodes=former, recalled_w=recalled, nodes={**state.nodes, name: off})
    return Absorbed(state, (), (_word(fact, f"node {name} is declared off: only its boot reserve counts"),))


def _word(fact: OperatorSaid, message: str, severity: Severity = Severity.INFO) -> Event:
    return Event(severity, f"node_{fact.word.value}", f"{message} (said by {fact.author})", node=fact.node)
