"""Domain meters into books: believed downward at once, upward slowly (invariant 12)."""

from __future__ import annotations

from dataclasses import replace

from rackpower_common.model.policy import Policy
from rackpower_controller.core.absorbed import Absorbed
from rackpower_controller.core.decision import Event, Severity
from rackpower_controller.core.facts import MeterRead
from rackpower_controller.core.ledger import account
from rackpower_controller.core.rack_index import rack_index
from rackpower_controller.core.reports import METER_FRESH_S, PLAUSIBLE_FACTOR, let_go_w
from rackpower_controller.core.state import MeterBook, RackState


def meter_read(state: RackState, fact: MeterRead, policy: Policy) -> Absorbed:
    """Believe a domain's meter downward at once and upward slowly (invariant 12)."""
    domain = rack_index(policy).domains.get(fact.domain)
    if domain is None or fact.age_s > METER_FRESH_S:
        return Absorbed(state)
    before = state.meters.get(fact.domain, MeterBook(0, fact.at_s))
    books = account(state, policy, fact.at_s).domains[fact.domain]
    without_extra_w = books.load_w - before.extra_w
    most_w = PLAUSIBLE_FACTOR * max(without_extra_w, domain.limit_w)
    if not 0 <= fact.power_w <= most_w:
        message = (
            f"the meter of {fact.domain} reads {fact.power_w} W, more than everything below it can draw: "
            f"ignored, check the meter"
        )
        return Absorbed(state, (), (Event(Severity.WARNING, "meter_implausible", message, domain=fact.domain),))
    excess_w = fact.power_w - without_extra_w
    meter = MeterBook(fact.power_w, fact.at_s, max(0, excess_w, let_go_w(before.extra_w)))
    state = replace(state, meters={**state.meters, fact.domain: meter})
    if fact.power_w <= domain.limit_w:
        return Absorbed(state)
    message = f"the meter of {fact.domain} reads {fact.power_w} W, above its limit of {domain.limit_w} W: lowering caps"
    return Absorbed(state, (), (Event(Severity.ERROR, "meter_above_limit", message, domain=fact.domain),), urgent=True)
