"""Who may speak for a node: hellos, streams and terms (invariants 3, 5, 8, 9; two streams with one name)."""

from __future__ import annotations

from dataclasses import replace

from rackpower_common.model.device import Device
from rackpower_common.model.identity import GpuId, NodeName
from rackpower_common.model.messages import ControllerGoodbye, GoodbyeReason, Hello, Welcome
from rackpower_common.model.policy import Policy
from rackpower_controller.core.absorbed import Absorbed
from rackpower_controller.core.decision import Answer, Event, Severity
from rackpower_controller.core.exposure import exposure_w
from rackpower_controller.core.facts import NodeConnected, NodeLeft, TermTaken
from rackpower_controller.core.rack_index import rack_index
from rackpower_controller.core.reports import absorb_holding
from rackpower_controller.core.state import GpuBook, NodeBook, RackState
from rackpower_controller.core.terms import heed_term

REFUSED_PEERS_LIMIT = 8
"""So many refused peers are remembered for a node's status."""

STRANGERS_LIMIT = 64
"""So many nodes that the policy does not describe are remembered for the status."""


def connected(state: RackState, fact: NodeConnected, policy: Policy) -> Absorbed:
    """Judge a hello: welcome it, replace an older stream, or refuse it with a reason that names both sides."""
    hello, name = fact.hello, fact.hello.node
    if name not in rack_index(policy).nodes and name not in state.former_nodes:
        return _refuse_stranger(state, fact)
    clash = _clash(state, fact, policy)
    if clash is not None:
        return _refuse_duplicate(state, fact, clash)
    before = state.nodes.get(name, NodeBook(name))
    rebooted = before.boot_id not in ("", hello.boot_id)
    proven = rebooted and hello.devices_complete
    state = _renamed(state, hello, policy)
    gpus = _books_after_hello(state, hello, drop_missing=proven)
    book = replace(
        before,
        identity=fact.identity,
        peer=fact.peer,
        stream=fact.stream,
        boot_id=hello.boot_id,
        agent_instance=hello.agent_instance,
        agent_version=hello.agent_version,
        devices_complete=proven or (before.devices_complete and not rebooted),
        journal_read=hello.journal_read,
        connected_s=fact.at_s,
        last_sequence=0,
        declared_off=False,
        left=False,
    )
    former = dict(state.former_nodes)
    cycled_since_move = before.placed_boot_id not in ("", hello.boot_id)
    if cycled_since_move and name in rack_index(policy).nodes:
        former.pop(name, None)
    state = replace(state, nodes={**state.nodes, name: book}, gpus=gpus, former_nodes=former)
    return _welcome(state, fact, before, rebooted=rebooted)


def _welcome(state: RackState, fact: NodeConnected, before: NodeBook, *, rebooted: bool) -> Absorbed:
    hello, answers, events = fact.hello, [], []
    if before.stream is not None and before.stream != fact.stream:
        goodbye = ControllerGoodbye(GoodbyeReason.REPLACED, f"node {hello.node} connected again from {fact.peer}")
        answers.append(Answer(before.stream, goodbye))
    state = heed_term(state, hello.highest_term)
    if state.term is not None and state.needs_term_above is None:
        answers.append(Answer(fact.stream, Welcome(state.term, 0.0)))
    how = "booted again" if rebooted else "connected"
    memory = "" if hello.journal_read else "; its agent has no memory of earlier terms and leases"
    severity = Severity.INFO if hello.journal_read else Severity.WARNING
    message = f"node {hello.node} {how} from {fact.peer} with {len(hello.devices)} GPUs{memory}"
    events.append(Event(severity, "node_rebooted" if rebooted else "node_connected", message, node=hello.node))
    return Absorbed(state, tuple(answers), tuple(events))


def _clash(state: RackState, fact: NodeConnected, policy: Policy) -> str | None:
    """Return why this hello cannot be the node that we know, None when it can."""
    book = state.nodes.get(fact.hello.node)
    if book is None or book.boot_id == "":
        return _foreign_gpu(state, fact, policy)
    if book.identity and book.identity != fact.identity:
        return f"its identity is {fact.identity}, the node's is {book.identity}"
    known = {gpu.gpu for gpu in state.gpus.values() if gpu.node == fact.hello.node}
    listed = {device.gpu for device in fact.hello.devices}
    if known and not known & listed and not book.declared_off:
        return "none of its GPUs is one of the node's"
    if known != listed and book.stream is not None and book.boot_id == fact.hello.boot_id and not listed <= known:
        return "it lists other GPUs than the node that is connected"
    return _foreign_gpu(state, fact, policy)


def _foreign_gpu(state: RackState, fact: NodeConnected, policy: Policy) -> str | None:
    for device in fact.hello.devices:
        owner = state.gpus.get(device.gpu)
        if owner is not None and owner.node != fact.hello.node and not _gone(state, owner.node, policy):
            return f"its GPU {device.gpu} belongs to node {owner.node}"
    return None


def _gone(state: RackState, name: NodeName, policy: Policy) -> bool:
    """Whether a node may be followed by another with its GPUs: declared off, or dropped by the policy and left."""
    book = state.nodes.get(name)
    if book is None or book.declared_off:
        return True
    return book.stream is None and name not in rack_index(policy).nodes


def _renamed(state: RackState, hello: Hello, policy: Policy) -> RackState:
    """Let a node take over the GPUs of one that the policy dropped: it got another name, its draw stays where it was.

    Once the last of the old node's GPUs is taken over, what it counted for besides is the new node's.
    """
    listed = {device.gpu for device in hello.devices}
    olds = {
        book.node
        for gpu, book in state.gpus.items()
        if gpu in listed and book.node != hello.node and book.node not in rack_index(policy).nodes
    }
    former, nodes = dict(state.former_nodes), dict(state.nodes)
    for old in sorted(olds):
        former[hello.node] = (*former.get(hello.node, ()), *former.get(old, ()))
        if {gpu for gpu, book in state.gpus.items() if book.node == old} <= listed:
            former.pop(old, None)
            nodes.pop(old, None)
    return replace(state, former_nodes={name: places for name, places in former.items() if places}, nodes=nodes)


def _refuse_stranger(state: RackState, fact: NodeConnected) -> Absorbed:
    name = fact.hello.node
    detail = f"the policy does not describe node {name}: add it under nodes: and apply the policy"
    nodes = dict(state.nodes)
    strangers = sum(1 for book in nodes.values() if book.boot_id == "" and book.refused)
    known = name in nodes
    if known or strangers < STRANGERS_LIMIT:
        nodes[name] = _remember_refused(nodes.get(name, NodeBook(name)), fact.peer)
    answer = Answer(fact.stream, ControllerGoodbye(GoodbyeReason.NODE_UNKNOWN, detail, retry_after_s=10.0))
    event = Event(Severity.WARNING, "node_unknown", f"refused {fact.peer}: {detail}", node=name)
    events = () if known and fact.peer in state.nodes[name].refused else (event,)
    return Absorbed(replace(state, nodes=nodes), (answer,), events)


def _refuse_duplicate(state: RackState, fact: NodeConnected, clash: str) -> Absorbed:
    name = fact.hello.node
    book = state.nodes.get(name, NodeBook(name))
    holder = book.peer or "another node"
    detail = (
        f"{fact.peer} claims to be node {name}, but {clash}; the node is held by {holder}. "
        f"Give each node its own name, or declare the old one off if it is gone"
    )
    answer = Answer(fact.stream, ControllerGoodbye(GoodbyeReason.NODE_DUPLICATE, detail, retry_after_s=10.0))
    event = Event(Severity.ERROR, "node_duplicate", detail, node=name)
    events = () if fact.peer in book.refused else (event,)
    nodes = {**state.nodes, name: _remember_refused(book, fact.peer)}
    return Absorbed(replace(state, nodes=nodes), (answer,), events)


def _remember_refused(book: NodeBook, peer: str) -> NodeBook:
    others = tuple(known for known in book.refused if known != peer)
    return replace(book, refused=(*others, peer)[-REFUSED_PEERS_LIMIT:])


def _books_after_hello(state: RackState, hello: Hello, *, drop_missing: bool) -> dict[GpuId, GpuBook]:
    """Return the GPU books with a hello's devices and holdings; nothing that was counted is forgotten."""
    listed = {device.gpu: device for device in hello.devices}
    gpus: dict[GpuId, GpuBook] = {}
    for gpu, book in state.gpus.items():
        if book.node == hello.node and gpu not in listed and drop_missing:
            continue
        gpus[gpu] = book
    holdings = {holding.gpu: holding for holding in hello.holdings}
    for gpu, device in listed.items():
        book = _book_for(gpus.get(gpu), hello.node, device)
        holding = holdings.get(gpu)
        gpus[gpu] = absorb_holding(book, holding) if holding is not None else book
    return gpus


def _book_for(book: GpuBook | None, node: NodeName, device: Device) -> GpuBook:
    if book is None:
        return GpuBook(device.gpu, node, device)
    return replace(book, node=node, device=device)


def left(state: RackState, fact: NodeLeft) -> Absorbed:
    """A stream ended: the node keeps its exposure (invariant 3)."""
    book = state.nodes.get(fact.node)
    if book is None or book.stream != fact.stream:
        return Absorbed(state)
    on_purpose = fact.goodbye is not None
    state = replace(state, nodes={**state.nodes, fact.node: replace(book, stream=None, left=on_purpose)})
    why = f"its agent said goodbye: {fact.goodbye.reason}" if fact.goodbye is not None else "its stream ended"
    severity = Severity.INFO if on_purpose else Severity.WARNING
    message = f"node {fact.node} is gone, {why}; its GPUs keep counting at what they may draw"
    return Absorbed(state, (), (Event(severity, "node_left", message, node=fact.node),))


def term_taken(state: RackState, fact: TermTaken, policy: Policy) -> Absorbed:
    """A new term: nobody has been heard in it, and no lease of an earlier one is renewed (invariants 9 and 11)."""
    gpus = {
        gpu: replace(
            book,
            heard=False,
            recalled_w=exposure_w(book, policy) if book.heard else book.recalled_w,
            granted_sequence=0,
            granted_w=None,
            granted_fallback_w=None,
            granted_at_s=None,
        )
        for gpu, book in state.gpus.items()
    }
    nodes = {name: replace(book, heard=False) for name, book in state.nodes.items()}
    state = replace(state, term=fact.term, term_since_s=fact.at_s, nodes=nodes, gpus=gpus, needs_term_above=None)
    welcome = Welcome(fact.term, 0.0)
    answers = tuple(Answer(book.stream, welcome) for book in nodes.values() if book.stream is not None)
    event = Event(
        Severity.INFO, "term_taken", f"this controller has term {fact.term}; every node must be heard in it anew"
    )
    return Absorbed(state, answers, (event,))
