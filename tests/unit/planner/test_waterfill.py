"""The water-fill on racks small enough to see the right answer, or to count every answer."""

from __future__ import annotations

import random

import pytest

from rackpower_controller.core.check import violations
from rackpower_controller.core.planning import PlanRequest
from rackpower_controller.core.waterfill import waterfill
from rackpower_controller.planner.objective import gained_tokens_per_s
from support.plans import domain, every_answer, gpu, mixed_rack, node, question


def test_everything_gets_its_wish_where_it_fits() -> None:
    """Without a tight limit every cap is the end of its last segment, not the highest cap."""
    request = question([domain("rack", 10_000)], [node("n")], [gpu("a", hi_w=500), gpu("b", hi_w=900)])
    assert waterfill(request) == (300, 300)


def test_watts_go_where_they_bring_most() -> None:
    """The steep segments of all GPUs come before the first flat one."""
    gpus = [gpu("a", pieces=[(100, 3.0), (100, 0.5)]), gpu("b", pieces=[(50, 2.0), (100, 1.0)])]
    assert waterfill(question([domain("rack", 370)], [node("n")], gpus)) == (200, 170)


def test_the_limit_of_a_branch_leaves_its_watts_to_the_others() -> None:
    """A full PDU takes no more, the rest of the rack does."""
    domains = [domain("rack", 700), domain("left", 250, 0), domain("right", 900, 0)]
    request = question(domains, [node("a", (1, 1.0)), node("b", (2, 1.0))], [gpu("a", 0), gpu("b", 1)])
    assert waterfill(request) == (250, 300)


def test_a_nodes_own_ceiling_holds() -> None:
    """The node's load is bounded as a domain's is, fixed watts included."""
    request = question([domain("rack", 9_000)], [node("n", fixed_w=40, ceiling_w=300)], [gpu("a"), gpu("b")])
    assert sum(waterfill(request)) == 260


def test_below_a_domain_that_the_minima_do_not_fit_all_stand_at_their_minimum() -> None:
    """Nobody gains from a limit that cannot be met; the others go on."""
    domains = [domain("rack", 900), domain("low", 150, 0), domain("fine", 900, 0)]
    nodes = [node("a", (1, 1.0)), node("b", (2, 1.0))]
    request = question(domains, nodes, [gpu("a1", 0), gpu("a2", 0), gpu("b", 1)])
    assert waterfill(request) == (100, 100, 300)


def test_alike_gpus_are_a_watt_apart_at_most_and_the_first_by_uuid_has_it() -> None:
    """What cannot be shared evenly goes to the first by UUID."""
    gpus = [gpu(name, alike=1) for name in ("c", "a", "b")]
    assert waterfill(question([domain("rack", 500)], [node("n")], gpus)) == (167, 167, 166)


def test_equal_nodes_rise_together() -> None:
    """Where two nodes gain the same, neither is served first."""
    nodes = [node("n1"), node("n2")]
    gpus = [gpu("a", 0), gpu("b", 0, alike=2), gpu("c", 1), gpu("d", 1, alike=2)]
    assert waterfill(question([domain("rack", 600)], nodes, gpus)) == (150, 150, 150, 150)


def test_a_watt_behind_a_lossy_supply_is_dearer() -> None:
    """Equal slopes, one node with half the losses: it is served first."""
    nodes = [node("lossy", loss=1.5), node("good", loss=1.0)]
    request = question([domain("rack", 350)], nodes, [gpu("a", 0), gpu("b", 1)])
    assert waterfill(request) == (100, 200)


def test_feeds_count_by_their_shares() -> None:
    """Half of the node's load on each feed: the weaker feed decides."""
    domains = [domain("A", 120), domain("B", 500)]
    request = question(domains, [node("n", (0, 0.5), (1, 0.5), fixed_w=20)], [gpu("a")])
    assert waterfill(request) == (220,)


def test_rounding_hides_no_watt() -> None:
    """With losses the last watts still find a place: nobody could take one more."""
    request = mixed_rack(nodes=5)
    caps_w = waterfill(request)
    for place, one in enumerate(request.gpus):
        if caps_w[place] < one.lo_w + sum(piece.width_w for piece in one.segments):
            more = (*caps_w[:place], caps_w[place] + 1, *caps_w[place + 1 :])
            assert violations(request, more)


def test_a_request_without_gpus_has_an_empty_answer() -> None:
    """A rack that nobody reported yet."""
    assert waterfill(question([domain("rack", 100)], [node("n")], [])) == ()


def test_gpus_without_segments_stay_at_their_minimum() -> None:
    """A watt whose worth nobody knows is not wanted."""
    request = question([domain("rack", 900)], [node("n")], [gpu("a", pieces=[], hi_w=300)])
    assert waterfill(request) == (100,)


def _small(seed: int) -> PlanRequest:
    """Draw a rack of three groups whose answers can all be counted; slopes are all different."""
    rng = random.Random(seed)
    slopes = rng.sample(range(1, 40), 6)
    domains = [domain("rack", rng.randint(20, 70)), domain("left", rng.randint(10, 50), 0)]
    nodes = [node("n1", (1, 1.0), ceiling_w=rng.choice([None, 22])), node("n2", (rng.randint(0, 1), 1.0), fixed_w=3)]
    gpus = []
    for index, name in enumerate("abc"):
        falling = sorted(slopes[2 * index : 2 * index + 2], reverse=True)
        pieces = [(rng.randint(1, 4), float(slope)) for slope in falling]
        lo_w, on, priority = rng.randint(2, 6), rng.randint(0, 1), rng.choice([10, 50, 90])
        hi_w = lo_w + sum(width_w for width_w, _slope in pieces) + rng.randint(0, 2)
        members = rng.randint(1, 2)
        gpus += [gpu(f"{name}{place}", on, lo_w, pieces, hi_w, index, priority) for place in range(members)]
    return question(domains, nodes, gpus)


@pytest.mark.parametrize("seed", range(40))
def test_no_other_answer_is_worth_more(seed: int) -> None:
    """Counted over every answer that keeps all limits, the water-fill's is the best."""
    request = _small(seed)
    caps_w = waterfill(request)
    assert violations(request, caps_w) == []
    best = max(gained_tokens_per_s(request, other) for other in every_answer(request))
    assert gained_tokens_per_s(request, caps_w) == best


def _by_rank(request: PlanRequest, caps_w: tuple[int, ...]) -> list[tuple[float, int]]:
    """Return what each priority has, the most important first: tokens, then watts."""
    ranks = sorted({one.priority for one in request.gpus}, reverse=True)
    gains = []
    for rank in ranks:
        chosen = [place for place, one in enumerate(request.gpus) if one.priority == rank]
        part = question(request.domains, request.nodes, [request.gpus[place] for place in chosen])
        watts = [caps_w[place] for place in chosen]
        gains.append((gained_tokens_per_s(part, watts), sum(watts)))
    return gains


@pytest.mark.parametrize("seed", range(40))
def test_by_priority_no_other_answer_gives_the_important_more(seed: int) -> None:
    """Counted over every answer: first the most important GPUs' tokens and watts, then the next ones'."""
    request = _small(seed)
    caps_w = waterfill(request, by_priority=True)
    assert violations(request, caps_w) == []
    assert _by_rank(request, caps_w) == max(_by_rank(request, other) for other in every_answer(request))


def test_by_priority_what_stands_stays_where_no_limit_needs_it() -> None:
    """Shedding lowers nothing beyond the need, not even watts that bring nothing."""
    request = question([domain("rack", 900)], [node("n")], [gpu("a", hi_w=450), gpu("b", pieces=[], hi_w=400)])
    assert waterfill(request, by_priority=True) == (450, 400)


def test_by_priority_the_least_important_gives_first() -> None:
    """The important GPU keeps its cap until the others stand at their minimum."""
    nodes = [node("n1"), node("n2")]
    gpus = [gpu("a", 0, hi_w=300, priority=90), gpu("b", 1, hi_w=300, priority=10)]
    assert waterfill(question([domain("rack", 450)], nodes, gpus), by_priority=True) == (300, 150)
    assert waterfill(question([domain("rack", 350)], nodes, gpus), by_priority=True) == (250, 100)


def test_by_priority_equals_give_what_costs_least() -> None:
    """Within one priority the watts that bring nothing go before those that bring tokens."""
    request = question([domain("rack", 650)], [node("n")], [gpu("a", hi_w=400), gpu("b", alike=2)])
    assert waterfill(request, by_priority=True) == (350, 300)
