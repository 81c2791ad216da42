"""The water-fill over random trees: every limit holds, no watt is left, alike GPUs get alike."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rackpower_common.model.policy import Curve
from rackpower_controller.core.check import loads_w, violations
from rackpower_controller.core.curves import rate_tokens_per_s, segments
from rackpower_controller.core.planning import PlanRequest
from rackpower_controller.core.power_tree import PowerTree
from rackpower_controller.core.waterfill import Pool, waterfill
from support.plans import questions

NESTED = questions()
LOSSY = questions(lossless=False)
CROSSING = questions(nested=False, lossless=False)
ANY = NESTED | LOSSY | CROSSING


def _end_w(request: PlanRequest, place: int, *, by_priority: bool) -> int:
    """Return the highest cap that the water-fill may want for a GPU."""
    one = request.gpus[place]
    return one.hi_w if by_priority else one.lo_w + sum(piece.width_w for piece in one.segments)


def _alike(request: PlanRequest, caps_w: tuple[int, ...]) -> bool:
    seen: dict[int, list[int]] = {}
    for one, cap_w in zip(request.gpus, caps_w, strict=True):
        seen.setdefault(one.alike, []).append(cap_w)
    return all(max(caps) - min(caps) <= 1 for caps in seen.values())


@given(ANY, st.booleans())
def test_every_limit_holds(request: PlanRequest, by_priority: bool) -> None:
    """Our own check finds nothing, minima that do not fit included."""
    assert violations(request, waterfill(request, by_priority=by_priority)) == []


@given(ANY, st.booleans())
def test_no_gpu_could_take_another_watt(request: PlanRequest, by_priority: bool) -> None:
    """A cap below its wish stands there because one more watt would break a limit."""
    caps_w = waterfill(request, by_priority=by_priority)
    for place, cap_w in enumerate(caps_w):
        if cap_w < _end_w(request, place, by_priority=by_priority):
            more = (*caps_w[:place], cap_w + 1, *caps_w[place + 1 :])
            assert violations(request, more)


@given(ANY, st.booleans())
def test_alike_gpus_stand_a_watt_apart_at_most(request: PlanRequest, by_priority: bool) -> None:
    """GPUs of one node that differ in nothing but their UUID."""
    assert _alike(request, waterfill(request, by_priority=by_priority))


@given(ANY)
def test_no_cap_passes_the_last_watt_that_brings_something(request: PlanRequest) -> None:
    """What brings nothing is not wanted."""
    for place, cap_w in enumerate(waterfill(request)):
        assert cap_w <= _end_w(request, place, by_priority=False)


@given(NESTED, st.integers(1, 200))
def test_more_limit_never_brings_less(request: PlanRequest, more_w: int) -> None:
    """Raising every limit lowers no total."""
    roomier = replace(
        request,
        domains=tuple(replace(one, ceiling_w=one.ceiling_w + more_w) for one in request.domains),
    )
    assert sum(waterfill(roomier)) >= sum(waterfill(request))


@given(ANY, st.data())
def test_the_order_of_gpus_does_not_matter(request: PlanRequest, data: st.DataObject) -> None:
    """Caps follow UUIDs, not places."""
    shuffled = replace(request, gpus=tuple(data.draw(st.permutations(request.gpus))))
    expected = dict(zip(request.membership, waterfill(request), strict=True))
    assert dict(zip(shuffled.membership, waterfill(shuffled), strict=True)) == expected


@given(ANY, st.data())
def test_arrays_sum_up_like_the_check(request: PlanRequest, data: st.DataObject) -> None:
    """The water-fill's tree and our own check find the same limits passed, for any caps."""
    caps_w = tuple(data.draw(st.integers(one.lo_w, one.hi_w)) for one in request.gpus)
    pool = Pool.of(request)
    sums_w = pool.minima_w.copy()
    for one, cap_w in zip(request.gpus, caps_w, strict=True):
        sums_w[one.node] += cap_w - one.lo_w
    loads = loads_w(request, caps_w)
    domains, nodes = loads[: len(request.domains)], loads[len(request.domains) :]
    told = [
        *(
            node.ceiling_w is not None and load_w > node.ceiling_w
            for node, load_w in zip(request.nodes, nodes, strict=True)
        ),
        *(load_w > one.ceiling_w for one, load_w in zip(request.domains, domains, strict=True)),
    ]
    assert PowerTree.of(request).over(sums_w[:, None])[:, 0].tolist() == told


@given(
    st.floats(150.0, 1200.0),
    st.floats(0.0, 6.0),
    st.floats(1.0, 4.0),
    st.floats(0.0, 0.99),
    st.integers(0, 1300),
    st.integers(0, 1300),
)
def test_segments_are_concave_and_never_promise_more_than_the_curve(
    natural_w: float, b: float, c: float, lowest: float, lo_w: int, width_w: int
) -> None:
    """Slopes fall, widths stay within the range, and the last corner is worth no more than the curve says."""
    curve = Curve(natural_w, b, c, 300.0, natural_w * lowest)
    pieces = segments(curve, lo_w, lo_w + width_w, 1.0)
    assert len(pieces) <= 7
    assert all(left.slope >= right.slope > 0.0 for left, right in pairwise(pieces))
    assert sum(piece.width_w for piece in pieces) <= width_w
    worth = rate_tokens_per_s(curve, lo_w) + sum(piece.slope * piece.width_w for piece in pieces)
    assert worth <= 300.0 * (1 + 1e-9)
    at_w = lo_w + sum(piece.width_w for piece in pieces)
    if pieces and lo_w >= curve.lowest_w:
        assert worth <= rate_tokens_per_s(curve, at_w) * (1 + 1e-9) + 1e-9
