"""One sentence a tick, for the operator who looks once."""

from __future__ import annotations

from collections.abc import Mapping

from rackpower_common.model.identity import GpuId, NodeName
from rackpower_controller.core.ledger import Account
from rackpower_controller.core.room import Raise
from rackpower_controller.core.shed import Shed
from rackpower_controller.core.state import NodeState, RackState
from rackpower_controller.core.transition import Lower


def without_term(state: RackState) -> str:
    """Say why nothing is decided."""
    why = f": {state.store_detail}" if state.store_detail else ""
    return f"No term from the store yet{why}; every agent keeps its leases and grants wait."


def sentence(
    state: RackState,
    books: Account,
    lowered: Mapping[GpuId, Lower],
    raised: Mapping[GpuId, Raise],
    needed: Shed,
    waiting: Mapping[NodeName, str],
    *,
    fresh: bool,
    planned: bool,
) -> str:
    """Say what a tick did and what it waits for.

    Args:
        state: The state.
        books: Its account.
        lowered: Grants that raise nothing.
        raised: Grants that raise.
        needed: What limits needed.
        waiting: Nodes that are not admitted, and why.
        fresh: Whether the plan is for what is in force.
        planned: Whether there is a plan at all.
    """
    parts = [part for part in (_moves(lowered, raised, needed), _troubles(state, books, needed, waiting)) if part]
    if not planned:
        parts.append("no plan yet")
    elif not fresh:
        parts.append("the plan is older than what is in force and may only lower")
    parts.append(_room(books))
    return "; ".join(parts) + "."


def _moves(lowered: Mapping[GpuId, Lower], raised: Mapping[GpuId, Raise], needed: Shed) -> str:
    down = {gpu: one.by_w for gpu, one in lowered.items() if one.by_w > 0}
    parts = []
    if down:
        shed = sum(1 for gpu in down if gpu in needed.caps_w)
        why = f", {shed} of them to meet a limit" if shed else ""
        parts.append(f"lowered {_gpus(len(down))} by {sum(down.values())} W{why}")
    if raised:
        parts.append(f"raised {_gpus(len(raised))} by {sum(one.by_w for one in raised.values())} W")
    if not parts:
        return "No cap changed"
    text = ", ".join(parts)
    return text[0].upper() + text[1:]


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _troubles(state: RackState, books: Account, needed: Shed, waiting: Mapping[NodeName, str]) -> str:
    parts = []
    settling = sum(1 for book in state.gpus.values() if book.heard and book.unsettled_w is not None)
    if settling:
        parts.append(f"{_gpus(settling)} still to settle")
    for seen, words in ((NodeState.UNHEARD, "not heard in this term"), (NodeState.SILENT, "silent")):
        names = [name for name, node in books.nodes.items() if node.state is seen]
        if names:
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            parts.append(f"{shown} {words}")
    parts += [f"{name} waits: {why}" for name, why in sorted(waiting.items())]
    parts += [f"{name} stays {watts} W above its ceiling" for name, watts in sorted(needed.unmeetable_w.items())]
    return "; ".join(parts)


def _room(books: Account) -> str:
    if not books.domains:
        return "there is no domain"
    tightest = min(books.domains, key=lambda name: (books.domains[name].ceiling_w - books.domains[name].load_w, name))
    domain = books.domains[tightest]
    return f"the ledger of {tightest} stands at {domain.load_w} of {domain.ceiling_w} W"
