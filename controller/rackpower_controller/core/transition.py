"""From the caps in force to the plan, safely: lower, confirm, settle, raise (invariants 1, 2, 4, 6 and 11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rackpower_common.model.identity import GpuId, NodeName
from rackpower_common.model.messages import Grant, Renewal
from rackpower_common.model.policy import Policy
from rackpower_controller.core.exposure import REPORTS_UNTIL_UNACKNOWLEDGED
from rackpower_controller.core.fallback import fallback_w
from rackpower_controller.core.ledger import Account
from rackpower_controller.core.requests import Range, build_request, frozen
from rackpower_controller.core.room import Raise, fitting
from rackpower_controller.core.state import GpuBook, NodeState, RackState
from rackpower_controller.core.waterfill import waterfill


@dataclass(frozen=True, slots=True)
class Lower:
    """A grant that raises nothing, and whether it lowers a cap, by how many watts."""

    grant: Grant
    by_w: int


def commanded_caps_w(state: RackState, books: Account) -> dict[GpuId, int]:
    """Return the cap in watts that each reachable GPU was last told, or holds where that is lower and acknowledged."""
    commanded: dict[GpuId, int] = {}
    for gpu, book in state.gpus.items():
        node = books.nodes.get(book.node)
        spoken_to = node is not None and node.state in (NodeState.LIVE, NodeState.WAITING)
        if not spoken_to or not book.heard or not book.device.cappable or book.enforced_w is None:
            continue
        standing_w = book.requested_w if book.requested_w is not None else book.enforced_w
        if book.granted_w is None:
            commanded[gpu] = min(standing_w, books.index.highest_grant_w(book.node, book.device))
        elif book.outstanding:
            commanded[gpu] = book.granted_w
        else:
            commanded[gpu] = min(book.granted_w, standing_w)
    return commanded


def lowers(
    state: RackState,
    policy: Policy,
    books: Account,
    commanded_w: Mapping[GpuId, int],
    needed_w: Mapping[GpuId, int],
    targets_w: Mapping[GpuId, int],
    now_s: float,
    admissions: frozenset[NodeName] = frozenset(),
) -> dict[GpuId, Lower]:
    """Return the grants that raise nothing: lowers, first grants, new fallbacks, repeats of unanswered ones.

    Args:
        state: The state.
        policy: The policy in force.
        books: The account of the state.
        commanded_w: See `commanded_caps_w`.
        needed_w: Caps that limits need; the dead-band never withholds one of these.
        targets_w: Caps that the plan wants.
        now_s: The time.
        admissions: Nodes that wait no longer: a controller that starts anew must not take a working rack to its minima.

    A GPU whose agent holds no grant goes to its minimum by itself, before its node starts any work: our first grant is
    no higher, or it would lift a cap that nothing has funded. From there a raise needs room like any other.
    """
    chosen: dict[GpuId, Lower] = {}
    least_change_w = 1 if _raise_waits(state, policy, books, commanded_w, targets_w, now_s) else policy.dead_band_w
    for gpu in sorted(commanded_w):
        book, held_w = state.gpus[gpu], commanded_w[gpu]
        cap_w = min(held_w, needed_w.get(gpu, held_w))
        waits = _keeps_minimum(book, books, admitted=book.node in admissions)
        least_w = books.index.least_w(book.node, book.device)
        wished_w = least_w if waits else _wished_w(book, books, targets_w.get(gpu, held_w))
        if wished_w <= held_w - least_change_w or (wished_w < held_w and (waits or _must(book, wished_w))):
            cap_w = min(cap_w, wished_w)
        if cap_w < held_w and _hung(book):
            if waits and book.granted_w is None:
                continue  # its agent is lowering it: a grant of what still stands would lift it again
            cap_w = held_w
        fallback = fallback_w(book, policy)
        if cap_w < held_w or _needs_grant(book, fallback, held_w, policy, now_s):
            grant = Grant(gpu, cap_w, fallback, policy.timing.lease_s, book.sequence + 1)
            chosen[gpu] = Lower(grant, held_w - cap_w)
    return chosen


def _raise_waits(
    state: RackState,
    policy: Policy,
    books: Account,
    commanded_w: Mapping[GpuId, int],
    targets_w: Mapping[GpuId, int],
    now_s: float,
) -> bool:
    """Whether a raise worth sending waits: then the few watts that others hold above their targets are wanted too."""
    return any(
        target_w - commanded_w[gpu] >= policy.dead_band_w and _may_rise(state.gpus[gpu], books, now_s)
        for gpu, target_w in targets_w.items()
        if gpu in commanded_w
    )


def _keeps_minimum(book: GpuBook, books: Account, *, admitted: bool) -> bool:
    """Whether a GPU may hold no more than its minimum yet: its node waits, or its agent holds no grant of anybody."""
    if books.nodes[book.node].state is NodeState.WAITING and not admitted:
        return True
    holds_nothing = book.last is None or book.last.holding.lease_remaining_s is None
    return book.granted_w is None and holds_nothing


def _wished_w(book: GpuBook, books: Account, target_w: int) -> int:
    """Return the plan's cap in watts, below a foreign ceiling."""
    if book.ceiling_w is None:
        return target_w
    return max(books.index.least_w(book.node, book.device), min(target_w, book.ceiling_w))


def _must(book: GpuBook, wished_w: int) -> bool:
    return book.ceiling_w is not None and wished_w <= book.ceiling_w


def _hung(book: GpuBook) -> bool:
    """A device with a write that has not returned takes no second one."""
    return bool(book.pending_w)


def _needs_grant(book: GpuBook, fallback: int, held_w: int, policy: Policy, now_s: float) -> bool:
    if book.granted_w is None or book.granted_fallback_w != fallback:
        return True
    if book.outstanding:
        patience_s = REPORTS_UNTIL_UNACKNOWLEDGED * policy.timing.report_period_s
        unanswered = now_s - book.outstanding[-1].sent_s > patience_s
        return unanswered and not _hung(book) and not frozen(book, now_s)
    return book.agent_sequence != book.granted_sequence or held_w < book.granted_w or _ran_out(book)


def _ran_out(book: GpuBook) -> bool:
    """Whether the agent says that the lease ended: a renewal does not revive it, a new grant does."""
    left_s = book.last.holding.lease_remaining_s if book.last is not None else None
    return left_s is not None and left_s <= 0


def renewals(state: RackState, policy: Policy, books: Account, granted: Mapping[GpuId, Lower]) -> dict[GpuId, Renewal]:
    """Return renewals for the GPUs whose agents hold our last grant (invariant 11); a new grant needs none."""
    kept: dict[GpuId, Renewal] = {}
    for gpu in sorted(state.gpus):
        book = state.gpus[gpu]
        node = books.nodes.get(book.node)
        live = node is not None and node.state in (NodeState.LIVE, NodeState.WAITING)
        if live and gpu not in granted and book.granted_w is not None and book.agent_sequence == book.granted_sequence:
            kept[gpu] = Renewal(gpu, book.granted_sequence, policy.timing.lease_s)
    return kept


def raises(
    state: RackState,
    policy: Policy,
    books: Account,
    commanded_w: Mapping[GpuId, int],
    targets_w: Mapping[GpuId, int],
    lowered: Mapping[GpuId, Lower],
    now_s: float,
) -> dict[GpuId, Raise]:
    """Return the raises that the ledger has room for now.

    A raise is sent only into free ledger: the lowers that fund it are confirmed and settled, or they would still
    count at their old caps. Below a domain that stands over its ceiling nothing rises at all.

    Raises:
        InvariantError: The sum after the raises would pass a ceiling: nothing may be raised.
    """
    ranges: dict[GpuId, Range] = {}
    closed = {name for name, domain in books.domains.items() if domain.load_w > domain.ceiling_w}
    for gpu, target_w in targets_w.items():
        if gpu in lowered or gpu not in commanded_w or target_w - commanded_w[gpu] < policy.dead_band_w:
            continue
        if _may_rise(state.gpus[gpu], books, now_s) and closed.isdisjoint(books.carriers(gpu, state)):
            counted_w = books.exposures_w[gpu]
            ranges[gpu] = Range(counted_w, max(target_w, counted_w), counted_w)
    if not ranges:
        return {}
    node_gpus_w = {name: node.gpus_w for name, node in books.nodes.items()}
    request = build_request(state, policy, books, ranges, node_gpus_w)
    allowed_w = dict(zip(request.membership, waterfill(request), strict=True))
    chosen: dict[GpuId, Raise] = {}
    for gpu in sorted(ranges):
        book, counted_w = state.gpus[gpu], books.exposures_w[gpu]
        cap_w = min(targets_w[gpu], allowed_w[gpu])
        by_w = cap_w - commanded_w[gpu]
        if by_w < policy.dead_band_w:
            continue
        grant = Grant(gpu, cap_w, fallback_w(book, policy), policy.timing.lease_s, book.sequence + 1)
        chosen[gpu] = Raise(grant, by_w, max(counted_w, cap_w))
    return fitting(state, books, chosen)


def _may_rise(book: GpuBook, books: Account, now_s: float) -> bool:
    node = books.nodes[book.node]
    if node.state is not NodeState.LIVE or book.granted_w is None or book.outstanding or _hung(book):
        return False
    return book.agent_sequence == book.granted_sequence and not frozen(book, now_s)
