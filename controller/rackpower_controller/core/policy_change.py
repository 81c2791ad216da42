"""A policy put in force: an edit never frees watts (invariant 10)."""

from __future__ import annotations

from dataclasses import replace

from rackpower_common.model.identity import DomainName, NodeName
from rackpower_common.model.policy import Feed, Node, Policy
from rackpower_controller.core.absorbed import Absorbed
from rackpower_controller.core.decision import Event, Severity
from rackpower_controller.core.exposure import node_state
from rackpower_controller.core.facts import NodeWord, OperatorSaid, PolicyChanged
from rackpower_controller.core.ledger import missing_w
from rackpower_controller.core.operator_words import operator_said
from rackpower_controller.core.rack_index import RackIndex, rack_index
from rackpower_controller.core.state import NodeBook, NodeState, RackState


def policy_changed(state: RackState, fact: PolicyChanged, before: Policy) -> Absorbed:
    """Put a policy in force; nodes that it drops or moves keep counting where they were."""
    old, new = rack_index(before), rack_index(fact.policy)
    former, told = _former_nodes(state, old, new, fact.at_s)
    absent_w = {name: watts for name, watts in state.former_absent_w.items() if name in former}
    for name in former:
        if name in old.nodes and name not in new.nodes:
            books = [book for book in state.gpus.values() if book.node == name]
            absent_w[name] = missing_w(old.nodes[name], books, state.nodes.get(name), old)
    lowered = [
        name
        for name, domain in new.domains.items()
        if name in old.domains and domain.ceiling_w < old.domains[name].ceiling_w
    ]
    what = f"; lower: {', '.join(lowered)}" if lowered else ""
    message = f"policy {fact.policy.revision} by {fact.author} is in force{what}"
    events = [Event(Severity.INFO, "policy_applied", message), *told]
    state = replace(
        state,
        former_nodes=former,
        former_absent_w=absent_w,
        meters={name: meter for name, meter in state.meters.items() if name in new.domains},
        nodes={name: _readmit(book, old, new) for name, book in state.nodes.items()},
        limits_lowered=state.limits_lowered or bool(lowered),
    )
    for name, spec in new.nodes.items():
        if spec.off and not (name in old.nodes and old.nodes[name].off):
            word = OperatorSaid(name, NodeWord.DECLARE_OFF, fact.author, fact.at_s)
            absorbed = operator_said(state, word, fact.policy)
            state, events = absorbed.state, [*events, *absorbed.events]
    return Absorbed(state, (), tuple(events), urgent=True)


def _former_nodes(
    state: RackState, old: RackIndex, new: RackIndex, now_s: float
) -> tuple[dict[NodeName, tuple[Node, ...]], list[Event]]:
    """Return the places in which nodes count besides their own, and words on those that were dropped or moved."""
    former = dict(state.former_nodes)
    events = []
    for name, spec in old.nodes.items():
        if node_state(state.nodes.get(name), spec, old.policy, now_s) is NodeState.OFF:
            former.pop(name, None)
            continue
        feeds = _lost_feeds(spec, old, new)
        if not feeds:
            continue
        kept = replace(spec, feeds=feeds)
        former[name] = _folded((*(place for place in former.get(name, ()) if place.feeds != kept.feeds), kept))
        how = "moves" if name in new.nodes else "drops"
        message = (
            f"the policy {how} node {name}: its exposure also counts in {_names(kept)} "
            f"until it boots again or is declared off (in the policy: `off: true` under its name)"
        )
        events.append(Event(Severity.WARNING, "node_moved", message, node=name))
    return {name: places_under(places, new) for name, places in former.items()}, events


def _lost_feeds(spec: Node, old: RackIndex, new: RackIndex) -> tuple[Feed, ...]:
    """Return where a node must go on counting: on the nearest domain above each feed that carries less of it now.

    That is so for a node that is dropped or fed otherwise, and when a domain above it hangs elsewhere. A feed of which
    no domain is left counts on every root: it hangs somewhere.
    """
    before, after = _shares(spec, old), _shares(new.nodes.get(spec.name), new)
    feeds: list[Feed] = []
    for feed in spec.feeds:
        chain = old.ancestors(feed.domain)
        lost = [name for name in chain if after.get(name, 0.0) < before[name]]
        place = next((name for name in lost if name in new.domains), None)
        if place is not None:
            feeds.append(Feed(place, feed.share))
        elif lost and not any(name in new.domains for name in chain):
            feeds += [Feed(root, feed.share) for root in _roots(new)]
    return tuple(dict.fromkeys(feeds))


def _roots(index: RackIndex) -> list[DomainName]:
    return [domain.name for domain in index.policy.domains if domain.parent is None]


def _shares(spec: Node | None, index: RackIndex) -> dict[DomainName, float]:
    """Return the share of a node's load that each domain carries."""
    shares: dict[DomainName, float] = {}
    for feed in spec.feeds if spec is not None else ():
        for name in index.ancestors(feed.domain):
            shares[name] = shares.get(name, 0.0) + feed.share
    return shares


FORMER_PLACES_LIMIT = 8
"""So many former places of a node are kept; older ones are folded into the oldest that is kept."""


def _folded(places: tuple[Node, ...]) -> tuple[Node, ...]:
    while len(places) > FORMER_PLACES_LIMIT:
        oldest, second = places[0], places[1]
        shares: dict[DomainName, float] = {}
        for feed in (*oldest.feeds, *second.feeds):
            shares[feed.domain] = max(feed.share, shares.get(feed.domain, 0.0))
        both = replace(
            second,
            feeds=tuple(Feed(name, share) for name, share in shares.items()),
            overhead_w=max(oldest.overhead_w, second.overhead_w),
            loss=max(oldest.loss, second.loss),
        )
        places = (both, *places[2:])
    return places


def _readmit(book: NodeBook, old: RackIndex, new: RackIndex) -> NodeBook:
    """Return a node's book under a new policy: one that moves must be seen running before a boot proves anything."""
    before = old.nodes.get(book.name)
    if before is not None and _lost_feeds(before, old, new):
        book = replace(book, placed_boot_id="")
    return book if book.name in new.nodes else replace(book, admitted=False)


def _names(spec: Node) -> str:
    return ", ".join(feed.domain for feed in spec.feeds)


def places_under(places: tuple[Node, ...], new: RackIndex) -> tuple[Node, ...]:
    """Return former places with every feed on a domain that a policy has: one whose domain is gone, on every root."""
    kept = []
    for place in places:
        feeds = [feed for feed in place.feeds if feed.domain in new.domains]
        lost = [feed for feed in place.feeds if feed.domain not in new.domains]
        feeds += [Feed(root, feed.share) for feed in lost for root in _roots(new)]
        kept.append(replace(place, feeds=tuple(feeds)))
    return tuple(kept)
