"""Draw and tokens of the whole rack, every step of the simulated hardware (20 a second), read from its shared state.

Nothing that agents or the controller report comes in here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rackpower_ctl.demo.limits import Limits
from rackpower_sim.node_layout import HistoryEntry
from rackpower_sim.physics_facts import STEP_S
from rackpower_sim.scenario import Scenario
from rackpower_sim.shared_state import NodeFile, node_path

WATT_NOISE: Final = 1e-6
"""Sums of floats may be off by so much."""


@dataclass(frozen=True, slots=True)
class Window:
    """What happened between two moments: seconds from the hardware's start, tokens, joules at the roots."""

    begin_s: float
    end_s: float
    tokens: float
    energy_j: float

    @property
    def length_s(self) -> float:
        """Return how long it is."""
        return self.end_s - self.begin_s

    @property
    def tokens_per_s(self) -> float:
        """Return tokens generated per second, 0 for an empty window."""
        return self.tokens / self.length_s if self.length_s > 0 else 0.0

    @property
    def tokens_per_j(self) -> float:
        """Return tokens per joule, which is tokens per second and watt."""
        return self.tokens / self.energy_j if self.energy_j > 0 else 0.0


@dataclass(slots=True)
class Account:
    """Everything measured since the hardware began; watts at the roots' inputs.

    `peak_caps_w` and `over_caps_s` count from the window's begin, since hardware comes up at its default caps: what
    would be drawn if every GPU drew the cap that its hardware enforces and every node its whole overhead, held
    against limit − headroom. That is a stricter judge than the draw: it needs no luck with the load.
    """

    steps: int = 0
    missed_steps: int = 0
    power_w: float = 0.0
    peak_w: float = 0.0
    over_budget_s: float = 0.0
    worst_over_w: float = 0.0
    worst_domain: str = ""
    tokens: float = 0.0
    energy_j: float = 0.0
    peak_caps_w: float = 0.0
    over_caps_s: float = 0.0

    @property
    def time_s(self) -> float:
        """Return seconds since the hardware's first step."""
        return self.steps * STEP_S


class Meter:
    """Follows a simulated rack; call `read` more often than the history is long (25 s).

    Args:
        scenario: What it is made of.
        folder: Where its nodes' files are.
        limits: What draws are held against.
    """

    def __init__(self, scenario: Scenario, folder: Path, limits: Limits) -> None:
        self._scenario = scenario
        self._limits = limits
        self._files = [NodeFile.open(node_path(folder, node.name)) for node in scenario.nodes]
        self._pending: list[deque[HistoryEntry]] = [deque() for _ in self._files]
        self._last_step = [0] * len(self._files)
        self._begin: Account | None = None
        self.account = Account()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()

    def read(self) -> Account:
        """Take in every step made since the last call, in order, and return the account."""
        for index, file in enumerate(self._files):
            entries = file.history(self._last_step[index])
            if entries:
                self._pending[index].extend(entries)
                self._last_step[index] = entries[-1].step
        while all(self._pending):
            step = max(pending[0].step for pending in self._pending)
            for pending in self._pending:
                while pending and pending[0].step < step:
                    pending.popleft()
            if all(pending and pending[0].step == step for pending in self._pending):
                self._count([pending.popleft() for pending in self._pending])
        return self.account

    def begin(self) -> None:
        """Let the window begin now."""
        self._begin = Account(steps=self.account.steps, tokens=self.account.tokens, energy_j=self.account.energy_j)

    def window(self) -> Window | None:
        """Return what happened since `begin`, None before it."""
        begin, now = self._begin, self.account
        if begin is None:
            return None
        return Window(begin.time_s, now.time_s, now.tokens - begin.tokens, now.energy_j - begin.energy_j)

    @property
    def budget_w(self) -> int:
        """Return the sum of the roots' limits in force."""
        roots = [domain.name for domain in self._scenario.domains if domain.parent is None]
        return sum(self._limits.in_force[name] for name in roots)

    def gpus_running(self) -> int:
        """Return how many GPUs are at work now."""
        return sum(gpu.load > 0 for file in self._files for gpu in file.gpus())

    def start_servers(self, node: str) -> None:
        """Let a node's inference servers run: its boot cap has been set."""
        for file in self._files:
            if file.static.name == node:
                file.start_servers()

    def _count(self, entries: Sequence[HistoryEntry]) -> None:
        account = self.account
        step = entries[0].step
        account.missed_steps += step - account.steps - 1
        account.steps = step
        powers_w = {entry[0].name: entry[1].power_w for entry in zip(self._scenario.nodes, entries, strict=True)}
        loads_w = domain_loads_w(self._scenario, powers_w)
        roots = [domain.name for domain in self._scenario.domains if domain.parent is None]
        account.power_w = sum(loads_w[name] for name in roots)
        account.peak_w = max(account.peak_w, account.power_w)
        account.energy_j += account.power_w * STEP_S
        account.tokens = sum(entry.generated_tokens for entry in entries)
        self._hold_against(loads_w, powers_w, entries[0].time_s)
        if self._begin is not None:
            self._count_caps(entries)

    def _count_caps(self, entries: Sequence[HistoryEntry]) -> None:
        account, domains = self.account, self._scenario.domains
        rows = zip(self._scenario.nodes, entries, strict=True)
        caps_w = {node.name: node.loss * (node.overhead_w + entry.caps_w) for node, entry in rows}
        loads_w = domain_loads_w(self._scenario, caps_w)
        account.peak_caps_w = max(account.peak_caps_w, sum(loads_w[d.name] for d in domains if d.parent is None))
        limits_w = self._limits.at(entries[0].time_s)
        over_domain = any(loads_w[d.name] > limits_w[d.name] - d.headroom_w + WATT_NOISE for d in domains)
        limited = (node for node in self._scenario.nodes if node.limit_w is not None)
        over_node = any(caps_w[node.name] > (node.limit_w or 0) + WATT_NOISE for node in limited)
        if over_domain or over_node:
            account.over_caps_s += STEP_S

    def _hold_against(self, loads_w: Mapping[str, float], powers_w: Mapping[str, float], time_s: float) -> None:
        limits_w = self._limits.at(time_s)
        excesses_w = [(loads_w[name] - limit_w, name) for name, limit_w in limits_w.items() if name in loads_w]
        excesses_w += [
            (powers_w[node.name] - node.limit_w, node.name) for node in self._scenario.nodes if node.limit_w is not None
        ]
        worst_w, name = max(excesses_w)
        if worst_w > WATT_NOISE:
            self.account.over_budget_s += STEP_S
            if worst_w > self.account.worst_over_w:
                self.account.worst_over_w, self.account.worst_domain = worst_w, name


def domain_loads_w(scenario: Scenario, powers_w: Mapping[str, float]) -> dict[str, float]:
    """Return what each domain draws at its input, from what each node draws at its own; watts."""
    sums_w = {domain.name: float(domain.overhead_w) for domain in scenario.domains}
    for node in scenario.nodes:
        for feed in node.feeds:
            sums_w[feed.domain] += feed.share * powers_w[node.name]
    loads_w: dict[str, float] = {}
    for domain in reversed(scenario.domains):  # children stand after their parents
        loads_w[domain.name] = domain.loss * sums_w[domain.name]
        if domain.parent is not None:
            sums_w[domain.parent] += loads_w[domain.name]
    return loads_w
