"""Small racks as a controller's books: agents' hellos and reports, absorbed as the product absorbs them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from rackpower_common.model.device import Device, Health, LimitReason, PowerReading, Temperatures, Vendor, Workload
from rackpower_common.model.identity import GpuId, NodeName, StreamId, Term
from rackpower_common.model.messages import PROTOCOL_VERSION, GpuReport, Hello, Holding, Report
from rackpower_common.model.policy import Policy
from rackpower_controller.core.absorb import absorb
from rackpower_controller.core.facts import Fact, NodeConnected, NodeReported, TermTaken
from rackpower_controller.core.state import RackState

TERM = Term(7, "instance-a")
START_S = 1000.0


def gpu_id(node: str, place: int) -> GpuId:
    """Return the UUID of a node's GPU."""
    return GpuId(f"GPU-{node}-{place}")


def device(gpu: GpuId, model: str = "NVIDIA H100 80GB HBM3") -> Device:
    """Return an H100."""
    return Device(gpu, Vendor.NVIDIA, model, "0000:1a:00.0", 200, 700, 700)


def hello(node: str, gpus: int = 8, boot_id: str = "boot-1") -> Hello:
    """Return the hello of a node with `gpus` H100."""
    devices = tuple(device(gpu_id(node, place)) for place in range(gpus))
    holdings = tuple(Holding(one.gpu, requested_w=400, enforced_w=400) for one in devices)
    return Hello(
        protocol_version=PROTOCOL_VERSION,
        node=NodeName(node),
        agent_version="0.1.0",
        boot_id=boot_id,
        agent_instance=f"agent-{node}",
        devices=devices,
        devices_complete=True,
        holdings=holdings,
        highest_term=None,
        journal_read=True,
    )


def line(gpu: GpuId, cap_w: int = 400, power_w: int | None = 390) -> GpuReport:
    """Return a GPU's line of a report: it draws `power_w` watts under `cap_w`."""
    holding = Holding(
        gpu,
        term=TERM,
        sequence=1,
        applied_sequence=1,
        requested_w=cap_w,
        enforced_w=cap_w,
        highest_enforced_w=cap_w,
        enforced_age_s=60.0,
        fallback_w=300,
        lease_remaining_s=12.0,
    )
    return GpuReport(
        holding=holding,
        power=PowerReading(average_w=power_w, window_s=1.0, age_s=0.1),
        temperatures=Temperatures(core_c=61),
        limit_reason=LimitReason.POWER,
        health=Health.OK,
    )


def report(node: str, gpus: int = 8, sequence: int = 1, *, tokens_per_s: float | None = 800.0) -> Report:
    """Return a report of a node whose GPUs all serve one workload."""
    ids = tuple(gpu_id(node, place) for place in range(gpus))
    work = (Workload(f"llm-{node}", ids, generated_tokens_per_s=tokens_per_s),)
    return Report(sequence, tuple(line(gpu) for gpu in ids), TERM, workloads=work)


@dataclass(slots=True)
class Books:
    """A controller's books, changed by facts only."""

    policy: Policy
    state: RackState = field(default_factory=RackState)
    now_s: float = START_S

    def absorb(self, facts: Iterable[Fact]) -> None:
        """Take in facts in order."""
        for fact in facts:
            self.state = absorb(self.state, fact, self.policy).state

    def take_term(self) -> None:
        """Begin a term."""
        self.absorb([TermTaken(TERM, self.now_s)])

    def connect(self, node: str, stream: int, *, peer: str = "", gpus: int = 8) -> None:
        """Let a node say hello."""
        said = hello(node, gpus)
        self.absorb([NodeConnected(StreamId(stream), node, peer or f"10.0.0.{stream}:4000", said, self.now_s)])

    def report(self, node: str, stream: int, said: Report | None = None) -> None:
        """Let a node report."""
        self.absorb([NodeReported(StreamId(stream), NodeName(node), said or report(node), self.now_s)])

    def admit(self, *nodes: str) -> None:
        """Mark nodes as admitted, as committing a decision does."""
        changed = {NodeName(name): replace(self.state.nodes[NodeName(name)], admitted=True) for name in nodes}
        self.state = replace(self.state, nodes={**self.state.nodes, **changed})
