"""What a new policy does to nodes of the old one: an edit never frees watts (invariant 10). Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from rackpower_common.model.identity import DomainName, NodeName
from rackpower_common.model.policy import Node, Policy
from rackpower_common.policy.loaded import Places
from rackpower_common.policy.names import fold, nodes_named
from rackpower_common.policy.problems import Place, Problem, Severity

KEEP = "its exposure stays booked in its old domains"
HINT = "declare a node off, drain it or boot it again to free them"


def left_nodes(new: Policy, old: Policy, places: Places) -> Iterable[Problem]:
    """Warn of nodes that a new policy drops, renames or moves, each kind once with every name.

    Args:
        new: The new policy.
        old: The policy in force.
        places: Where the new one's parts were written.
    """
    dropped, renamed = _gone(new, old)
    moved = _moved(new, old)
    if dropped:
        verb = "is" if len(dropped) == 1 else "are"
        message = f"{nodes_named(dropped)} {verb} no longer in the policy; {KEEP}"
        yield Problem("", 0, 0, message, HINT, Severity.WARNING)
    if renamed:
        before, after = nodes_named([pair[0] for pair in renamed]), fold(pair[1] for pair in renamed)
        place = places.get(("nodes", str(renamed[0][1])), Place(""))
        message = f"{before} may be renamed to {after}; {KEEP}, and it counts under the new name too"
        yield Problem(place.file, place.line, place.column, message, HINT, Severity.WARNING)
    if moved:
        place = places.get(("nodes", str(moved[0]), "feeds"), Place(""))
        verb = "moves" if len(moved) == 1 else "move"
        message = f"{nodes_named(moved)} {verb} to other domains; {KEEP} and counts in the new ones too"
        yield Problem(place.file, place.line, place.column, message, HINT, Severity.WARNING)


def _gone(new: Policy, old: Policy) -> tuple[list[NodeName], list[tuple[NodeName, NodeName]]]:
    """Return nodes that are dropped, and pairs of nodes that look like a rename: same feeds, same GPUs, new name."""
    known = {node.name for node in old.nodes}
    kept = {node.name for node in new.nodes}
    fresh: dict[object, deque[NodeName]] = {}
    for node in new.nodes:
        if node.name not in known:
            fresh.setdefault((node.feeds, node.gpus), deque()).append(node.name)
    dropped: list[NodeName] = []
    renamed: list[tuple[NodeName, NodeName]] = []
    for node in old.nodes:
        if node.name in kept:
            continue
        twins = fresh.get((node.feeds, node.gpus))
        if twins:
            renamed.append((node.name, twins.popleft()))
        else:
            dropped.append(node.name)
    return dropped, renamed


def _moved(new: Policy, old: Policy) -> list[NodeName]:
    """Return nodes that stand under other domains than before, themselves or because a domain has another parent."""
    above, above_before = _chains(new), _chains(old)
    before = {node.name: _under(node, above_before) for node in old.nodes}
    return [node.name for node in new.nodes if node.name in before and _under(node, above) != before[node.name]]


def _chains(policy: Policy) -> Mapping[DomainName, frozenset[DomainName]]:
    """Return every domain with itself and all domains above it."""
    chains: dict[DomainName, frozenset[DomainName]] = {}
    for domain in policy.domains:  # parents come before their children
        above = frozenset[DomainName]() if domain.parent is None else chains[domain.parent]
        chains[domain.name] = above | {domain.name}
    return chains


def _under(node: Node, chains: Mapping[DomainName, frozenset[DomainName]]) -> frozenset[DomainName]:
    return frozenset[DomainName]().union(*(chains[feed.domain] for feed in node.feeds))
