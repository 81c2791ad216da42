"""A whole simulated rack in one process: GPUs, servers, node overheads, reboots. Pure; `rack` gives it a clock."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from rackpower_sim.node_layout import GpuState, HistoryEntry, LimitCode, NodeState, ReplicaState
from rackpower_sim.physics import Floats, GpuBank
from rackpower_sim.physics_facts import STEP_S
from rackpower_sim.scenario import Scenario
from rackpower_sim.traces import Mix, Request, Trace, with_burst
from rackpower_sim.workloads import ReplicaBank

OVERHEAD_SHARE: Final = 0.97
OVERHEAD_SWING: Final = 0.02
OVERHEAD_TIME_S: Final = 10.0
"""Fans and processors draw 95 to 99 % of a node's overhead, slowly up and down; assumed, the policy's is the most."""


def arrival_speed(scenario: Scenario, trace: Trace) -> float:
    """Return how many times as fast as traced a trace's requests arrive, so that they ask for what is `offered`."""
    return scenario.load.offered * scenario.uncapped_tokens_per_s() / trace.output_tokens_per_s


def arrivals(scenario: Scenario, trace: Trace | None) -> Iterator[Request]:
    """Return the rack's requests for ever; the same scenario gives the same.

    Args:
        scenario: Its load, seed and capacity.
        trace: The load's trace, already read; None makes requests up.
    """
    if trace is None:
        mix = Mix()
        tokens_per_s = scenario.load.offered * scenario.uncapped_tokens_per_s()
        endless = mix.requests(scenario.seed, tokens_per_s / mix.output_mean)
    else:
        endless = trace.repeated(arrival_speed(scenario, trace))
    return with_burst(endless, scenario.load.burst_s * scenario.uncapped_tokens_per_s())


class Machine:
    """The rack's hardware and servers.

    Args:
        scenario: What it is made of.
        trace: The load's trace, already read, if it has one.
    """

    def __init__(self, scenario: Scenario, trace: Trace | None = None) -> None:
        self.scenario = scenario
        self.bank = GpuBank(scenario.gpu_truths(), scenario.seed)
        replicas = list(scenario.replicas())
        self.replicas = ReplicaBank([gpus for _, gpus in replicas], self.bank.gpus, arrivals(scenario, trace))
        counts = [node.gpu_count for node in scenario.nodes]
        self._gpu_starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
        servers = [sum(1 for node, _ in replicas if node is spec) for spec in scenario.nodes]
        self._replica_starts = np.concatenate(([0], np.cumsum(servers)[:-1]))
        self._overhead_w: Floats = np.array([node.overhead_w for node in scenario.nodes], dtype=np.float64)
        self._loss: Floats = np.array([node.loss for node in scenario.nodes])
        self._overhead_rng = np.random.default_rng([scenario.seed, 3])
        self._overhead_noise: Floats = self._overhead_rng.standard_normal(len(counts))
        self.extra_overhead_w: Floats = np.zeros(len(counts))
        self.boots = [1] * len(counts)
        self._dark_until_s: dict[int, float] = {}
        self._serve(range(len(counts)), on=not scenario.load.wait_for_boot_cap)
        self._load: Floats = np.zeros((1, self.bank.gpus))

    @property
    def steps(self) -> int:
        """Return how many steps were made."""
        return self.bank.steps

    def gpus_of(self, node: int) -> range:
        """Return a node's GPUs, as indices over the rack."""
        first = int(self._gpu_starts[node])
        return range(first, first + self.scenario.nodes[node].gpu_count)

    def is_dark(self, node: int) -> bool:
        """Return whether a node is going through a power cycle."""
        return node in self._dark_until_s

    def reboot(self, node: int, down_s: float) -> None:
        """Take a node through a power cycle; its GPUs come back with default caps, its servers perhaps later."""
        self._dark_until_s[node] = self.bank.time_s + down_s
        self._switch(node, on=False)
        self._serve([node], on=False)
        if down_s <= 0:
            self._power_up(node)

    def start_servers(self, node: int) -> None:
        """Let a node's servers run from now to its next power cycle."""
        if not self.is_dark(node):
            self._serve([node], on=True)

    def step(self) -> tuple[HistoryEntry, ...]:
        """Make one step; return one history entry a node, their times counted from the start."""
        for node in [node for node, until_s in self._dark_until_s.items() if until_s <= self.bank.time_s]:
            self._power_up(node)
        self.replicas.admit(self.bank.time_s + STEP_S)
        self._load = self.replicas.serve(self.bank.begin_step(), STEP_S)
        self.bank.end_step(self._load)
        keep = math.exp(-STEP_S / OVERHEAD_TIME_S)
        fresh = self._overhead_rng.standard_normal(len(self.boots))
        self._overhead_noise = keep * self._overhead_noise + math.sqrt(1 - keep**2) * fresh
        return self._history()

    def overheads_w(self) -> Floats:
        """Return what each node draws beside its GPUs now, at its supplies' output."""
        share = OVERHEAD_SHARE + OVERHEAD_SWING * np.clip(self._overhead_noise, -1.0, 1.0)
        lit = np.array([node not in self._dark_until_s for node in range(len(self.boots))])
        return np.where(lit, self._overhead_w * share + self.extra_overhead_w, 0.0)

    def node_states(self, begin_s: float) -> list[NodeState]:
        """Return each node now; `begin_s` is when the first step began, on the clock that readers use."""
        draws_w = np.add.reduceat(self.bank.draw_w[0], self._gpu_starts)
        overheads_w = self.overheads_w()
        time_s = begin_s + self.bank.time_s
        columns = zip(
            draws_w.tolist(), overheads_w.tolist(), (self._loss * (draws_w + overheads_w)).tolist(), strict=True
        )
        return [
            NodeState(self.steps, time_s, self.boots[node], int(not self.is_dark(node)), draw_w, overhead_w, power_w)
            for node, (draw_w, overhead_w, power_w) in enumerate(columns)
        ]

    def gpu_states(self, results: list[int], applied: list[int]) -> list[GpuState]:
        """Return each GPU now, with how its last write ended and that write's number."""
        bank = self.bank
        limited = bank.natural_w[0] > bank.draw_w[0]
        idle = self._load[0] <= 0
        limit = np.where(limited, LimitCode.POWER, np.where(idle, LimitCode.IDLE, LimitCode.NONE))
        columns = (
            bank.draw_w[0], bank.average_w[0], bank.energy_j[0], bank.natural_w[0], bank.effective_w[0], self._load[0],
            bank.temp_c[0], bank.limited_s[0], bank.requested_w[0], bank.enforced_w[0], limit,
        )  # fmt: skip
        rows = zip(*(column.tolist() for column in columns), results, applied, strict=True)
        return [GpuState(*row) for row in rows]

    def replica_states(self) -> list[list[ReplicaState]]:
        """Return the inference servers of each node now."""
        counts = [ReplicaState(*count) for count in self.replicas.counts()]
        bounds = [*self._replica_starts.tolist(), len(counts)]
        return [counts[begin:end] for begin, end in itertools.pairwise(bounds)]

    def _history(self) -> tuple[HistoryEntry, ...]:
        draws_w = np.add.reduceat(self.bank.draw_w[0], self._gpu_starts)
        caps_w = np.add.reduceat(self.bank.enforced_w[0], self._gpu_starts).tolist()
        power_w = (self._loss * (draws_w + self.overheads_w())).tolist()
        generated = np.add.reduceat(self.replicas.generated[0], self._replica_starts).tolist()
        rows = zip(draws_w.tolist(), power_w, caps_w, generated, strict=True)
        return tuple(HistoryEntry(self.steps, self.bank.time_s, *row) for row in rows)

    def _power_up(self, node: int) -> None:
        del self._dark_until_s[node]
        for gpu in self.gpus_of(node):
            self.bank.reset(gpu)
        self.boots[node] += 1
        self._switch(node, on=True)
        self._serve([node], on=not self.scenario.load.wait_for_boot_cap)

    def _switch(self, node: int, *, on: bool) -> None:
        gpus = self.gpus_of(node)
        self.bank.powered[gpus.start : gpus.stop] = on

    def _serve(self, nodes: Iterable[int], *, on: bool) -> None:
        bounds = [*self._replica_starts.tolist(), len(self.replicas.serving)]
        for node in nodes:
            self.replicas.serving[bounds[node] : bounds[node + 1]] = on
