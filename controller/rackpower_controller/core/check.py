"""Our own judgement of a plan: whole watts summed up the tree as the ledger sums them.

It shares no code with the water-fill or the planner, so that one mistake cannot pass both.
"""

from __future__ import annotations

import math

from rackpower_controller.core.planning import PlanRequest


def loads_w(request: PlanRequest, caps_w: tuple[int, ...]) -> tuple[int, ...]:
    """Return the loads in watts that these caps make: every domain's in order, then every node's.

    Args:
        request: The question.
        caps_w: A cap for each GPU of the request, in its order.
    """
    gpus_w = [0] * len(request.nodes)
    for gpu, cap_w in zip(request.gpus, caps_w, strict=True):
        gpus_w[gpu.node] += cap_w
    nodes_w = [math.ceil(node.loss * (watts + node.fixed_w)) for node, watts in zip(request.nodes, gpus_w, strict=True)]
    below_w = [0.0] * len(request.domains)
    for node, load_w in zip(request.nodes, nodes_w, strict=True):
        for number, share in node.feeds:
            below_w[number] += load_w * share
    domains_w = [0] * len(request.domains)
    for number in range(len(request.domains) - 1, -1, -1):
        domain = request.domains[number]
        domains_w[number] = math.ceil(domain.loss * (below_w[number] + domain.fixed_w))
        if domain.parent >= 0:
            below_w[domain.parent] += domains_w[number]
    return (*domains_w, *nodes_w)


def violations(request: PlanRequest, caps_w: tuple[int, ...]) -> list[str]:
    """Return what is wrong with these caps as an answer, in words; empty when they may be granted.

    A domain that not even the minima fit excuses itself: there every GPU must stand at its minimum.

    Args:
        request: The question.
        caps_w: A cap for each GPU of the request, in its order.
    """
    if len(caps_w) != len(request.gpus):
        return [f"{len(caps_w)} caps for {len(request.gpus)} GPUs"]
    found = [
        f"{gpu.gpu} at {cap_w} W, outside {gpu.lo_w} to {gpu.hi_w} W"
        for gpu, cap_w in zip(request.gpus, caps_w, strict=True)
        if not gpu.lo_w <= cap_w <= gpu.hi_w
    ]
    ceilings_w = [*request.ceilings_w, *(node.ceiling_w for node in request.nodes)]
    names = [*(domain.name for domain in request.domains), *(node.name for node in request.nodes)]
    minima_w = loads_w(request, tuple(gpu.lo_w for gpu in request.gpus))
    raised = {gpu.node for gpu, cap_w in zip(request.gpus, caps_w, strict=True) if cap_w > gpu.lo_w}
    for number, load_w in enumerate(loads_w(request, caps_w)):
        ceiling_w = ceilings_w[number]
        if ceiling_w is None or load_w <= ceiling_w:
            continue
        if minima_w[number] <= ceiling_w:
            found.append(f"{names[number]} at {load_w} W, above its ceiling of {ceiling_w} W")
        elif not raised.isdisjoint(_nodes_below(request, number)):
            found.append(f"{names[number]} does not fit its minima, and yet GPUs below it stand above theirs")
    return found


def _nodes_below(request: PlanRequest, number: int) -> set[int]:
    """Return the nodes that count in the domain or node with this place in `loads_w`."""
    if number >= len(request.domains):
        return {number - len(request.domains)}
    below = set()
    for index, node in enumerate(request.nodes):
        for fed_by, _share in node.feeds:
            above = fed_by
            while above >= 0:
                if above == number:
                    below.add(index)
                above = request.domains[above].parent
    return below
