"""A solver's answer counts only when its status, its own figures and our check agree."""

from __future__ import annotations

from rackpower_controller.planner.accept import refusal
from rackpower_controller.planner.flow import SolverAnswer
from support.plans import domain, gpu, node, question

REQUEST = question([domain("rack", 350)], [node("n")], [gpu("a"), gpu("b")])
SOUND = SolverAnswer((100, 50), proven=True, solved=True, unique=True)


def test_an_answer_that_all_three_agree_on_counts() -> None:
    """Nothing to refuse."""
    assert refusal(REQUEST, SOUND, (200, 150)) == ""


def test_an_answer_without_proof_is_refused_with_the_solvers_words() -> None:
    """Sound figures do not help where the status says otherwise."""
    late = SolverAnswer((100, 50), proven=False, solved=True, unique=True, words="the solver says that it is late")
    assert refusal(REQUEST, late, (200, 150)) == "the solver says that it is late"


def test_figures_that_miss_their_own_equations_are_refused() -> None:
    """An optimal status over figures that do not hold is no answer."""
    off = SolverAnswer((100, 50), proven=True, solved=False, unique=True)
    assert refusal(REQUEST, off, (200, 150)) == "the solver's figures do not hold"


def test_an_answer_over_a_ceiling_is_refused_though_the_solver_is_sure() -> None:
    """Our own check has the last word, and says where."""
    words = refusal(REQUEST, SOUND, (200, 151))
    assert words == "the solver's answer fails our check: rack at 351 W, above its ceiling of 350 W"


def test_the_first_of_several_faults_is_told_and_the_others_are_counted() -> None:
    """One line for people."""
    assert refusal(REQUEST, SOUND, (99, 999)).endswith("a at 99 W, outside 100 to 300 W and 2 more")


def test_an_answer_for_other_gpus_is_refused() -> None:
    """No caps could be made of it."""
    assert refusal(REQUEST, SOUND, ()) == "the solver's answer fails our check: 0 caps for 2 GPUs"
