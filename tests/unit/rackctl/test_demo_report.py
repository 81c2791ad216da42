"""The demo's JSON object and lines."""

from __future__ import annotations

import json

from rackpower_ctl.demo.measuring import Account
from rackpower_ctl.demo.report import Report

REPORT = Report(
    budget_watts=81_000,
    gpus_running=72,
    gpus_at_nameplate=51,
    peak_power_watts=79_999.96,
    over_budget_seconds=0.0,
    tokens_per_second=17_000.04,
    tokens_per_watt=0.212345678,
    best_uniform_cap_tokens_per_second=16_000.0,
    ticks=60,
    decide_ms_p99=1.23456,
    plan_ms_p99=4.5,
)


def test_the_object_has_the_promised_fields_in_order() -> None:
    """Scripts rely on the names."""
    assert json.dumps(REPORT.document()) == (
        '{"budget_watts": 81000, "gpus_running": 72, "gpus_at_nameplate": 51, "peak_power_watts": 80000.0, '
        '"over_budget_seconds": 0.0, "tokens_per_second": 17000.0, "tokens_per_watt": 0.21235, '
        '"best_uniform_cap_tokens_per_second": 16000.0, "ticks": 60, "decide_ms_p99": 1.235, "plan_ms_p99": 4.5}'
    )


def test_people_read_the_gain_over_the_best_single_cap() -> None:
    """And where the budget broke, if it did."""
    lines = "\n".join(REPORT.lines(Account()))
    assert "best uniform cap 16,000 per second: +6.3%" in lines
    broken = Report(**(REPORT.document() | {"over_budget_seconds": 0.15}))  # type: ignore[arg-type]
    assert not broken.held
    text = "\n".join(broken.lines(Account(worst_over_w=120.0, worst_domain="pdu-1")))
    assert "over budget for 0.15 s, worst 120 W over pdu-1" in text
