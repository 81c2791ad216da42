"""Whether a solver's answer counts: its status, its own figures and our integer check must all agree."""

from __future__ import annotations

from rackpower_controller.core.check import violations
from rackpower_controller.core.planning import PlanRequest
from rackpower_controller.planner.flow import SolverAnswer


def refusal(request: PlanRequest, answer: SolverAnswer, caps_w: tuple[int, ...]) -> str:
    """Return why an answer does not count, in words; empty when it does.

    Args:
        request: The question.
        answer: What the solver said.
        caps_w: The whole watts made of it, a cap for each GPU of the request; empty where none could be made.
    """
    if not answer.proven:
        return answer.words or "the solver proved nothing"
    if not answer.solved:
        return answer.words or "the solver's figures do not hold"
    wrong = violations(request, caps_w)
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        return f"the solver's answer fails our check: {wrong[0]}{more}"
    return ""
