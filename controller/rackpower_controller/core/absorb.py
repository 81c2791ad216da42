"""Facts into state: the only way in which anything from outside changes a `RackState`."""

from __future__ import annotations

from dataclasses import replace

from rackpower_common.model.identity import DomainName, NodeName
from rackpower_common.model.policy import Feed, Node, Policy
from rackpower_controller.core.absorbed import Absorbed
from rackpower_controller.core.decision import Event, Severity
from rackpower_controller.core.exposure import node_state
from rackpower_controller.core.facts import (
    ExposuresRecalled,
    Fact,
    MeterRead,
    NodeConnected,
    NodeLeft,
    NodeReported,
    NodeWord,
    OperatorSaid,
    PolicyChanged,
    StoreHealth,
    TermTaken,
    WriteFailed,
)
from rackpower_controller.core.ledger import account
from rackpower_controller.core.rack_index import RackIndex, rack_index
from rackpower_controller.core.reports import LET_GO_SHARE, METER_FRESH_S, PLAUSIBLE_FACTOR, reported, write_failed
from rackpower_controller.core.sessions import connected, left, term_taken
from rackpower_controller.core.state import MeterBook, NodeBook, NodeState, RackState


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
            return _meter_read(state, fact, policy)
        case PolicyChanged():
            return _policy_changed(state, fact, policy)
        case OperatorSaid():
            return _operator_said(state, fact, policy)
        case ExposuresRecalled():
            return _recalled(state, fact)
        case StoreHealth():
            return _store_health(state, fact)


def _meter_read(state: RackState, fact: MeterRead, policy: Policy) -> Absorbed:
    """Believe a domain's meter downward at once and upward slowly (invariant 12)."""
    domain = rack_index(policy).domains.get(fact.domain)
    if domain is None or fact.age_s > METER_FRESH_S:
        return Absorbed(state)
    before = state.meters.get(fact.domain, MeterBook(0, fact.at_s))
    books = account(state, policy, fact.at_s).domains[fact.domain]
    without_extra_w = books.load_w - before.extra_w
    most_w = PLAUSIBLE_FACTOR * max(without_extra_w, domain.limit_w)
    if not 0 <= fact.power_w <= most_w:
        message = (
            f"the meter of {fact.domain} reads {fact.power_w} W, more than everything below it can draw: "
            f"ignored, check the meter"
        )
        return Absorbed(state, (), (Event(Severity.WARNING, "meter_implausible", message, domain=fact.domain),))
    excess_w = fact.power_w - without_extra_w
    kept_w = max(0, before.extra_w - max(1, round(before.extra_w * LET_GO_SHARE)))
    meter = MeterBook(fact.power_w, fact.at_s, max(0, excess_w, kept_w))
    state = replace(state, meters={**state.meters, fact.domain: meter})
    if fact.power_w <= domain.limit_w:
        return Absorbed(state)
    message = f"the meter of {fact.domain} reads {fact.power_w} W, above its limit of {domain.limit_w} W: lowering caps"
    return Absorbed(state, (), (Event(Severity.ERROR, "meter_above_limit", message, domain=fact.domain),), urgent=True)


def _policy_changed(state: RackState, fact: PolicyChanged, before: Policy) -> Absorbed:
    """Put a policy in force; nodes that it drops or moves keep counting where they were (invariant 10)."""
    old, new = rack_index(before), rack_index(fact.policy)
    former = dict(state.former_nodes)
    events: list[Event] = []
    for name, spec in old.nodes.items():
        moved = name not in new.nodes or new.nodes[name].feeds != spec.feeds
        draws = name in state.nodes or name in state.recalled_w
        if not moved or not draws:
            continue
        kept = _with_surviving_feeds(spec, old, new)
        former[name] = (*former.get(name, ()), kept)[-FORMER_PLACES_LIMIT:]
        how = "moves" if name in new.nodes else "drops"
        message = (
            f"the policy {how} node {name}: its exposure also counts in {_feeds(kept)} "
            f"until it boots again or is declared off"
        )
        events.append(Event(Severity.WARNING, "node_moved", message, node=name))
    former = {name: _resurvived(places, new) for name, places in former.items()}
    lowered = [
        name
        for name, domain in new.domains.items()
        if name in old.domains and domain.ceiling_w < old.domains[name].ceiling_w
    ]
    what = f"; lower: {', '.join(lowered)}" if lowered else ""
    message = f"policy {fact.policy.revision} by {fact.author} is in force{what}"
    events.insert(0, Event(Severity.INFO, "policy_applied", message))
    meters = {name: meter for name, meter in state.meters.items() if name in new.domains}
    nodes = {name: _readmit(book, new) for name, book in state.nodes.items()}
    state = replace(state, former_nodes=former, meters=meters, nodes=nodes)
    state = replace(state, limits_lowered=state.limits_lowered or bool(lowered))
    return Absorbed(state, (), tuple(events), urgent=True)


FORMER_PLACES_LIMIT = 8
"""So many former places of a node are kept; older ones are folded into the oldest that is kept."""


def _readmit(book: NodeBook, new: RackIndex) -> NodeBook:
    return book if book.name in new.nodes else replace(book, admitted=False)


def _feeds(spec: Node) -> str:
    return ", ".join(feed.domain for feed in spec.feeds) or "no domain"


def _with_surviving_feeds(spec: Node, old: RackIndex, new: RackIndex) -> Node:
    """Return a node with every feed on the nearest domain above it that the new policy still has."""
    feeds = []
    for feed in spec.feeds:
        place = next((name for name in old.ancestors(feed.domain) if name in new.domains), None)
        feeds += [Feed(place, feed.share)] if place is not None else _everywhere(new, feed.share)
    return replace(spec, feeds=tuple(feeds))


def _everywhere(new: RackIndex, share: float) -> list[Feed]:
    """A feed whose whole tree is gone counts on every root: it hangs somewhere."""
    return [Feed(domain.name, share) for domain in new.policy.domains if domain.parent is None]


def _resurvived(places: tuple[Node, ...], new: RackIndex) -> tuple[Node, ...]:
    roots: list[DomainName] = [domain.name for domain in new.policy.domains if domain.parent is None]
    kept = []
    for place in places:
        feeds = [feed for feed in place.feeds if feed.domain in new.domains]
        lost = [feed for feed in place.feeds if feed.domain not in new.domains]
        feeds += [Feed(root, feed.share) for feed in lost for root in roots]
        kept.append(replace(place, feeds=tuple(feeds)))
    return tuple(kept)


def _operator_said(state: RackState, fact: OperatorSaid, policy: Policy) -> Absorbed:
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


def _recalled(state: RackState, fact: ExposuresRecalled) -> Absorbed:
    recalled: dict[NodeName, int] = {}
    for gpu, watts in fact.exposures_w.items():
        node = fact.nodes.get(gpu)
        if node is not None:
            recalled[node] = recalled.get(node, 0) + watts
    return Absorbed(replace(state, recalled_w=recalled))


def _store_health(state: RackState, fact: StoreHealth) -> Absorbed:
    if fact.detail == state.store_detail:
        return Absorbed(state)
    state = replace(state, store_detail=fact.detail)
    if fact.detail:
        message = f"the store does not take records: {fact.detail}; no cap is raised until it does"
        return Absorbed(state, (), (Event(Severity.ERROR, "store_down", message),))
    return Absorbed(state, (), (Event(Severity.INFO, "store_ok", "the store takes records again"),))
