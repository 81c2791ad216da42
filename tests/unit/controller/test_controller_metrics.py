"""What Prometheus reads of a controller: names as in the golden file, values as in the books."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rackpower_common.clock import BootClock
from rackpower_controller.desk import ControllerDesk
from rackpower_controller.inbox import Inbox
from rackpower_controller.metrics import ControllerCollector
from rackpower_controller.policy_desk import PolicyDesk
from rackpower_controller.policy_source import PolicySource
from rackpower_controller.store.base import StoreError
from support.golden import GOLDEN, check_golden
from support.shell import GPUS, Shell

pytestmark = pytest.mark.anyio


def desk_of(shell: Shell) -> ControllerDesk:
    """Return the desk of a shell; to be made before its ticks."""
    policies = PolicyDesk(PolicySource([], None), shell.store, Inbox(), BootClock(), shell.reign.lasts)
    return ControllerDesk(shell.controller, policies, shell.events, shell.planner, shell.reign, shell.clock, "0.1.0")


def scraped(shell: Shell, desk: ControllerDesk) -> str:
    """Return what Prometheus reads."""
    registry = CollectorRegistry()
    registry.register(ControllerCollector(desk.status, shell.controller, shell.events, shell.planner))
    return generate_latest(registry).decode()


def value(text: str, name: str, **labels: str) -> float:
    """Return one sample's value."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return float(sample.value)
    raise AssertionError(f"no {name} with {labels} in\n{text}")


async def test_metrics_have_the_names_that_dashboards_rely_on() -> None:
    """Every name, type and help text is in the golden file."""
    shell = Shell()
    desk = desk_of(shell)
    await shell.settled()
    text = scraped(shell, desk)
    check_golden(
        GOLDEN / "controller" / "metrics.txt",
        "".join(line + "\n" for line in text.splitlines() if line.startswith("#")),
    )


async def test_metrics_tell_what_the_books_say() -> None:
    """Limits, ledger, what was sent, who is seen how, and the term."""
    shell = Shell()
    desk = desk_of(shell)
    await shell.settled()
    shell.plan(500)
    for _ in range(2):
        await shell.tick()
    text = scraped(shell, desk)
    assert value(text, "rackpower_domain_limit_watts", domain="rack-1") == 60_000
    ledger_w = value(text, "rackpower_domain_ledger_watts", domain="rack-1")
    assert f"{ledger_w:.0f} of" in shell.ticks[-1].decision.sentence
    assert value(text, "rackpower_domain_deficit_watts", domain="rack-1") == 0
    assert value(text, "rackpower_nodes", state="live") == 1
    assert value(text, "rackpower_nodes", state="unheard") == 3
    assert value(text, "rackpower_term") == 1
    assert value(text, "rackpower_store_up") == 1
    assert value(text, "rackpower_ticks_total") == len(shell.ticks)
    assert value(text, "rackpower_grants_total", kind="raise") == GPUS
    assert value(text, "rackpower_renewals_total") > 0
    assert value(text, "rackpower_events_total", severity="info", reason="term_taken") == 1
    assert value(text, "rackpower_tick_part_duration_seconds_count", part="decide") == len(shell.ticks)
    assert value(text, "rackpower_tick_part_duration_seconds", part="record", quantile="0.99") > 0
    assert value(text, "rackpower_policy_info", revision=shell.policy.revision) == 1
    assert value(text, "rackpower_gpu_cap_watts", gpu_uuid="GPU-gpu-01-0", node="gpu-01", vendor="nvidia") == 500


async def test_a_store_that_is_down_and_a_missing_measurement_are_visible() -> None:
    """Unknown is absent, never 0."""
    shell = Shell()
    desk = desk_of(shell)
    await shell.tick()
    assert value(scraped(shell, desk), "rackpower_term") == 0
    await shell.settled()
    shell.store.fails[""] = StoreError("the store is down")
    await shell.lead()
    await shell.tick()
    text = scraped(shell, desk)
    assert value(text, "rackpower_store_up") == 0
    assert 'rackpower_domain_measured_watts{domain="rack-1"}' not in text


async def test_a_scrape_before_the_first_tick_answers() -> None:
    """Prometheus may come at any time."""
    shell = Shell()
    assert value(scraped(shell, desk_of(shell)), "rackpower_ticks_total") == 0


async def test_the_desk_shows_each_tick_and_only_the_newest() -> None:
    """A watcher that reads slowly misses ticks, never the newest; before the first tick there is a status too."""
    shell = Shell()
    desk = desk_of(shell)
    assert desk.status().sentence.startswith("Starting")
    watching = desk.watch()
    assert (await anext(watching)).sentence.startswith("Starting")
    for _ in range(3):
        await shell.tick()
    newest = await anext(watching)
    assert newest.decision is shell.ticks[-1].decision
    assert newest.policy is shell.policy
    assert desk.status() is newest
    await watching.aclose()  # type: ignore[attr-defined]
