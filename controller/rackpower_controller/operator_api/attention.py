"""What an operator should act upon, worst first; one line for alike things, and a limit on lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rackpower_common.model.device import Health
from rackpower_common.model.identity import DomainName, NodeName
from rackpower_common.quantity import format_power
from rackpower_controller.core.decision import Severity
from rackpower_controller.core.ledger import Account
from rackpower_controller.core.requests import frozen
from rackpower_controller.core.state import GpuBook, NodeState
from rackpower_controller.operator_api.base import Notice, StatusSource
from rackpower_controller.operator_api.status_nodes import node_detail

NOTICES_LIMIT: Final = 100
NAMED_LIMIT: Final = 4
"""GPUs or nodes that one line names."""

_RANK: Final = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


def attention(source: StatusSource, books: Account | None) -> list[Notice]:
    """Return what needs attention, worst first.

    Args:
        source: What the status is drawn from.
        books: The account of its state, None without a policy.
    """
    notices = [*_controller(source), *source.notices]
    if books is not None:
        notices += [*_domains(source, books), *_nodes(source, books), *_gpus(source, books)]
    ordered = sorted(notices, key=lambda notice: _RANK[notice.severity])
    if len(ordered) <= NOTICES_LIMIT:
        return ordered
    left_out = len(ordered) - NOTICES_LIMIT + 1
    more = Notice(Severity.WARNING, "more", f"{left_out} more things need attention: mend these first")
    return [*ordered[: NOTICES_LIMIT - 1], more]


def _controller(source: StatusSource) -> Iterator[Notice]:
    if source.policy is None:
        yield Notice(
            Severity.ERROR, "no_policy", "no policy is in force, nothing is granted: rackctl policy apply FILE"
        )
    if source.state.term is None:
        message = "this controller has no term from the store: it grants nothing, agents keep their leases"
        yield Notice(Severity.ERROR, "no_term", message)
    if source.store_detail:
        message = f"the store does not take records: {source.store_detail}; no cap is raised until it does"
        yield Notice(Severity.ERROR, "store_down", message)


def _domains(source: StatusSource, books: Account) -> Iterator[Notice]:
    unmeetable = source.decision.unmeetable if source.decision is not None else {}
    for name, ledger in books.domains.items():
        if name in unmeetable:
            first = power_off_order(name, books)[:NAMED_LIMIT]
            advice = f"power off nodes, in this order: {', '.join(first)}" if first else "raise its limit"
            over = format_power(unmeetable[name])
            message = f"{name} stays {over} above its ceiling with everything below at its minimum: {advice}"
            yield Notice(Severity.ERROR, "unmeetable", message)
        elif ledger.deficit_w:
            over, ceiling = format_power(ledger.deficit_w), format_power(ledger.ceiling_w)
            yield Notice(
                Severity.WARNING, "deficit", f"{name} stands {over} above its ceiling of {ceiling}: caps are lowered"
            )


def power_off_order(domain: DomainName, books: Account) -> list[NodeName]:
    """Return the nodes below a domain in the order in which to power them off: least important first, then largest."""
    below = [
        node
        for node in books.index.policy.nodes
        if domain in books.index.above(node.name) and books.nodes[node.name].state is not NodeState.OFF
    ]
    ranked = sorted(below, key=lambda node: (node.priority, -books.nodes[node.name].gpus_w, node.name))
    return [node.name for node in ranked]


_NODE_WORDS: Final = {
    NodeState.UNHEARD: "node_unheard",
    NodeState.SILENT: "node_silent",
    NodeState.WAITING: "node_waiting",
    NodeState.UNKNOWN: "node_dropped",
}


def _nodes(source: StatusSource, books: Account) -> Iterator[Notice]:
    alike: dict[tuple[str, str], list[str]] = {}
    for name, node in books.nodes.items():
        reason = _NODE_WORDS.get(node.state)
        if reason is not None:
            alike.setdefault((reason, node_detail(name, source, books)), []).append(name)
        book = source.state.nodes.get(name)
        if book is not None and book.refused:
            message = f"{_named(list(book.refused))} also claimed to be node {name} and was refused: rename one of them"
            yield Notice(Severity.ERROR, "node_duplicate", message)
    for (reason, detail), names in alike.items():
        yield Notice(Severity.WARNING, reason, f"{_plural('node', names)} {_named(names)}: {detail}")
    strangers = sorted(name for name in source.state.nodes if name not in books.nodes)
    if strangers:
        message = f"{_plural('node', strangers)} {_named(strangers)} refused: not in the policy, add them under nodes:"
        yield Notice(Severity.WARNING, "node_unknown", message)


Fault = tuple[Severity, str, str]


def _gpus(source: StatusSource, books: Account) -> Iterator[Notice]:
    alike: dict[tuple[NodeName, Fault], list[str]] = {}
    for book in source.state.gpus.values():
        if book.node not in books.nodes or not book.heard:
            continue
        for judge in (_sick, _uncapped, _held, _refusing):
            fault = judge(book, source.now_s)
            if fault is not None:
                alike.setdefault((book.node, fault), []).append(book.gpu)
    for (node, (severity, reason, words)), gpus in alike.items():
        yield Notice(severity, reason, f"{node}, {_plural('GPU', gpus)} {_named(gpus)}: {words}")


def _sick(book: GpuBook, _now_s: float) -> Fault | None:
    last = book.last
    if last is None or last.health in (Health.OK, Health.UNKNOWN):
        return None
    detail = f" ({last.health_detail})" if last.health_detail else ""
    match last.health:
        case Health.LOST:
            return Severity.ERROR, "gpu_lost", f"lost{detail}; it goes on counting, boot the node or declare it off"
        case Health.QUARANTINED:
            return Severity.ERROR, "gpu_quarantined", f"does not answer{detail}; left alone, counts at its most"
        case _:
            return Severity.WARNING, "gpu_degraded", f"not well{detail}"


def _uncapped(book: GpuBook, _now_s: float) -> Fault | None:
    if book.device.cappable:
        return None
    why = book.device.cap_control_detail or book.device.cap_control.value
    return Severity.WARNING, "gpu_uncapped", f"cannot be capped ({why}); counts at its most"


def _held(book: GpuBook, _now_s: float) -> Fault | None:
    if book.ceiling_w is None:
        return None
    words = f"held at {book.ceiling_w} W by a limit below ours; look for a BMC or another tool"
    return Severity.WARNING, "gpu_held_lower", words


def _refusing(book: GpuBook, now_s: float) -> Fault | None:
    if not frozen(book, now_s):
        return None
    return Severity.WARNING, "gpu_refuses", "refuses caps again and again; keeps what it has, look at its agent's log"


def _plural(word: str, names: Sequence[str]) -> str:
    return word if len(names) == 1 else f"{len(names)} {word}s"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_LIMIT} more" if len(names) > NAMED_LIMIT else ""
    return ", ".join(names[:NAMED_LIMIT]) + more
