"""Small simulated racks and short loads for tests of the simulated hardware."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from rackpower_sim.classes import CLASSES, H100, GpuTruth
from rackpower_sim.physics import GpuBank
from rackpower_sim.scenario import DomainSpec, FeedSpec, GpuGroup, LoadSpec, NodeSpec, Scenario
from rackpower_sim.traces import Mix, Request

TRACE_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def small_rack(
    nodes: int = 2,
    gpus: int = 2,
    gpus_per_replica: int = 1,
    offered: float = 1.25,
    wait_for_boot_cap: bool = False,
    seed: int = 1,
) -> Scenario:
    """Return a rack of a few nodes, each of one class, all on one domain."""
    names = sorted(CLASSES)
    return Scenario(
        name="small",
        seed=seed,
        domains=(DomainSpec("rack-1", None, "rack", 100_000, 1000, 500),),
        nodes=tuple(
            NodeSpec(
                name=f"node-{index + 1}",
                gpus=(GpuGroup(names[index % len(names)], gpus),),
                feeds=(FeedSpec("rack-1"),),
                overhead_w=1000,
                gpus_per_replica=gpus_per_replica,
            )
            for index in range(nodes)
        ),
        classes=tuple(CLASSES[name] for name in names),
        load=LoadSpec(offered=offered, wait_for_boot_cap=wait_for_boot_cap),
    )


def bank_of(truth: GpuTruth = H100, count: int = 1, seed: int = 1, lanes: int = 1) -> GpuBank:
    """Return alike GPUs side by side."""
    return GpuBank([truth] * count, seed, lanes)


def requests(*rows: tuple[float, int]) -> Iterator[Request]:
    """Return requests from (arrival in s, output tokens), each with 10 prompt tokens; then none."""
    return iter([Request(arrival_s, 10, tokens) for arrival_s, tokens in rows])


def write_trace(path: Path, seed: int = 1, count: int = 600, requests_per_s: float = 5.0) -> Path:
    """Write made-up requests as a trace file in the Azure CSV format, seven decimals and all."""
    lines = [TRACE_HEADER]
    for request, _ in zip(Mix().requests(seed, requests_per_s), range(count), strict=False):
        minute, second = divmod(request.arrival_s, 60.0)
        lines.append(f"2023-11-16 18:{int(minute):02}:{second:010.7f},{request.prompt_tokens},{request.output_tokens}")
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
    return path


def counted(arrivals: Iterable[Request], seen: list[Request]) -> Iterator[Request]:
    """Return the same requests and note each one that is taken."""
    for request in arrivals:
        seen.append(request)
        yield request


def saturated(scenario: Scenario) -> Scenario:
    """Return the same rack with so much asked of it that every queue always holds something."""
    return replace(scenario, load=replace(scenario.load, offered=1.5, burst_s=5.0))
