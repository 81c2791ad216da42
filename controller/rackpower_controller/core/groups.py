"""Alike GPUs as one group: what the planner and the water-fill hand watts to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rackpower_controller.core.planning import PlanGpu, PlanRequest, Segment


@dataclass(frozen=True, slots=True)
class Group:
    """GPUs of one node that differ in nothing but their UUID; `members` are places in the request, by UUID."""

    node: int
    lo_w: int
    hi_w: int
    priority: int
    segments: tuple[Segment, ...]
    members: tuple[int, ...]


def alike_groups(request: PlanRequest) -> tuple[Group, ...]:
    """Return the groups of a request, ordered by the UUID of their first member."""
    by_key: dict[tuple[int, int, int, int, int], list[tuple[PlanGpu, list[int]]]] = {}
    found: list[tuple[PlanGpu, list[int]]] = []
    for place in sorted(range(len(request.gpus)), key=lambda number: request.gpus[number].gpu):
        gpu = request.gpus[place]
        same = by_key.setdefault((gpu.node, gpu.alike, gpu.lo_w, gpu.hi_w, gpu.priority), [])
        for first, members in same:
            if first.segments is gpu.segments or first.segments == gpu.segments:
                members.append(place)
                break
        else:
            same.append((gpu, [place]))
            found.append(same[-1])
    return tuple(
        Group(first.node, first.lo_w, first.hi_w, first.priority, first.segments, tuple(members))
        for first, members in found
    )


def spread(groups: Sequence[Group], above_w: Iterable[int]) -> tuple[int, ...]:
    """Return caps in request order from the watts that each group has above its minima.

    The watts are shared evenly; what is left over goes to the first by UUID, a watt each.

    Args:
        groups: Every group of the request.
        above_w: Watts above Σ minima, one entry a group.
    """
    caps_w: dict[int, int] = {}
    for group, watts in zip(groups, above_w, strict=True):
        each_w, over = divmod(int(watts), len(group.members))
        for rank, place in enumerate(group.members):
            caps_w[place] = group.lo_w + each_w + (1 if rank < over else 0)
    return tuple(caps_w[place] for place in range(len(caps_w)))
