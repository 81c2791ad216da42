"""The lease keeper with its hands: saves in turn, lease ends in time, caps lowered when a fact does not hold."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from rackpower_agent.holder import CLOSE_S, TICK_S
from rackpower_agent.journal import decode
from rackpower_agent.lease.events import BatchReceived, Tick, Welcomed
from rackpower_common.errors import InvariantError
from rackpower_common.model.identity import GpuId, Term
from rackpower_common.model.messages import GrantBatch, Renewal, WriteError
from rackpower_common.tasks import beside
from support.gpu_fake import FakeGpu, HandClock
from support.held import Held, held
from support.lease_node import device, grant
from support.link_fake import PATIENCE_S
from support.waiting import async_wait_until

pytestmark = pytest.mark.anyio

TERM = Term(1, "a")


async def stands(node: Held, cap_w: int) -> None:
    """Wait until every GPU holds a cap, read back."""

    def there() -> bool:
        caps = [node.holder.keeper.holding(gpu.device.gpu, 0.0) for gpu in node.gpus]
        return all((cap.requested_w, cap.pending_writes) == (cap_w, ()) for cap in caps)

    await async_wait_until(there, within_s=PATIENCE_S, what=f"{cap_w} W on every GPU")


async def test_a_first_start_lowers_every_gpu_to_its_minimum(tmp_path: Path) -> None:
    """Drivers come up at their default: without a journal nothing above the minimum is safe."""
    async with held(tmp_path, FakeGpu(device("GPU-0")), FakeGpu(device("GPU-1"))) as node:
        await beside(node.holder.run(), stands(node, 200))
        assert node.holder.keeper.ready()


async def test_a_lease_that_ends_before_the_next_tick_wakes_its_keeper(tmp_path: Path) -> None:
    """Lease ends are not kept to a tick's grain; a lease that has ended wakes nobody any more."""
    clock = HandClock()
    async with held(tmp_path, clock=clock) as node:
        await beside(node.holder.run(), stands(node, 200))
        node.holder.handle(BatchReceived(GrantBatch(TERM, (grant(1, 600, lease_s=15.0),))))
        await beside(node.holder.run(), stands(node, 600))
        waits_s = []
        for at_s in (105.0, 114.9, 115.0):
            clock.at_s = at_s
            waits_s.append(node.holder._until_next_tick_s())
        assert waits_s == pytest.approx([TICK_S, 0.1, 0.0])
        node.holder.handle(Tick())
        assert node.holder._until_next_tick_s() == TICK_S


async def test_a_lease_without_renewals_ends_in_the_fallback(tmp_path: Path) -> None:
    """Alone, and not before its end."""
    async with held(tmp_path) as node:
        await beside(node.holder.run(), lease_of(node, 0.6))


async def lease_of(node: Held, lease_s: float) -> None:
    """Grant 600 W, let the lease end, and look when it did."""
    await stands(node, 200)
    node.holder.handle(Welcomed(TERM))
    node.holder.handle(BatchReceived(GrantBatch(TERM, (grant(1, 600, fallback_w=300, lease_s=lease_s),))))
    granted_s = node.clock.now_s()
    await stands(node, 600)
    await async_wait_until(
        lambda: (held := node.holder.keeper.state.gpus[GpuId("GPU-0")].grant) is not None and held.expired,
        within_s=PATIENCE_S,
        what="the lease's end",
    )
    assert node.clock.now_s() - granted_s >= lease_s
    await stands(node, 300)


async def test_a_full_disk_refuses_raises_and_not_lowers(tmp_path: Path) -> None:
    """A raise that the journal cannot hold is told as refused; a lower goes on."""
    told: list[WriteError] = []
    async with held(tmp_path) as node:
        node.holder.tell = told.append
        await beside(node.holder.run(), full_disk(node, told))


async def full_disk(node: Held, told: list[WriteError]) -> None:
    """Fill the disk, and ask for a raise and then a lower."""
    await stands(node, 200)
    node.holder.handle(BatchReceived(GrantBatch(TERM, (grant(1, 600),))))
    await stands(node, 600)
    node.journal.fails = OSError(errno.ENOSPC, "No space left on device")
    node.holder.handle(BatchReceived(GrantBatch(TERM, (grant(2, 900),))))
    await async_wait_until(lambda: told, within_s=PATIENCE_S, what="the refusal")
    assert (told[0].reason.value, told[0].detail) == ("journal", "No space left on device")
    node.holder.handle(BatchReceived(GrantBatch(TERM, (grant(3, 400),))))
    await stands(node, 400)
    assert 900 not in node.gpus[0].writes


async def test_a_disk_that_hangs_is_a_full_one_and_holds_up_neither_lowers_nor_the_end(tmp_path: Path) -> None:
    """The save is given up after its deadline; lowers go on meanwhile, and the agent ends in time."""
    async with held(tmp_path) as node:
        await beside(node.holder.run(), stands(node, 200))
        node.journal.disk.close()
        gpu = node.gpus[0]
        gpu.requested_w = gpu.enforced_w = 900
        await beside(node.holder.run(), stands(node, 200))
        began_s = node.clock.now_s()
        await node.holder.close()
        assert node.clock.now_s() - began_s < CLOSE_S + 1.0
        node.journal.disk.open()


async def test_the_last_save_holds_the_exact_lease_end(tmp_path: Path) -> None:
    """Renewals are journalled lazily; at the end the disk gets the lease's true end, also behind a save under way."""
    async with held(tmp_path) as node:
        await beside(node.holder.run(), renewed(node))
        await node.holder.close()
        record = decode((tmp_path / "lease.json").read_bytes()).gpus[0]
        grants = node.holder.keeper.state.gpus[GpuId("GPU-0")].grant
        assert grants is not None
        assert record.deadline_s == grants.deadline_s


async def renewed(node: Held) -> None:
    """Hold a grant whose lease was renewed a moment ago."""
    await stands(node, 200)
    node.holder.handle(BatchReceived(GrantBatch(TERM, (grant(1, 600),))))
    await stands(node, 600)
    node.holder.handle(BatchReceived(GrantBatch(TERM, (), (Renewal(GpuId("GPU-0"), 1, 15.0),))))
    grants = node.holder.keeper.state.gpus[GpuId("GPU-0")].grant
    assert grants is not None
    assert grants.journalled_deadline_s < grants.deadline_s
    node.holder.handle(BatchReceived(GrantBatch(TERM, (grant(2, 500),))))  # its save is under way when `run` ends


async def test_a_broken_fact_lowers_to_the_fallback_and_ends_the_agent(tmp_path: Path) -> None:
    """min(cap in force, fallback) reaches the drivers first; nothing is taken in any more; then the error comes out."""
    async with held(tmp_path) as node:
        with pytest.raises(InvariantError, match="invariant 4"):
            await beside(breaks(node), node.holder.run())
        assert node.gpus[0].requested_w == 300
        node.holder.handle(BatchReceived(GrantBatch(TERM, (grant(9, 900),))))
        await node.holder.close()
        assert node.gpus[0].writes[-1] == 300


async def test_a_bug_met_on_a_device_threads_news_lowers_to_the_fallback_and_ends_the_agent(tmp_path: Path) -> None:
    """No cap stays up with nobody to end its lease: code that fails on one GPU's refusal brings the other down."""
    refusing, other = FakeGpu(device("GPU-0")), FakeGpu(device("GPU-1"))
    async with held(tmp_path, refusing, other) as node:
        node.holder.tell = fails

        async def stray() -> None:
            await stands(node, 200)
            node.holder.handle(BatchReceived(GrantBatch(TERM, (grant(1, 600, gpu="GPU-1", fallback_w=300),))))
            await async_wait_until(lambda: other.requested_w == 600, within_s=PATIENCE_S, what="the grant")
            refusing.write_fails = OSError("refused")
            node.holder.handle(BatchReceived(GrantBatch(TERM, (grant(1, 600, fallback_w=300),))))

        with pytest.raises(LookupError, match="nobody wrote this down"):
            await beside(stray(), node.holder.run())
        assert other.requested_w == 300


def fails(error: WriteError) -> None:
    """Be a bug."""
    raise LookupError(f"nobody wrote this down: {error.detail}")


async def breaks(node: Held) -> None:
    """Hold 600 W, then find a fact that does not hold."""
    await stands(node, 200)
    node.holder.handle(BatchReceived(GrantBatch(TERM, (grant(1, 600, fallback_w=300),))))
    await stands(node, 600)
    node.holder.fail(InvariantError("invariant 4 does not hold: a raise without a lease"))
    node.holder.fail(InvariantError("invariant 6 does not hold: the first is the one to tell"))


async def test_the_watchdog_is_fed_by_kept_leases_only(tmp_path: Path) -> None:
    """Messages from a controller say nothing about lease ends: only the keeper of time does."""
    async with held(tmp_path) as node:
        node.holder.handle(Welcomed(TERM))
        node.holder.handle(BatchReceived(GrantBatch(TERM, (grant(1, 600),))))
        assert not node.holder.kept.is_set()
        async with asyncio.timeout(PATIENCE_S):
            await beside(node.holder.run(), node.holder.kept.wait())
