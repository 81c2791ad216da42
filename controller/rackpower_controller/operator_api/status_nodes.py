"""Nodes and domains for an operator."""

from __future__ import annotations

from typing import Final

from rackpower.v1 import operator_pb2
from rackpower_common.model.identity import NodeName
from rackpower_common.quantity import format_duration
from rackpower_common.units import ms_from_s, mw_from_w
from rackpower_controller.core.ledger import Account, node_load_w
from rackpower_controller.core.state import NodeBook, NodeState
from rackpower_controller.operator_api.base import StatusSource
from rackpower_controller.operator_api.measured import Measured, place_of
from rackpower_controller.operator_api.status_gpus import optional_mw

STATES: Final = {
    NodeState.UNHEARD: operator_pb2.NODE_STATE_UNHEARD,
    NodeState.LIVE: operator_pb2.NODE_STATE_LIVE,
    NodeState.SILENT: operator_pb2.NODE_STATE_SILENT,
    NodeState.WAITING: operator_pb2.NODE_STATE_WAITING,
    NodeState.UNKNOWN: operator_pb2.NODE_STATE_UNKNOWN,
    NodeState.OFF: operator_pb2.NODE_STATE_OFF,
}


def node_messages(source: StatusSource, books: Account, drawn: Measured) -> list[operator_pb2.Node]:
    """Return the policy's nodes in its order, then dropped ones that still count, then strangers that were refused."""
    known = [_node(name, source, books, drawn) for name in books.nodes]
    strangers = sorted(name for name in source.state.nodes if name not in books.nodes)
    return known + [_stranger(source.state.nodes[name]) for name in strangers]


def _node(name: NodeName, source: StatusSource, books: Account, drawn: Measured) -> operator_pb2.Node:
    account, place = books.nodes[name], place_of(source.state, books, name)
    book = source.state.nodes.get(name)
    reported_s = book.last_report_s if book is not None and book.heard else None
    return operator_pb2.Node(
        name=name,
        state=STATES[account.state],
        detail=node_detail(name, source, books),
        domains=[feed.domain for feed in place.feeds],
        report_age_milliseconds=None if reported_s is None else ms_from_s(max(0.0, source.now_s - reported_s)),
        agent_version=book.agent_version if book is not None else "",
        exposure_milliwatts=mw_from_w(node_load_w(place, account.gpus_w, account.beside_w)),
        power_milliwatts=optional_mw(drawn.nodes_w[name]),
        overhead_milliwatts=mw_from_w(account.beside_w),
        peers=_peers(book),
    )


def _stranger(book: NodeBook) -> operator_pb2.Node:
    return operator_pb2.Node(
        name=book.name,
        state=operator_pb2.NODE_STATE_UNKNOWN,
        detail="refused: the policy does not describe it",
        peers=_peers(book),
    )


def _peers(book: NodeBook | None) -> list[str]:
    if book is None:
        return []
    return [*([book.peer] if book.peer else []), *book.refused]


def node_detail(name: NodeName, source: StatusSource, books: Account) -> str:
    """Return why a node is in its state, a short sentence; empty where there is nothing to say."""
    book = source.state.nodes.get(name)
    refused = f"refused {', '.join(book.refused)} under its name" if book is not None and book.refused else ""
    parts = [_why(name, book, source, books), refused]
    return "; ".join(part for part in parts if part)


def _why(name: NodeName, book: NodeBook | None, source: StatusSource, books: Account) -> str:
    match books.nodes[name].state:
        case NodeState.LIVE:
            return ""
        case NodeState.WAITING:
            waiting = source.decision.waiting.get(name, "") if source.decision is not None else ""
            return waiting or "its boot reserve does not fit yet: gets no raises"
        case NodeState.SILENT:
            if book is not None and book.left:
                return "its agent said goodbye: its caps stay, its GPUs keep counting"
            age_s = source.now_s - (book.last_report_s or 0.0) if book is not None else 0.0
            return f"no report for {format_duration(round(age_s))}: its GPUs keep counting"
        case NodeState.UNHEARD:
            if book is None or book.stream is None:
                return "not connected in this term: counts at its maximum"
            return "connected, not heard in this term yet: counts at its maximum"
        case NodeState.OFF:
            declared = book is not None and book.declared_off
            return "declared off by an operator" if declared else "off in the policy"
        case NodeState.UNKNOWN:
            return "no longer in the policy: counts where it was until it is declared off or boots again"


def domain_messages(source: StatusSource, books: Account, drawn: Measured) -> list[operator_pb2.Domain]:
    """Return the power tree in the policy's order."""
    messages = []
    for domain in books.index.policy.domains:
        ledger, meter = books.domains[domain.name], source.state.meters.get(domain.name)
        messages.append(
            operator_pb2.Domain(
                name=domain.name,
                parent=domain.parent or "",
                kind=domain.kind,
                limit_milliwatts=mw_from_w(domain.limit_w),
                headroom_milliwatts=mw_from_w(domain.headroom_w),
                ledger_milliwatts=mw_from_w(ledger.load_w),
                measured_milliwatts=optional_mw(drawn.domains_w[domain.name]),
                deficit_milliwatts=mw_from_w(max(0, ledger.load_w - ledger.ceiling_w)),
                overhead_milliwatts=mw_from_w(domain.overhead_w + (meter.extra_w if meter is not None else 0)),
                held_milliwatts=mw_from_w(ledger.held_w),
            )
        )
    return messages
