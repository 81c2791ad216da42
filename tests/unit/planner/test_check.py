"""Our own check of a plan: it counts like the ledger and says in words what is wrong."""

from __future__ import annotations

from rackpower_controller.core.check import loads_w, violations
from support.plans import domain, gpu, node, question


def test_loads_round_up_at_every_step() -> None:
    """Node: loss × (caps + fixed), rounded up; domain: the same over what its children round to."""
    domains = [domain("rack", 9_000, fixed_w=10, loss=1.1), domain("pdu", 9_000, 0, fixed_w=7, loss=1.02)]
    request = question(domains, [node("n", (1, 1.0), fixed_w=33, loss=1.064)], [gpu("a"), gpu("b")])
    # 1.064 × 334 = 355.376 → 356; 1.02 × 363 = 370.26 → 371; 1.1 × 381 = 419.1 → 420
    assert loads_w(request, (150, 151)) == (420, 371, 356)


def test_each_feed_carries_its_share() -> None:
    """A node on two feeds counts on each with its share."""
    request = question([domain("A", 900), domain("B", 900)], [node("n", (0, 0.25), (1, 0.75))], [gpu("a")])
    assert loads_w(request, (200,)) == (50, 150, 200)


def test_a_sound_answer_has_no_violation() -> None:
    """Exactly at the ceiling is allowed."""
    request = question([domain("rack", 350)], [node("n", ceiling_w=350)], [gpu("a"), gpu("b")])
    assert violations(request, (150, 200)) == []


def test_a_watt_over_a_ceiling_is_told_with_the_domain_and_both_figures() -> None:
    """The operator reads which limit and by how much."""
    request = question([domain("rack", 350)], [node("n")], [gpu("a"), gpu("b")])
    assert violations(request, (151, 200)) == ["rack at 351 W, above its ceiling of 350 W"]


def test_a_nodes_ceiling_is_checked() -> None:
    """A node is a limit like any other."""
    request = question([domain("rack", 900)], [node("n", ceiling_w=300)], [gpu("a"), gpu("b")])
    assert violations(request, (151, 150)) == ["n at 301 W, above its ceiling of 300 W"]


def test_a_cap_outside_its_range_is_told() -> None:
    """Neither below the minimum nor above the highest grant."""
    request = question([domain("rack", 900)], [node("n")], [gpu("a"), gpu("b")])
    assert violations(request, (99, 301)) == ["a at 99 W, outside 100 to 300 W", "b at 301 W, outside 100 to 300 W"]


def test_an_answer_of_another_length_is_no_answer() -> None:
    """A cap for each GPU, no more, no fewer."""
    request = question([domain("rack", 900)], [node("n")], [gpu("a"), gpu("b")])
    assert violations(request, (100,)) == ["1 caps for 2 GPUs"]


def test_a_domain_that_the_minima_do_not_fit_excuses_minima_only() -> None:
    """Minima are allowed there, a watt more is not; the rest of the rack is judged as ever."""
    domains = [domain("rack", 900), domain("low", 150, 0), domain("fine", 900, 0)]
    nodes = [node("a", (1, 1.0)), node("b", (2, 1.0))]
    request = question(domains, nodes, [gpu("a1", 0), gpu("a2", 0), gpu("b", 1)])
    assert violations(request, (100, 100, 300)) == []
    assert violations(request, (101, 100, 300)) == [
        "low does not fit its minima, and yet GPUs below it stand above theirs"
    ]
