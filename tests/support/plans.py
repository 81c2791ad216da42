"""Plan requests for tests: by hand, by hypothesis, a mixed rack; and a planner without a solver."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import strategies as st

from rackpower_common.model.identity import DomainName, GpuId, NodeName, Revision
from rackpower_common.model.policy import Curve, Objective
from rackpower_controller.core.check import violations
from rackpower_controller.core.curves import segments
from rackpower_controller.core.groups import alike_groups, spread
from rackpower_controller.core.planning import Plan, PlanDomain, PlanGpu, PlanNode, PlanRequest, Segment
from rackpower_controller.core.waterfill import waterfill
from rackpower_controller.planner.objective import gained_tokens_per_s

# (lowest cap, highest cap, curve): the built-in classes
CLASSES = {
    "b200": (200, 1000, Curve(900.0, 1.9, 2.2, 399.0, 300.0)),
    "h100": (200, 700, Curve(620.0, 1.6, 2.0, 180.0, 250.0)),
    "mi300x": (250, 750, Curve(660.0, 1.5, 1.8, 165.0, 300.0)),
    "mi355x": (400, 1400, Curve(1150.0, 1.7, 2.0, 328.0, 480.0)),
}


def domain(name: str, ceiling_w: int, parent: int = -1, fixed_w: int = 0, loss: float = 1.0) -> PlanDomain:
    """Return a domain."""
    return PlanDomain(DomainName(name), parent, ceiling_w, fixed_w, loss)


def node(
    name: str, *feeds: tuple[int, float], fixed_w: int = 0, loss: float = 1.0, ceiling_w: int | None = None
) -> PlanNode:
    """Return a node; without feeds it hangs on the first domain."""
    return PlanNode(NodeName(name), feeds or ((0, 1.0),), fixed_w, loss, ceiling_w)


def gpu(
    name: str,
    on: int = 0,
    lo_w: int = 100,
    pieces: Sequence[tuple[int, float]] = ((100, 2.0), (100, 1.0)),
    hi_w: int | None = None,
    alike: int | None = None,
    priority: int = 50,
) -> PlanGpu:
    """Return a GPU; `pieces` are (width in watts, slope), `alike` defaults to a key of its own."""
    end_w = lo_w + sum(width_w for width_w, _slope in pieces)
    key = alike if alike is not None else hash(name)
    return PlanGpu(
        GpuId(name),
        on,
        lo_w,
        end_w if hi_w is None else hi_w,
        tuple(Segment(*piece) for piece in pieces),
        key,
        priority,
    )


def question(domains: Sequence[PlanDomain], nodes: Sequence[PlanNode], gpus: Sequence[PlanGpu]) -> PlanRequest:
    """Return a request."""
    in_order = tuple(sorted(gpus, key=lambda one: one.gpu))
    return PlanRequest(Revision("r1"), Objective.TOKENS, tuple(domains), tuple(nodes), in_order)


def mixed_rack(nodes: int = 9, share: float = 0.6, loss: float = 1.064, pdus: int = 3) -> PlanRequest:
    """Return nodes of eight GPUs, classes in turn, on a rack worth `share` of their maxima."""
    rows, most_w = list(CLASSES.values()), 0
    gpus: list[PlanGpu] = []
    for number in range(nodes):
        lo_w, hi_w, curve = rows[number % len(rows)]
        most_w += 8 * hi_w
        for place in range(8):
            pieces = segments(curve, lo_w, hi_w, 1.0)
            gpus.append(PlanGpu(GpuId(f"GPU-{number:03}-{place}"), number, lo_w, hi_w, pieces, number))
    ceiling_w = int(share * most_w * loss) + 1500 * nodes
    domains = [domain("rack", ceiling_w, fixed_w=500)]
    domains += [domain(f"pdu-{index}", int(ceiling_w / pdus * 1.05), 0, 50, loss=1.02) for index in range(pdus)]
    hosts = [node(f"n{number:03}", (1 + number % pdus, 1.0), fixed_w=1500, loss=loss) for number in range(nodes)]
    return question(domains, hosts, gpus)


def every_answer(request: PlanRequest) -> list[tuple[int, ...]]:
    """Return every answer that keeps all limits and treats alike GPUs alike, for racks small enough to count them."""
    groups = alike_groups(request)
    ranges = [range((group.hi_w - group.lo_w) * len(group.members) + 1) for group in groups]
    answers = (spread(groups, above_w) for above_w in itertools.product(*ranges))
    return [caps_w for caps_w in answers if not violations(request, caps_w)]


@st.composite
def questions(
    draw: st.DrawFn, *, nested: bool = True, lossless: bool = True, widest_w: int = 60, groups: int = 3
) -> PlanRequest:
    """Draw a request.

    Args:
        draw: Hypothesis's.
        nested: Every node on one domain; else on up to three, with shares.
        lossless: Every loss is 1.
        widest_w: The widest segment in watts.
        groups: The most groups of alike GPUs a node.
    """
    losses = st.just(1.0) if lossless else st.sampled_from([1.0, 1.02, 1.064, 1.25]) | st.floats(1.0, 1.4)
    count = draw(st.integers(1, 5))
    domains = [
        domain(
            f"d{number}",
            draw(st.integers(0, 2500)),
            -1 if number == 0 or (not nested and draw(st.booleans())) else draw(st.integers(0, number - 1)),
            draw(st.integers(0, 50)),
            draw(losses),
        )
        for number in range(count)
    ]
    hosts, gpus = [], []
    slopes = st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.0]) | st.floats(0.01, 5.0)
    for number in range(draw(st.integers(1, 4))):
        feeds = _feeds(draw, count, nested=nested)
        ceiling_w = draw(st.none() | st.integers(0, 1500))
        hosts.append(
            node(f"n{number}", *feeds, fixed_w=draw(st.integers(0, 80)), loss=draw(losses), ceiling_w=ceiling_w)
        )
        for index in range(draw(st.integers(0, groups))):
            widths_w = draw(st.lists(st.integers(1, widest_w), max_size=7))
            falling = sorted(draw(st.lists(slopes, min_size=len(widths_w), max_size=len(widths_w))), reverse=True)
            pieces = tuple(zip(widths_w, falling, strict=True))
            lo_w, spare_w = draw(st.integers(0, 120)), draw(st.sampled_from([0, 7]))
            priority = draw(st.sampled_from([10, 50, 90]))
            hi_w = lo_w + sum(widths_w) + spare_w
            key = number * 10 + index
            gpus += [
                gpu(f"g{draw(st.integers(0, 10**6))}-{key}-{place}", number, lo_w, pieces, hi_w, key, priority)
                for place in range(draw(st.integers(1, 4)))
            ]
    return question(domains, hosts, gpus)


def _feeds(draw: st.DrawFn, domains: int, *, nested: bool) -> tuple[tuple[int, float], ...]:
    if nested:
        return ((draw(st.integers(0, domains - 1)), 1.0),)
    chosen = draw(st.lists(st.integers(0, domains - 1), min_size=1, max_size=3, unique=True))
    shares = st.sampled_from([0.3, 0.5, 0.7, 1.0]) | st.floats(0.05, 1.0)
    return tuple((number, draw(shares)) for number in sorted(chosen))


class WaterfillPlanner:
    """The planner's double: the same Protocol without a solver."""

    def plan(self, request: PlanRequest, deadline_s: float) -> Plan:
        """See `core.planning.Planner`."""
        caps_w = waterfill(request)
        return Plan(
            request.revision,
            request.membership,
            request.ceilings_w,
            dict(zip(request.membership, caps_w, strict=True)),
            "waterfill",
            gained_tokens_per_s(request, caps_w),
            0.0,
        )
