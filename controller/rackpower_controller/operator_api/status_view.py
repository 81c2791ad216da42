"""The whole rack for an operator, drawn from the books of one tick. Pure: same source, same bytes."""

from __future__ import annotations

from typing import Final

from rackpower.v1 import agent_pb2, operator_pb2
from rackpower_common.model.device import Health
from rackpower_common.model.policy import Policy
from rackpower_common.units import mw_from_w
from rackpower_controller.core.decision import Severity
from rackpower_controller.core.exposure import REPORTS_UNTIL_SILENT
from rackpower_controller.core.ledger import Account, account
from rackpower_controller.core.state import NodeState, RackState
from rackpower_controller.operator_api.attention import attention
from rackpower_controller.operator_api.base import Notice, StatusSource
from rackpower_controller.operator_api.measured import Measured, measured
from rackpower_controller.operator_api.nameplate import gpus_at_nameplate
from rackpower_controller.operator_api.status_gpus import gpu_messages, optional_mw
from rackpower_controller.operator_api.status_nodes import domain_messages, node_messages

P99: Final = 99.0

SEVERITIES: Final = {
    Severity.INFO: operator_pb2.SEVERITY_INFO,
    Severity.WARNING: operator_pb2.SEVERITY_WARNING,
    Severity.ERROR: operator_pb2.SEVERITY_ERROR,
}


def status_view(source: StatusSource) -> operator_pb2.Status:
    """Return the status that a source gives."""
    state, decision = source.state, source.decision
    status = operator_pb2.Status(
        unix_seconds=source.unix_s,
        term=None if state.term is None else agent_pb2.Term(number=state.term.number, instance=state.term.instance),
        tick=decision.tick if decision is not None else 0,
        sentence=source.sentence or (decision.sentence if decision is not None else ""),
        store=source.store_detail or "ok",
        planner=source.plan.source if source.plan is not None else "none",
        controller_version=source.controller_version,
        decide_seconds=source.decide.last_s,
        plan_seconds=source.plans.last_s,
        decide_p99_seconds=source.decide.percentile_s(P99),
        plan_p99_seconds=source.plans.percentile_s(P99),
    )
    if source.policy is None:
        status.attention.extend(map(_attention, attention(source, None)))
        return status
    status.policy_revision = source.policy.revision
    books = account(state, source.policy, source.now_s)
    silent_after_s = REPORTS_UNTIL_SILENT * source.policy.timing.report_period_s
    drawn = measured(state, books, source.now_s, silent_after_s)
    status.domains.extend(domain_messages(source, books, drawn))
    status.nodes.extend(node_messages(source, books, drawn))
    status.gpus.extend(gpu_messages(source, books, drawn))
    status.totals.CopyFrom(_totals(state, source.policy, books, drawn))
    status.attention.extend(map(_attention, attention(source, books)))
    return status


def _attention(notice: Notice) -> operator_pb2.Attention:
    return operator_pb2.Attention(severity=SEVERITIES[notice.severity], reason=notice.reason, message=notice.message)


def _totals(state: RackState, policy: Policy, books: Account, drawn: Measured) -> operator_pb2.Totals:
    roots = [domain for domain in policy.domains if domain.parent is None]
    roots_w = [drawn.domains_w[root.name] for root in roots]
    known_w = [watts for watts in roots_w if watts is not None]
    measured_w = sum(known_w) if roots and len(known_w) == len(roots) else None
    rates = [
        workload.generated_tokens_per_s
        for name in drawn.fresh
        for workload in state.nodes[name].workloads
        if workload.generated_tokens_per_s is not None
    ]
    tokens_per_s = sum(sorted(rates)) if rates else None
    return operator_pb2.Totals(
        limit_milliwatts=mw_from_w(sum(root.limit_w for root in roots)),
        ledger_milliwatts=mw_from_w(sum(books.domains[root.name].load_w for root in roots)),
        measured_milliwatts=optional_mw(measured_w),
        gpus_running=_running(state, books, drawn),
        gpus_at_nameplate=gpus_at_nameplate(policy),
        gpus=_known(state, policy, books),
        tokens_per_second=tokens_per_s,
        tokens_per_watt=tokens_per_s / measured_w if tokens_per_s is not None and measured_w else None,
    )


def _running(state: RackState, books: Account, drawn: Measured) -> int:
    """Return how many GPUs are heard, answer, and sit in an admitted node that reports."""
    return sum(
        1
        for book in state.gpus.values()
        if book.node in drawn.fresh
        and books.nodes[book.node].state is NodeState.LIVE
        and book.last is not None
        and book.last.health not in (Health.LOST, Health.QUARANTINED)
    )


def _known(state: RackState, policy: Policy, books: Account) -> int:
    listed: dict[str, int] = {}
    for book in state.gpus.values():
        if book.node in books.nodes:
            listed[book.node] = listed.get(book.node, 0) + 1
    named = {node.name: sum(gpus.count for gpus in node.gpus) for node in policy.nodes}
    return sum(max(listed.get(name, 0), named.get(name, 0)) for name in books.nodes)
