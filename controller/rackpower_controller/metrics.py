"""Prometheus metrics of the controller, read from the last tick at every scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rackpower_controller.controller import Controller
from rackpower_controller.core.exposure import REPORTS_UNTIL_SILENT
from rackpower_controller.core.ledger import Account, account
from rackpower_controller.core.state import NodeState, RackState
from rackpower_controller.durations import Durations
from rackpower_controller.events_log import EventLog
from rackpower_controller.operator_api.base import StatusSource
from rackpower_controller.operator_api.measured import measured
from rackpower_controller.planner_runner import PlannerRunner

PERCENTILES: Final = (50.0, 99.0)


class ControllerCollector(Collector):
    """Collects from a status source; called from the thread of the scrape, changes nothing.

    Args:
        source: Returns the newest one.
        controller: For what was sent, and how long records took.
        events: For counts.
        planner: For failures.
    """

    def __init__(
        self, source: Callable[[], StatusSource], controller: Controller, events: EventLog, planner: PlannerRunner
    ) -> None:
        self._source = source
        self._controller = controller
        self._events = events
        self._planner = planner

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        source = self._source()
        yield from _standing(source)
        yield _durations(("decide", source.decide), ("plan", source.plans), ("record", self._controller.recorded))
        yield from self._counts(source)
        if source.policy is not None:
            books = account(source.state, source.policy, source.now_s)
            yield _nodes(books)
            yield from _domains(source, books)
        yield from _gpus(source.state)

    def _counts(self, source: StatusSource) -> Iterator[Metric]:
        yield CounterMetricFamily("rackpower_ticks", "Decisions made.", source.state.tick)
        sent = self._controller.sent
        grants = CounterMetricFamily("rackpower_grants", "Grants sent, one for each GPU.", labels=["kind"])
        grants.add_metric(["lower"], sent.lowers)
        grants.add_metric(["raise"], sent.raises)
        yield grants
        yield CounterMetricFamily("rackpower_renewals", "Renewals sent, one for each GPU.", sent.renewals)
        events = CounterMetricFamily(
            "rackpower_events", "Events by severity and reason.", labels=["severity", "reason"]
        )
        for (severity, reason), count in sorted(list(self._events.counts.items())):  # noqa: C414 - copied in one go
            events.add_metric([severity, reason], count)
        yield events
        yield CounterMetricFamily("rackpower_events_dropped", "Events that the store never got.", self._events.dropped)
        yield CounterMetricFamily("rackpower_plan_failures", "Plans that failed.", self._planner.failures)


def _standing(source: StatusSource) -> Iterator[Metric]:
    term = source.state.term
    yield GaugeMetricFamily("rackpower_term", "Term of this controller, 0 without one.", term.number if term else 0)
    yield GaugeMetricFamily("rackpower_store_up", "Whether the store takes records.", float(not source.store_detail))
    policy = GaugeMetricFamily("rackpower_policy_info", "The policy in force.", labels=["revision"])
    if source.policy is not None:
        policy.add_metric([source.policy.revision], 1)
    yield policy


def _nodes(books: Account) -> Metric:
    nodes = GaugeMetricFamily("rackpower_nodes", "Nodes by how they are seen.", labels=["state"])
    for state in NodeState:
        nodes.add_metric([state.value], sum(node.state is state for node in books.nodes.values()))
    return nodes


def _durations(*parts: tuple[str, Durations]) -> Metric:
    name = "rackpower_tick_part_duration_seconds"
    family = Metric(name, "How long a part of a tick takes: decide, plan (beside it), record.", "summary")
    for part, durations in parts:
        for percent in PERCENTILES:
            labels = {"part": part, "quantile": f"{percent / 100:g}"}
            family.add_sample(name, labels, durations.percentile_s(percent))
        family.add_sample(f"{name}_count", {"part": part}, durations.count)
        family.add_sample(f"{name}_sum", {"part": part}, durations.total_s)
    return family


def _domains(source: StatusSource, books: Account) -> Iterator[Metric]:
    assert source.policy is not None  # noqa: S101 - the caller looked
    families = {
        name: GaugeMetricFamily(f"rackpower_domain_{name}_watts", words, labels=["domain"])
        for name, words in (
            ("limit", "What a domain may draw."),
            ("headroom", "Kept free below the limit."),
            ("ledger", "The most that everything below a domain may draw."),
            ("measured", "What a domain draws, by meters and reports; absent where unknown."),
            ("deficit", "By how much the ledger stands above limit less headroom."),
        )
    }
    silent_after_s = REPORTS_UNTIL_SILENT * source.policy.timing.report_period_s
    drawn = measured(source.state, books, source.now_s, silent_after_s)
    for domain in source.policy.domains:
        ledger, drawn_w = books.domains[domain.name], drawn.domains_w[domain.name]
        families["limit"].add_metric([domain.name], domain.limit_w)
        families["headroom"].add_metric([domain.name], domain.headroom_w)
        families["ledger"].add_metric([domain.name], ledger.load_w)
        families["deficit"].add_metric([domain.name], ledger.deficit_w)
        if drawn_w is not None:
            families["measured"].add_metric([domain.name], drawn_w)
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
