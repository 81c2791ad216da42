"""Prometheus metrics of one agent, read at every scrape; every source tells its own duration and success."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rackpower_agent.devices.worker import DeviceWorker
from rackpower_agent.dialling import Standing
from rackpower_agent.facts import SourceHealth
from rackpower_agent.lease.keeper import LeaseKeeper
from rackpower_agent.reporting import SENSORS_STALE_S, STALE_S
from rackpower_common.clock import Clock
from rackpower_common.model.identity import GpuId

LABELS = ("gpu_uuid", "node", "vendor", "model")


class AgentCollector(Collector):
    """Collects what the agent knows; it changes nothing.

    Args:
        node: The node's name.
        workers: One a GPU.
        keeper: The leases.
        standing: The link.
        sources: The other sources.
        clock: Time.
    """

    def __init__(
        self,
        node: str,
        workers: Mapping[GpuId, DeviceWorker],
        keeper: LeaseKeeper,
        standing: Standing,
        sources: Callable[[], Mapping[str, SourceHealth]],
        clock: Clock,
    ) -> None:
        self._node = node
        self._workers = workers
        self._keeper = keeper
        self._standing = standing
        self._sources = sources
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        yield from self._link()
        yield from self._leases()
        yield from self._readings()
        yield from self._health()

    def _names(self, worker: DeviceWorker) -> list[str]:
        device = worker.device
        return [device.gpu, self._node, device.vendor.value, device.model]

    def _link(self) -> Iterator[Metric]:
        standing = self._standing
        connected = float(standing.connected_since_s is not None)
        yield GaugeMetricFamily("rackpower_agent_connected", "Whether a controller serves this agent.", connected)
        term = self._keeper.highest_term
        yield GaugeMetricFamily("rackpower_agent_term", "Highest term taken, 0 for none.", term.number if term else 0)
        yield CounterMetricFamily("rackpower_agent_reports", "Reports sent.", standing.reports)
        yield CounterMetricFamily("rackpower_agent_connects", "Streams that a controller welcomed.", standing.connects)
        yield CounterMetricFamily("rackpower_agent_stream_ends", "Streams that ended or failed.", standing.failures)
        ready = float(self._keeper.ready())
        yield GaugeMetricFamily("rackpower_agent_ready", "Whether every GPU stands at a safe cap.", ready)

    def _leases(self) -> Iterator[Metric]:
        families = {
            name: GaugeMetricFamily(f"rackpower_agent_gpu_{name}", words, labels=LABELS)
            for name, words in (
                ("requested_cap_watts", "Cap last asked for, read back."),
                ("enforced_cap_watts", "Cap that the driver enforces."),
                ("fallback_cap_watts", "Cap that it falls to when the lease ends."),
                ("lease_remaining_seconds", "Time until the lease ends."),
            )
        }
        overrides = CounterMetricFamily(
            "rackpower_agent_gpu_overrides", "Caps changed by somebody else.", labels=LABELS
        )
        now_s = self._clock.now_s()
        for gpu, worker in self._workers.items():
            holding, names = self._keeper.holding(gpu, now_s), self._names(worker)
            values = (holding.requested_w, holding.enforced_w, holding.fallback_w, holding.lease_remaining_s)
            for family, value in zip(families.values(), values, strict=True):
                if value is not None:
                    family.add_metric(names, value)
            overrides.add_metric(names, self._keeper.state.gpus[gpu].overrides)
        yield from families.values()
        yield overrides

    def _readings(self) -> Iterator[Metric]:
        power = GaugeMetricFamily("rackpower_agent_gpu_power_watts", "Average power.", labels=LABELS)
        energy = CounterMetricFamily("rackpower_agent_gpu_energy_joules", "Energy counter.", labels=LABELS)
        heat = GaugeMetricFamily("rackpower_agent_gpu_core_celsius", "Core temperature.", labels=LABELS)
        now_s = self._clock.now_s()
        for worker in self._workers.values():
            sampled, names = worker.peek(), self._names(worker)
            sample, reading = sampled.sample, sampled.power
            # No value is better than an old one.
            if reading is not None and reading.average_w is not None and now_s - sampled.at_s <= STALE_S:
                power.add_metric(names, reading.average_w)
            if sample is None or now_s - sampled.sample_at_s > SENSORS_STALE_S:
                continue
            if sample.energy_j is not None:
                energy.add_metric(names, sample.energy_j)
            if sample.temperatures.core_c is not None:
                heat.add_metric(names, sample.temperatures.core_c)
        yield power
        yield energy
        yield heat

    def _health(self) -> Iterator[Metric]:
        hung = GaugeMetricFamily("rackpower_agent_gpu_hung", "Whether a driver call has not returned.", labels=LABELS)
        took = GaugeMetricFamily("rackpower_agent_gpu_sample_seconds", "Duration of the last sample.", labels=LABELS)
        failed = CounterMetricFamily("rackpower_agent_gpu_sample_failures", "Samples that failed.", labels=LABELS)
        for worker in self._workers.values():
            sampled, names = worker.peek(), self._names(worker)
            hung.add_metric(names, float(worker.hung))
            took.add_metric(names, sampled.duration_s)
            failed.add_metric(names, sampled.errors)
        yield hung
        yield took
        yield failed
        up = GaugeMetricFamily("rackpower_agent_source_up", "Whether a source answers.", labels=["source"])
        seconds = GaugeMetricFamily("rackpower_agent_source_seconds", "Duration of its last answer.", labels=["source"])
        for name, health in sorted(self._sources().items()):
            up.add_metric([name], float(health.up))
            seconds.add_metric([name], health.duration_s)
        yield up
        yield seconds
