"""What every store must do: the embedded one, where installed redis-server, and the double that unit tests use."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from rackpower_common.model.identity import GpuId, NodeName, Revision, Term
from rackpower_controller.store.base import (
    POLICY_REVISIONS_LIMIT,
    EventRecord,
    Exposure,
    Fenced,
    LeadTaken,
    PolicyRecord,
    PolicyText,
    Store,
    StoreError,
)
from support.stores import KINDS, StoreSite, opened, run, store_site

GPU_A, GPU_B = GpuId("GPU-a"), GpuId("GPU-b")
NODE = NodeName("node1")


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest) -> Iterator[StoreSite]:
    """Give an empty store of each kind."""
    kind = str(request.param)
    if kind not in {"memory", "embedded"} and shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    with store_site(kind) as made:
        yield made


def test_every_term_is_higher_than_all_before_it(site: StoreSite) -> None:
    """A term is above every term handed out before and above the number that somebody has seen."""

    async def body() -> None:
        async with opened(site.address) as store:
            first = await store.take_term("i1", above=0, ttl_s=5, leader="a:1")
            second = await store.take_term("i1", above=0, ttl_s=5, leader="a:1")
            third = await store.take_term("i1", above=70, ttl_s=5, leader="a:1")
            assert (first.number, second.number, third.number) == (1, 2, 71)
            assert first.instance == "i1"

    run(body())


def test_terms_taken_at_once_are_never_equal(site: StoreSite) -> None:
    """Many takers at the same time get different numbers."""

    async def body() -> None:
        async with opened(site.address) as store:
            async with asyncio.TaskGroup() as group:
                takers = [group.create_task(store.take_term("i1", above=0, ttl_s=5, leader="")) for _ in range(20)]
            numbers = [taker.result().number for taker in takers]
            assert sorted(numbers) == list(range(1, 21))

    run(body())


def test_a_second_controller_waits_while_the_first_leads(site: StoreSite) -> None:
    """While a lead lasts another instance gets no term, but the leader's address and its remaining time."""

    async def body() -> None:
        async with opened(site.address) as store, opened(site.rival_address) as rival:
            await store.take_term("i1", above=0, ttl_s=60, leader="first:7000")
            with pytest.raises(LeadTaken) as refused:
                await rival.take_term("i2", above=0, ttl_s=60, leader="second:7000")
            assert refused.value.leader == "first:7000"
            assert 0 < refused.value.remaining_s <= 60

    run(body())


def test_a_lead_given_up_is_free_at_once(site: StoreSite) -> None:
    """After a clean stop another controller leads at once, in a higher term."""

    async def body() -> None:
        async with opened(site.address) as store, opened(site.rival_address) as rival:
            first = await store.take_term("i1", above=0, ttl_s=60, leader="")
            await store.give_up_lead(first)
            second = await rival.take_term("i2", above=0, ttl_s=60, leader="")
            assert second.number > first.number
            await store.give_up_lead(first)  # no longer ours: must leave the new leader's lead alone
            await rival.keep_lead(second, ttl_s=60, leader="")
            with pytest.raises(Fenced):
                await store.keep_lead(first, ttl_s=60, leader="")

    run(body())


def test_a_lead_not_kept_runs_out_and_its_holder_is_fenced(site: StoreSite) -> None:
    """When the lead has run out another instance takes it; the old one may neither keep nor record."""

    async def body() -> None:
        async with opened(site.address) as store, opened(site.rival_address) as rival:
            old = await store.take_term("i1", above=0, ttl_s=0.05, leader="")
            new = await term_when_free(rival)
            with pytest.raises(Fenced) as fenced:
                await store.keep_lead(old, ttl_s=5, leader="")
            assert fenced.value.newest == new
            with pytest.raises(Fenced):
                await store.record_exposures(old, 1, {GPU_A: Exposure(700, NODE)}, "")
            assert await store.recall_exposures() == {}

    async def term_when_free(rival: Store) -> Term:
        while True:
            try:
                return await rival.take_term("i2", above=0, ttl_s=60, leader="")
            except LeadTaken:
                await asyncio.sleep(0.01)

    run(body())


def test_invariant_08_the_same_number_from_another_instance_is_fenced(site: StoreSite) -> None:
    """A record under our number but another instance's name is refused: numbers alone are not enough."""

    async def body() -> None:
        async with opened(site.address) as store:
            term = await store.take_term("i1", above=0, ttl_s=5, leader="")
            with pytest.raises(Fenced):
                await store.record_exposures(Term(term.number, "i2"), 1, {GPU_A: Exposure(1, NODE)}, "")

    run(body())


def test_a_store_that_lost_its_data_fences(site: StoreSite) -> None:
    """A server without memory of our term accepts no record, and a new term taken above ours is accepted."""

    async def body() -> None:
        async with opened(site.address) as store:
            term = Term(9, "i1")
            with pytest.raises(Fenced):
                await store.record_exposures(term, 1, {GPU_A: Exposure(1, NODE)}, "")
            again = await store.take_term("i1", above=term.number, ttl_s=5, leader="")
            assert again == Term(10, "i1")
            await store.record_exposures(again, 1, {GPU_A: Exposure(1, NODE)}, "")

    run(body())


def test_recorded_exposures_are_recalled(site: StoreSite) -> None:
    """The last exposure recorded for each GPU comes back, with its node, after a reopening too."""

    async def body() -> None:
        async with opened(site.address) as store:
            term = await store.take_term("i1", above=0, ttl_s=5, leader="")
            await store.record_exposures(term, 1, {GPU_A: Exposure(700, NODE), GPU_B: Exposure(1000, NODE)}, "")
            await store.record_exposures(term, 2, {GPU_A: Exposure(650, NODE)}, "places")
        async with opened(site.address) as store:
            assert await store.recall_former() == "places"
            recalled = await store.recall_exposures()
            assert recalled == {GPU_A: Exposure(650, NODE), GPU_B: Exposure(1000, NODE)}

    run(body())


def test_a_record_that_comes_late_changes_nothing(site: StoreSite) -> None:
    """A record overtaken by a newer one of the same term is refused: it would lower what is known."""

    async def body() -> None:
        async with opened(site.address) as store:
            term = await store.take_term("i1", above=0, ttl_s=5, leader="")
            await store.record_exposures(term, 2, {GPU_A: Exposure(700, NODE)}, "")
            with pytest.raises(StoreError, match="came after"):
                await store.record_exposures(term, 1, {GPU_A: Exposure(300, NODE)}, "")
            assert (await store.recall_exposures())[GPU_A].power_w == 700

    run(body())


def test_policy_revisions_keep_author_time_and_files(site: StoreSite) -> None:
    """Revisions come back newest first as they were added; the same one twice in a row is kept once."""
    first = PolicyRecord(Revision("r1"), "ann", 1000.5, (PolicyText("a.yaml", "limit: 60 kW # ä\n"),))
    second = PolicyRecord(Revision("r2"), "bob", 2000.0, (PolicyText("a.yaml", "x"), PolicyText("b.yaml", "y")))

    async def body() -> None:
        async with opened(site.address) as store:
            assert await store.add_policy(first) is True
            assert await store.add_policy(second) is True
            assert await store.add_policy(second) is False
            assert await store.policies() == [second, first]
            assert await store.policy(Revision("r1")) == first
            assert await store.policy(Revision("r3")) is None
            assert await store.add_policy(first) is True  # a roll-back is a revision in force again

    run(body())


def test_policy_history_is_bounded(site: StoreSite) -> None:
    """The oldest revisions are forgotten beyond the limit."""

    async def body() -> None:
        async with opened(site.address) as store:
            for number in range(POLICY_REVISIONS_LIMIT + 5):
                await store.add_policy(PolicyRecord(Revision(f"r{number}"), "ann", float(number), ()))
            kept = await store.policies()
            assert len(kept) == POLICY_REVISIONS_LIMIT
            assert kept[0].revision == f"r{POLICY_REVISIONS_LIMIT + 4}"

    run(body())


def test_the_digest_of_policy_files_is_remembered(site: StoreSite) -> None:
    """The digest is empty at first and then what was set last."""

    async def body() -> None:
        async with opened(site.address) as store:
            assert await store.seen_digest() == ""
            await store.set_seen_digest("abc")
            assert await store.seen_digest() == "abc"

    run(body())


def test_events_come_back_in_order_newest_kept(site: StoreSite) -> None:
    """The newest events come back, oldest first, field by field."""
    events = [
        EventRecord(f"{n}-0", n + 0.25, "warning", "override", f"number {n}", "node1", "GPU-a", "rack1")
        for n in range(5)
    ]

    async def body() -> None:
        async with opened(site.address) as store:
            await store.add_events(events[:3])
            await store.add_events(events[3:])
            await store.add_events([])
            assert await store.events(10) == events
            assert await store.events(2) == events[3:]

    run(body())


def test_racks_that_share_a_server_do_not_meet(site: StoreSite) -> None:
    """Two prefixes on one server have their own terms and exposures."""

    async def body() -> None:
        async with opened(site.address) as store, opened(site.rival_address, prefix="rack2") as other:
            await store.take_term("i1", above=40, ttl_s=60, leader="")
            assert (await other.take_term("i2", above=0, ttl_s=60, leader="")).number == 1

    run(body())


def test_a_call_that_is_cancelled_ends(site: StoreSite) -> None:
    """A cancellation at any moment of a call comes out: one that was lost kept a stopping controller for ever."""

    async def cancelled_after(call: Coroutine[Any, Any, None], turns: int) -> bool:
        """Cancel a call after so many turns of the loop; False when it had ended before."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(call)
            for _ in range(turns):
                await asyncio.sleep(0)
            if task.done():
                return False
            task.cancel()
        assert task.cancelled()
        return True

    async def body() -> None:
        async with opened(site.address) as store:
            event = EventRecord("1-0", 1.0, "info", "applied", "words")
            for turns in range(300):
                await cancelled_after(store.set_seen_digest("abc"), turns % 20)
                await cancelled_after(store.add_events([event]), turns % 20)
            assert await store.seen_digest() in {"", "abc"}

    run(body())
