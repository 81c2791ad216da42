"""Alike GPUs of one node folded into one row, for narrow screens."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rackpower.v1 import operator_pb2
from rackpower_ctl.render import words

SAME_CAP_MILLIWATTS: Final = 5_000
"""Caps whose neighbours are no further apart than this, the default dead-band, share a row."""


@dataclass(frozen=True, slots=True)
class GpuGroup:
    """GPUs of one node with the same model and health and about the same cap; never empty."""

    node: str
    model: str
    health: str
    control: str
    gpus: tuple[operator_pb2.Gpu, ...]

    @property
    def caps_milliwatts(self) -> list[int]:
        """Return the caps read back, of those that told."""
        return [gpu.enforced_cap_milliwatts for gpu in self.gpus if gpu.HasField("enforced_cap_milliwatts")]

    @property
    def mean_power_milliwatts(self) -> int | None:
        """Return the mean draw of those that told, None when none did."""
        told = [gpu.power_milliwatts for gpu in self.gpus if gpu.HasField("power_milliwatts")]
        return round(sum(told) / len(told)) if told else None

    @property
    def hottest_celsius(self) -> int | None:
        """Return the highest core temperature of those that told."""
        return max((gpu.core_celsius for gpu in self.gpus if gpu.HasField("core_celsius")), default=None)

    @property
    def tokens_per_second(self) -> float | None:
        """Return the sum over those that told."""
        told = [gpu.tokens_per_second for gpu in self.gpus if gpu.HasField("tokens_per_second")]
        return sum(told) if told else None

    @property
    def limited_by(self) -> str:
        """Return what limits most of them, with `6/8` where it is not all."""
        counts = Counter(words.LIMITED_BY.get(gpu.limit_reason, words.MISSING) for gpu in self.gpus)
        word, count = counts.most_common(1)[0]
        return word if count == len(self.gpus) else f"{word} {count}/{len(self.gpus)}"


def group_gpus(status: operator_pb2.Status) -> list[GpuGroup]:
    """Return groups in the order of the nodes, inside a node by model and falling cap."""
    rank = {node.name: index for index, node in enumerate(status.nodes)}
    kinds: dict[tuple[str, str, str, str], list[operator_pb2.Gpu]] = {}
    for gpu in status.gpus:
        key = (gpu.node, gpu.model, words.health(gpu.health), words.cap_control(gpu.cap_control))
        kinds.setdefault(key, []).append(gpu)
    groups = []
    for (node, model, health, control), gpus in kinds.items():
        groups += [GpuGroup(node, model, health, control, part) for part in _by_cap(gpus)]
    return sorted(groups, key=lambda group: (rank.get(group.node, len(rank)), group.node))


def merged_sentences(sentences: Sequence[str]) -> list[str]:
    """Return the sentences that differ in more than their numbers; numbers that differ become `…`.

    The order is that of first appearance; empty ones are left out.
    """
    shapes: dict[str, list[list[str]]] = {}
    for sentence in sentences:
        if sentence.strip():
            shapes.setdefault(shape(sentence), []).append(sentence.split(" "))
    merged = []
    for alike in shapes.values():
        columns = zip(*alike, strict=True)
        merged.append(" ".join(column[0] if len(set(column)) == 1 else "…" for column in columns))
    return merged


def shape(sentence: str) -> str:
    """Return the sentence with every number replaced, so that those alike compare equal."""
    return re.sub(r"\d[\d.,]*", "#", sentence)


def short_model(model: str) -> str:
    """Return the model without its maker's name: `H100 80GB HBM3`."""
    name = words.clean(model)
    for prefix in ("NVIDIA ", "AMD ", "Instinct "):
        name = name.removeprefix(prefix)
    return name or words.MISSING


def _by_cap(gpus: list[operator_pb2.Gpu]) -> list[tuple[operator_pb2.Gpu, ...]]:
    """Split where two neighbouring caps lie further apart than `SAME_CAP_MILLIWATTS`; unknown caps come last."""
    known = [gpu for gpu in gpus if gpu.HasField("enforced_cap_milliwatts")]
    known.sort(key=lambda gpu: -gpu.enforced_cap_milliwatts)
    parts: list[list[operator_pb2.Gpu]] = []
    for gpu in known:
        if parts and parts[-1][-1].enforced_cap_milliwatts - gpu.enforced_cap_milliwatts <= SAME_CAP_MILLIWATTS:
            parts[-1].append(gpu)
        else:
            parts.append([gpu])
    unknown = [gpu for gpu in gpus if not gpu.HasField("enforced_cap_milliwatts")]
    return [tuple(part) for part in (*parts, unknown) if part]
