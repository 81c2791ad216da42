"""The first grant of a term: a working rack is taken over as it is, a GPU that nobody granted anything stays low."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rackpower_common.model.device import Device, PowerReading, Vendor
from rackpower_common.model.identity import GpuId, NodeName, StreamId, Term
from rackpower_common.model.messages import PROTOCOL_VERSION, GpuReport, Hello, Holding, PendingWrite, Report
from rackpower_controller.core.decide import decide
from rackpower_controller.core.facts import NodeConnected, NodeReported
from rackpower_sim.world.rack import small_policy
from support.books import TERM, Books

NODE, STREAM = NodeName("node-0"), StreamId(1)
DEVICE = Device(GpuId("GPU-1"), Vendor.NVIDIA, "Big 0", "0000:01:00.0", 200, 1000, 1000)
LEASED = Holding(DEVICE.gpu, Term(6, "b"), 4, 4, requested_w=600, enforced_w=600, fallback_w=300, lease_remaining_s=9.0)
RUN_OUT = replace(LEASED, lease_remaining_s=0.0)
BARE = Holding(DEVICE.gpu, requested_w=600, enforced_w=600)
NEARLY_LOW = replace(BARE, requested_w=201, enforced_w=201)
LOWERING = replace(BARE, pending_writes=(PendingWrite(200, 0.1),))


@pytest.mark.parametrize(
    ("holding", "first_w"),
    [(LEASED, 600), (RUN_OUT, 600), (BARE, 200), (NEARLY_LOW, 200), (LOWERING, None)],
    ids=["leased", "run out", "no lease", "within the dead-band", "lowering itself"],
)
def test_invariant_05_a_first_grant_lifts_no_gpu_whose_agent_holds_none(holding: Holding, first_w: int | None) -> None:
    """Such a GPU goes to its minimum by itself before work starts; granting what still stands would lift it again."""
    books = Books(small_policy(nodes=1, gpus=1, share=1.2))
    books.take_term()
    hello = Hello(PROTOCOL_VERSION, NODE, "1", "boot-1", "i1", (DEVICE,), True, (holding,), None, True)
    line = GpuReport(holding, PowerReading(average_w=150, window_s=1.0))
    books.absorb(
        [
            NodeConnected(STREAM, "node-0", "10.0.0.1:4000", hello, books.now_s),
            NodeReported(STREAM, NODE, Report(1, (line,), TERM), books.now_s),
        ]
    )
    decision = decide(books.state, None, books.policy, books.now_s)
    caps_w = [grant.cap_w for batch in decision.lowers.values() for grant in batch.grants]
    assert caps_w == ([] if first_w is None else [first_w])
