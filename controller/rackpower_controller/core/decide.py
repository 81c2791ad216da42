"""One tick: `decide(state, plan, policy, now) -> Decision`.

Pure: no I/O, no clock, no randomness, no solver. Read top to bottom: the books, what limits need, what the plan
wants, which caps come down now, which raises the ledger has room for, which leases go on, one sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rackpower_common.errors import InvariantError
from rackpower_common.model.identity import DomainName, GpuId, NodeName, Term
from rackpower_common.model.messages import Grant, GrantBatch, Renewal
from rackpower_common.model.policy import Policy
from rackpower_controller.core.decision import Decision, Event, Severity
from rackpower_controller.core.fallback import boot_reserve_misfit
from rackpower_controller.core.former import former_text
from rackpower_controller.core.ledger import Account, account
from rackpower_controller.core.planning import Plan
from rackpower_controller.core.requests import accepts
from rackpower_controller.core.room import Raise
from rackpower_controller.core.sentence import sentence, without_term
from rackpower_controller.core.shed import Shed, shed
from rackpower_controller.core.state import NodeState, RackState
from rackpower_controller.core.transition import commanded_caps_w, lowers, raises, renewals


def decide(state: RackState, plan: Plan | None, policy: Policy, now_s: float) -> Decision:
    """Decide one tick.

    Args:
        state: All that was absorbed.
        plan: The last accepted plan; one made for other limits or GPUs is used only to lower.
        policy: The policy in force.
        now_s: The controller's clock, in seconds.
    """
    books = account(state, policy, now_s)
    if state.term is None:
        return _nothing(state, now_s, without_term(state))
    admissions, waiting = _admissions(policy, books)
    commanded_w = commanded_caps_w(state, books)
    needed = shed(state, policy, books, commanded_w, now_s)
    fresh = accepts(plan, state, policy, books, now_s)
    targets_w = _targets_w(plan, commanded_w, fresh=fresh)
    lowered = lowers(state, policy, books, commanded_w, needed.caps_w, targets_w, now_s, admissions)
    events = _unmeetable_events(needed, books)
    raised: dict[GpuId, Raise] = {}
    if fresh and state.needs_term_above is None:
        try:
            raised = raises(state, policy, books, commanded_w, targets_w, lowered, now_s)
        except InvariantError as broken:
            events.append(Event(Severity.ERROR, "invariant", f"{broken}; no cap is raised, please report this"))
    kept = renewals(state, policy, books, lowered)
    return Decision(
        tick=state.tick + 1,
        now_s=now_s,
        lowers=_batches(state, state.term, [lower.grant for lower in lowered.values()], kept.values()),
        raises=_batches(state, state.term, [one.grant for one in raised.values()], ()),
        exposures_w=_exposures_w(state, books, raised),
        events=tuple(events),
        sentence=sentence(state, books, lowered, raised, needed, waiting, fresh=fresh, planned=plan is not None),
        needs_term_above=state.needs_term_above,
        admissions=admissions,
        waiting=waiting,
        unmeetable=needed.unmeetable_w,
        former=former_text(state),
    )


def _nothing(state: RackState, now_s: float, words: str) -> Decision:
    return Decision(state.tick + 1, now_s, {}, {}, {}, (), words, needs_term_above=state.needs_term_above)


def _exposures_w(state: RackState, books: Account, raised: Mapping[GpuId, Raise]) -> dict[GpuId, int]:
    """Return what every GPU heard in this term counts for once the raises are sent, in watts: the record."""
    heard = {gpu: books.exposures_w[gpu] for gpu, book in state.gpus.items() if book.heard}
    return heard | {gpu: one.exposure_w for gpu, one in raised.items()}


def _targets_w(plan: Plan | None, commanded_w: Mapping[GpuId, int], *, fresh: bool) -> dict[GpuId, int]:
    """Return the plan's caps in watts for the GPUs that we can speak to; an older plan only lowers."""
    if plan is None:
        return {}
    targets = {gpu: watts for gpu, watts in plan.targets_w.items() if gpu in commanded_w}
    if fresh:
        return targets
    return {gpu: min(watts, commanded_w[gpu]) for gpu, watts in targets.items()}


def _admissions(policy: Policy, books: Account) -> tuple[frozenset[NodeName], dict[NodeName, str]]:
    """Return the waiting nodes whose boot reserve fits from now on, and why the others wait."""
    admitted: set[NodeName] = set()
    waiting: dict[NodeName, str] = {}
    for name, node in books.nodes.items():
        if node.state is not NodeState.WAITING:
            continue
        misfit = boot_reserve_misfit(policy, name)
        if misfit:
            waiting[name] = misfit
        else:
            admitted.add(name)
    return frozenset(admitted), waiting


def _batches(
    state: RackState, term: Term, grants: Iterable[Grant], kept: Iterable[Renewal]
) -> dict[NodeName, GrantBatch]:
    by_node: dict[NodeName, tuple[list[Grant], list[Renewal]]] = {}
    for grant in grants:
        by_node.setdefault(state.gpus[grant.gpu].node, ([], []))[0].append(grant)
    for renewal in kept:
        by_node.setdefault(state.gpus[renewal.gpu].node, ([], []))[1].append(renewal)
    return {name: GrantBatch(term, tuple(ours), tuple(others)) for name, (ours, others) in sorted(by_node.items())}


def _unmeetable_events(needed: Shed, books: Account) -> list[Event]:
    events = []
    for name, missing_w in needed.unmeetable_w.items():
        heaviest = _heaviest(name, books)
        message = (
            f"{name} stands {missing_w} W above its ceiling with everything reachable at its minimum; "
            f"power off, in this order: {', '.join(heaviest) or 'nothing that we know of'}"
        )
        events.append(Event(Severity.ERROR, "unmeetable", message, domain=name))
    return events


def _heaviest(domain: DomainName, books: Account) -> list[str]:
    """Return the nodes to power off first: least important, then most watts."""
    below = [name for name in books.nodes if domain in books.index.above(name)]
    ranked = sorted(below, key=lambda name: (books.index.nodes[name].priority, -books.nodes[name].gpus_w, name))
    return [f"{name} ({books.nodes[name].gpus_w + books.nodes[name].beside_w} W)" for name in ranked[:5]]
