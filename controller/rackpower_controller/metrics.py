"""Prometheus metrics of the controller, read from the last tick at every scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rackpower_controller.core.ledger import account
from rackpower_controller.core.state import NodeState, RackState
from rackpower_controller.durations import Durations
from rackpower_controller.events_log import EventLog
from rackpower_controller.operator_api.base import StatusSource
from rackpower_controller.planner_runner import PlannerRunner

PERCENTILES: Final = (50.0, 99.0)


class ControllerCollector(Collector):
    """Collects from a status source.

    Args:
        source: Returns the newest one.
        events: For counts.
        planner: For failures.
        recorded: How long records took.
    """

    def __init__(
        self, source: Callable[[], StatusSource], events: EventLog, planner: PlannerRunner, recorded: Durations
    ) -> None:
        self._source = source
        self._events = events
        self._planner = planner
        self._recorded = recorded

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        source = self._source()
        yield from _standing(source)
        yield from _durations(source, self._recorded)
        yield from self._counts(source)
        if source.policy is not None:
            yield from _domains(source)
        yield from _gpus(source.state)

    def _counts(self, source: StatusSource) -> Iterator[Metric]:
        yield CounterMetricFamily("rackpower_ticks", "Decisions made.", source.state.tick)
        events = CounterMetricFamily(
            "rackpower_events", "Events by severity and reason.", labels=["severity", "reason"]
        )
        for (severity, reason), count in sorted(self._events.counts.items()):
            events.add_metric([severity, reason], count)
        yield events
        yield CounterMetricFamily("rackpower_events_dropped", "Events that the store never got.", self._events.dropped)
        yield CounterMetricFamily("rackpower_plan_failures", "Plans that failed.", self._planner.failures)


def _standing(source: StatusSource) -> Iterator[Metric]:
    term = source.state.term
    yield GaugeMetricFamily("rackpower_term", "Term of this controller, 0 without one.", term.number if term else 0)
    yield GaugeMetricFamily("rackpower_store_up", "Whether the store takes records.", float(not source.store_detail))
    nodes = GaugeMetricFamily("rackpower_nodes", "Nodes by how they are seen.", labels=["state"])
    if source.policy is not None:
        books = account(source.state, source.policy, source.now_s)
        for state in NodeState:
            nodes.add_metric([state.value], sum(node.state is state for node in books.nodes.values()))
    yield nodes


def _durations(source: StatusSource, recorded: Durations) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "rackpower_duration_seconds", "How long a part of a tick takes.", labels=["part", "quantile"]
    )
    for part, durations in (("decide", source.decide), ("plan", source.plans), ("record", recorded)):
        for percent in PERCENTILES:
            family.add_metric([part, f"{percent / 100:g}"], durations.percentile_s(percent))
    yield family


def _domains(source: StatusSource) -> Iterator[Metric]:
    assert source.policy is not None  # noqa: S101 - the caller looked
    families = {
        name: GaugeMetricFamily(f"rackpower_domain_{name}_watts", words, labels=["domain"])
        for name, words in (
            ("limit", "What a domain may draw."),
            ("headroom", "Kept free below the limit."),
            ("ledger", "The most that everything below a domain may draw."),
            ("deficit", "By how much the ledger stands above limit less headroom."),
        )
    }
    books = account(source.state, source.policy, source.now_s)
    for domain in source.policy.domains:
        ledger = books.domains[domain.name]
        families["limit"].add_metric([domain.name], domain.limit_w)
        families["headroom"].add_metric([domain.name], domain.headroom_w)
        families["ledger"].add_metric([domain.name], ledger.load_w)
        families["deficit"].add_metric([domain.name], ledger.deficit_w)
    yield from families.values()


def _gpus(state: RackState) -> Iterator[Metric]:
    labels = ["gpu_uuid", "node", "vendor", "model"]
    cap = GaugeMetricFamily("rackpower_gpu_cap_watts", "Cap read back.", labels=labels)
    power = GaugeMetricFamily("rackpower_gpu_power_watts", "Average power.", labels=labels)
    for gpu, book in sorted(state.gpus.items()):
        names = [gpu, book.node, book.device.vendor.value, book.device.model]
        if book.enforced_w is not None:
            cap.add_metric(names, book.enforced_w)
        if book.last is not None and book.last.power.average_w is not None:
            power.add_metric(names, book.last.power.average_w)
    yield cap
    yield power
