"""What a simulated rack is made of: nodes, power tree, load and seed, as a value that travels as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rackpower_common.errors import RackpowerError
from rackpower_common.model.device import Vendor
from rackpower_sim.classes import SUPPLY_LOSS, GpuTruth

MAX_GPUS: Final = 4096
"""Of one simulated rack: what one process steps in time."""

MAX_OFFERED: Final = 10.0
MAX_BURST_S: Final = 600.0
"""Of a load: requests beyond them only wait."""


class ScenarioError(RackpowerError):
    """A simulated rack that cannot be built."""


@dataclass(frozen=True, slots=True)
class GpuGroup:
    """So many GPUs of one class."""

    gpu_class: str
    count: int


@dataclass(frozen=True, slots=True)
class FeedSpec:
    """A domain that a node hangs on, and the share of the node's load that it carries."""

    domain: str
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node and its GPUs, served by replicas of `gpus_per_replica` each.

    `overhead_w` is the most that it draws beside its GPUs, at its supplies' output; `limit_w` at their input.
    """

    name: str
    gpus: tuple[GpuGroup, ...]
    feeds: tuple[FeedSpec, ...]
    overhead_w: int
    loss: float = SUPPLY_LOSS
    gpus_per_replica: int = 1
    limit_w: int | None = None

    @property
    def gpu_count(self) -> int:
        """Return how many GPUs it has."""
        return sum(group.count for group in self.gpus)

    @property
    def gpu_classes(self) -> tuple[str, ...]:
        """Return the class of each GPU, in order."""
        return tuple(group.gpu_class for group in self.gpus for _ in range(group.count))


@dataclass(frozen=True, slots=True)
class DomainSpec:
    """A point of the power tree; `parent` None for the root. Parents stand before their children."""

    name: str
    parent: str | None
    kind: str
    limit_w: int
    headroom_w: int
    overhead_w: int = 0
    loss: float = 1.0

    @property
    def ceiling_w(self) -> int:
        """Return limit − headroom."""
        return self.limit_w - self.headroom_w


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """What is asked of the rack: `offered` times what it serves uncapped, after `burst_s` seconds' worth at once.

    `trace` is a file in the Azure CSV format; None makes requests up. With `wait_for_boot_cap` a node's servers stay
    down after each boot until `NodeFile.start_servers`, as units with `Requires=rackpower-boot-cap.service` do.
    """

    offered: float = 1.25
    burst_s: float = 3.0
    trace: str | None = None
    wait_for_boot_cap: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """A simulated rack. The classes are the truth."""

    name: str
    seed: int
    domains: tuple[DomainSpec, ...]
    nodes: tuple[NodeSpec, ...]
    classes: tuple[GpuTruth, ...]
    load: LoadSpec = LoadSpec()

    @property
    def gpu_count(self) -> int:
        """Return how many GPUs there are."""
        return sum(node.gpu_count for node in self.nodes)

    def truth(self, name: str) -> GpuTruth:
        """Return a class.

        Raises:
            ScenarioError: There is none of that name.
        """
        for truth in self.classes:
            if truth.name == name:
                return truth
        raise ScenarioError(f"GPU class `{name}` is not in the scenario")

    def gpu_truths(self) -> tuple[GpuTruth, ...]:
        """Return the truth of each GPU, node by node."""
        return tuple(self.truth(name) for node in self.nodes for name in node.gpu_classes)

    def replicas(self) -> Iterator[tuple[NodeSpec, tuple[int, ...]]]:
        """Return each replica's node and GPUs, as indices over the whole rack."""
        first = 0
        for node in self.nodes:
            for begin in range(0, node.gpu_count, node.gpus_per_replica):
                yield node, tuple(range(first + begin, first + min(begin + node.gpus_per_replica, node.gpu_count)))
            first += node.gpu_count

    def uncapped_tokens_per_s(self) -> float:
        """Return what the rack serves when no cap holds it back."""
        return sum(truth.peak_tokens_per_s for truth in self.gpu_truths())

    def to_json(self) -> str:
        """Return the scenario as text."""
        content = asdict(self)
        for truth in content["classes"]:
            truth["vendor"] = truth["vendor"].value
        return json.dumps(content, indent=1)

    @classmethod
    def from_json(cls, text: str, where: str) -> Scenario:
        """Read a scenario.

        Raises:
            ScenarioError: It is not one, or it contradicts itself.
        """
        try:
            content = json.loads(text)
            scenario = cls(
                name=content["name"],
                seed=int(content["seed"]),
                domains=tuple(DomainSpec(**domain) for domain in content["domains"]),
                nodes=tuple(_node(node) for node in content["nodes"]),
                classes=tuple(_truth(truth) for truth in content["classes"]),
                load=LoadSpec(**content["load"]),
            )
            scenario.check(where)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ScenarioError(f"{where}: not a simulated rack: {error}") from None
        return scenario

    def check(self, where: str) -> None:
        """Refuse a rack that contradicts itself.

        Raises:
            ScenarioError: Names are doubled or unknown, counts are not positive, or it is too large.
        """
        names = [node.name for node in self.nodes]
        domains = [domain.name for domain in self.domains]
        if not names or len(set(names)) != len(names) or len(set(domains)) != len(domains):
            raise ScenarioError(f"{where}: nodes and domains need names of their own")
        if not 0 < self.gpu_count <= MAX_GPUS:
            raise ScenarioError(f"{where}: {self.gpu_count} GPUs; from 1 to {MAX_GPUS} can be simulated")
        if not 0 < self.load.offered <= MAX_OFFERED or not 0 <= self.load.burst_s <= MAX_BURST_S:
            raise ScenarioError(
                f"{where}: offered {self.load.offered:g}, burst {self.load.burst_s:g} s cannot be simulated",
                f"up to {MAX_OFFERED:g} times what the rack serves, after up to {MAX_BURST_S:g} s at once",
            )
        for node in self.nodes:
            for name in node.gpu_classes:
                self.truth(name)
            for feed in node.feeds:
                if feed.domain not in domains:
                    raise ScenarioError(f"{where}: node {node.name} hangs on `{feed.domain}`, which is not there")
            if node.gpu_count < 1 or node.gpus_per_replica < 1 or node.loss < 1 or node.overhead_w < 0:
                raise ScenarioError(f"{where}: node {node.name} has a count, loss or overhead that cannot be")
        for place, domain in enumerate(self.domains):
            if domain.parent is not None and domain.parent not in domains[:place]:
                raise ScenarioError(f"{where}: domain {domain.name} stands before its parent `{domain.parent}`")


def load_scenario(path: Path) -> Scenario:
    """Read a scenario's file.

    Raises:
        ScenarioError: It cannot be read or is not one.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: cannot be read: {error}") from None
    return Scenario.from_json(text, str(path))


def _node(content: dict[str, Any]) -> NodeSpec:
    gpus = tuple(GpuGroup(**group) for group in content.pop("gpus"))
    feeds = tuple(FeedSpec(**feed) for feed in content.pop("feeds"))
    return NodeSpec(gpus=gpus, feeds=feeds, **content)


def _truth(content: dict[str, Any]) -> GpuTruth:
    assumed = tuple((str(what), str(why)) for what, why in content.pop("assumed"))
    return GpuTruth(**(content | {"vendor": Vendor(content["vendor"]), "assumed": assumed}))
