"""How policies come into force, and what stays in force when they are wrong (invariant 10)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rackpower_common.model.identity import Revision
from rackpower_common.policy import PolicyError
from rackpower_controller.core.facts import PolicyChanged
from rackpower_controller.inbox import Inbox
from rackpower_controller.operator_api.base import DeskError, PolicyMoved, RevisionUnknown, StoreUnavailable
from rackpower_controller.policy_desk import FROM_FILES, PolicyDesk
from rackpower_controller.policy_source import PolicySource
from rackpower_controller.reign import Begun
from rackpower_controller.store.base import StoreError
from support.policies import SMALL
from support.shell import FakeClock
from support.store_fake import FakeStore, Memory
from support.waiting import async_wait_until

pytestmark = pytest.mark.anyio
QUIET_S = 0.05
LOWER = SMALL.replace("60 kW", "50 kW")
LOWEST = SMALL.replace("60 kW", "40 kW")
TOO_LOW = SMALL.replace("60 kW", "15 kW")
BROKEN = SMALL.replace("60 kW", "60 kg")
ADDED = SMALL.replace("[01-04]", "[01-30]")
DROPPED = SMALL.replace("[01-04]", "[01-03]")
DOWN = StoreError("the store is down")


@dataclass
class Site:
    """One machine's policy files and the store behind them; `start` is a process start."""

    folder: Path
    memory: Memory = field(default_factory=Memory)
    leading: bool = True

    @property
    def file(self) -> Path:
        """Return the policy file."""
        return self.folder / "policy.yaml"

    def start(self) -> PolicyDesk:
        """Start anew."""
        self.store = FakeStore(self.memory)
        self.inbox = Inbox()
        self.source = PolicySource([self.file], None, quiet_s=QUIET_S, poll_s=QUIET_S)
        return PolicyDesk(self.source, self.store, self.inbox, FakeClock(), lambda: self.leading, apply_s=1.0)

    async def begin(self) -> tuple[PolicyDesk, Begun]:
        """Start, and begin a reign."""
        desk = self.start()
        return desk, await desk.begin()

    def changes(self) -> list[PolicyChanged]:
        """Take the changes that wait in the inbox."""
        return [fact for fact in self.inbox.drain() if isinstance(fact, PolicyChanged)]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A site with the small policy."""
    made = Site(tmp_path)
    made.file.write_text(SMALL)
    return made


def limit_w(begun: Begun) -> int:
    """Return the rack's limit in force after what was begun with, and its change."""
    policy = begun.change.policy if begun.change is not None else begun.policy
    return policy.domains[0].limit_w


async def ruled(site: Site, desk: PolicyDesk) -> None:
    """Let what is in force be recorded, as after a tick."""
    desk.arrived(desk.in_force.policy.revision)
    await desk.save(desk.in_force.policy.revision)


async def test_the_files_are_in_force_at_the_first_start(site: Site) -> None:
    """Nothing is stored: the files' policy begins, and is saved with author, time and files once it is recorded."""
    desk, begun = await site.begin()
    assert begun.change is None
    assert limit_w(begun) == 60_000
    assert site.memory.policies == []
    await desk.save(Revision("another"))
    assert site.memory.policies == []
    await desk.save(begun.policy.revision)
    (record,) = site.memory.policies
    assert (record.revision, record.author, record.unix_s) == (begun.policy.revision, FROM_FILES, 1_700_001_000.0)
    assert record.files[0].text == SMALL
    assert site.memory.digest == site.source.digest()
    site.store.trace.clear()
    await desk.save(begun.policy.revision)
    assert site.store.trace == []


async def test_a_store_that_fails_keeps_the_policy_for_later(site: Site) -> None:
    """What could not be saved is saved after a later tick."""
    desk, begun = await site.begin()
    site.store.fails["add_policy"] = DOWN
    await desk.save(begun.policy.revision)
    assert site.memory.policies == []
    site.store.fails.clear()
    await desk.save(begun.policy.revision)
    assert len(site.memory.policies) == 1


async def test_invariant_10_files_edited_while_nobody_looked_come_as_a_change(site: Site) -> None:
    """A restart begins with the policy that was in force, then changes it: moved nodes and lower limits are seen."""
    await ruled(site, (await site.begin())[0])
    site.file.write_text(LOWER)
    desk, begun = await site.begin()
    assert begun.policy.domains[0].limit_w == 60_000
    assert begun.change is not None
    assert begun.change.author == FROM_FILES
    assert limit_w(begun) == 50_000
    assert desk.in_force.policy is begun.change.policy
    assert site.changes() == []


async def test_what_an_operator_applied_survives_a_restart(site: Site) -> None:
    """Files that were in force before and have not changed do not undo it; edited ones do."""
    desk, _ = await site.begin()
    await ruled(site, desk)
    await applied(site, desk, LOWER)
    await ruled(site, desk)
    desk, begun = await site.begin()
    assert limit_w(begun) == 50_000
    assert begun.change is None
    site.file.write_text(LOWEST)
    _, begun = await site.begin()
    assert limit_w(begun) == 40_000


async def test_files_that_say_what_is_in_force_count_as_seen(site: Site) -> None:
    """An applied policy that is then written into the files, and a later one applied: the later one survives."""
    desk, _ = await site.begin()
    await ruled(site, desk)
    await applied(site, desk, LOWER)
    await ruled(site, desk)
    site.file.write_text(LOWER)
    await desk._files_changed()
    await ruled(site, desk)
    await applied(site, desk, LOWEST)
    await ruled(site, desk)
    _, begun = await site.begin()
    assert limit_w(begun) == 40_000


async def test_invariant_10_bad_files_at_the_start_leave_the_last_good_policy(site: Site) -> None:
    """The stored policy begins; status and events name file, line and column."""
    await ruled(site, (await site.begin())[0])
    site.file.write_text(BROKEN)
    desk, begun = await site.begin()
    assert limit_w(begun) == 60_000
    (notice,) = desk.notices
    assert notice.reason == "policy_refused"
    assert f"{site.file}:3:" in notice.message
    assert [event.reason for event in desk.events()] == ["policy_refused"]


@pytest.mark.parametrize("text", [BROKEN, TOO_LOW, ADDED])
async def test_bad_files_without_a_last_good_policy_are_an_error(site: Site, text: str) -> None:
    """A policy that is wrong, or whose wishes do not fit, never begins."""
    site.file.write_text(text)
    with pytest.raises(PolicyError):
        await site.begin()
    assert site.memory.policies == []


async def test_a_lowered_limit_begins_although_it_does_not_fit(site: Site) -> None:
    """A limit that is lower than the wishes is never refused, at a restart neither."""
    desk, _ = await site.begin()
    await ruled(site, desk)
    site.file.write_text(TOO_LOW)
    await desk._files_changed()
    assert len(site.changes()) == 1
    await ruled(site, desk)
    _, begun = await site.begin()
    assert limit_w(begun) == 15_000


@pytest.mark.parametrize("call", ["policies", "seen_digest"])
async def test_a_store_that_fails_is_no_empty_store(site: Site, call: str) -> None:
    """Without the store's word nothing begins: the files alone would free what moved nodes may draw."""
    await ruled(site, (await site.begin())[0])
    desk = site.start()
    site.store.fails[call] = DOWN
    with pytest.raises(StoreError):
        await desk.begin()


async def test_a_store_that_lost_everything_is_told_what_is_in_force(site: Site) -> None:
    """A new reign of the same process keeps its policy and saves it anew."""
    desk, _ = await site.begin()
    await ruled(site, desk)
    await applied(site, desk, LOWER)
    site.memory.forget()
    begun = await desk.begin()
    assert begun.policy.domains[0].limit_w == 50_000
    await desk.save(begun.policy.revision)
    assert site.memory.policies[-1].author == "ann"


async def test_a_stored_policy_that_loads_no_more_does_not_stop_the_start(site: Site) -> None:
    """A policy of another version is passed over, and the files begin."""
    await ruled(site, (await site.begin())[0])
    record = site.memory.policies.pop()
    bad = type(record)(record.revision, record.author, record.unix_s, (type(record.files[0])("a.yaml", BROKEN),))
    site.memory.policies.append(bad)
    _, begun = await site.begin()
    assert limit_w(begun) == 60_000


async def test_an_edit_comes_into_force_once_the_files_are_quiet(site: Site) -> None:
    """Half-written files are not read; the last text counts, once."""
    desk, _ = await site.begin()
    async with asyncio.TaskGroup() as group:
        following = group.create_task(desk.run())
        site.file.write_text(BROKEN)
        await asyncio.sleep(0)
        site.file.write_text(LOWER)
        await async_wait_until(lambda: len(site.inbox), within_s=10, what="the change")
        following.cancel()
    (change,) = site.changes()
    assert change.policy.domains[0].limit_w == 50_000
    assert desk.notices == ()


async def test_invariant_10_a_bad_edit_keeps_the_last_good_policy_until_it_is_mended(site: Site) -> None:
    """The notice stands while the file is wrong, and is gone when it says again what is in force."""
    desk, _ = await site.begin()
    async with asyncio.TaskGroup() as group:
        following = group.create_task(desk.run())
        site.file.write_text(BROKEN)
        await async_wait_until(lambda: desk.notices, within_s=10, what="the notice")
        assert desk.in_force.policy.domains[0].limit_w == 60_000
        site.file.write_text(SMALL)
        await async_wait_until(lambda: not desk.notices, within_s=10, what="the notice to go")
        following.cancel()
    assert site.changes() == []


async def test_wishes_that_do_not_fit_are_refused_and_named(site: Site) -> None:
    """An edit that asks for more than the limit: nothing changes, the notice names place and watts."""
    desk, _ = await site.begin()
    site.file.write_text(ADDED)
    await desk._files_changed()
    assert site.changes() == []
    assert f"{site.file}:" in desk.notices[0].message


async def test_a_reload_that_was_asked_for_reads_unchanged_files(site: Site) -> None:
    """SIGHUP puts the files in force again over a policy that was applied."""
    desk, _ = await site.begin()
    await applied(site, desk, LOWER)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(desk.run())
        site.source.reload()
        await async_wait_until(lambda: len(site.inbox), within_s=10, what="the change")
        following.cancel()
    (change,) = site.changes()
    assert change.policy.domains[0].limit_w == 60_000


async def test_a_controller_that_stands_by_changes_nothing(site: Site) -> None:
    """Edits wait for the next reign, an operator is told where to go."""
    site.leading = False
    desk, _ = await site.begin()
    site.file.write_text(LOWER)
    await desk._files_changed()
    assert site.changes() == []
    with pytest.raises(DeskError, match="does not lead"):
        await desk.apply([("a.yaml", LOWER.encode())], "ann", None)


async def applied(site: Site, desk: PolicyDesk, text: str, expected: Revision | None = None) -> None:
    """Apply a policy as an operator, with a controller that ticks."""
    async with asyncio.TaskGroup() as group:
        applying = group.create_task(desk.apply([("rack.yaml", text.encode())], "ann", expected))
        await async_wait_until(lambda: len(site.inbox), within_s=5, what="the change")
        (change,) = site.changes()
        desk.arrived(Revision("the one before"))
        await asyncio.sleep(0)
        assert not applying.done()
        desk.arrived(change.policy.revision)
    assert applying.result().applied
    assert change.author == "ann"


async def test_apply_answers_once_the_policy_is_in_force(site: Site) -> None:
    """A tick under the old policy is not enough; the revision expected is the one that was in force."""
    desk, begun = await site.begin()
    await applied(site, desk, LOWER, begun.policy.revision)
    await ruled(site, desk)
    assert [record.author for record in site.memory.policies] == ["ann"]
    with pytest.raises(PolicyMoved):
        await desk.apply([("rack.yaml", LOWEST.encode())], "bob", begun.policy.revision)


async def test_apply_of_what_is_in_force_changes_nothing(site: Site) -> None:
    """The same bytes again are applied already."""
    desk, begun = await site.begin()
    again = await desk.apply([(str(site.file), SMALL.encode())], "ann", None)
    assert (again.applied, again.revision) == (True, begun.policy.revision)
    assert site.changes() == []


@pytest.mark.parametrize("text", [BROKEN, ADDED])
async def test_invariant_10_apply_refuses_what_is_wrong(site: Site, text: str) -> None:
    """Problems with their places come back, and nothing changed: no notice either, for the files are fine."""
    desk, begun = await site.begin()
    answer = await desk.apply([("rack.yaml", text.encode())], "ann", None)
    assert not answer.applied
    assert answer.problems[0].file == "rack.yaml"
    assert desk.in_force.policy.revision == begun.policy.revision
    assert desk.notices == ()
    assert site.changes() == []


async def test_apply_says_so_when_nobody_ticks(site: Site) -> None:
    """An operator is not kept waiting for ever."""
    desk, _ = await site.begin()
    with pytest.raises(DeskError, match="not in force yet"):
        await desk.apply([("rack.yaml", LOWER.encode())], "ann", None)


async def test_check_judges_against_what_is_in_force_and_names_dropped_nodes(site: Site) -> None:
    """A verdict, no error: dropped nodes are named, nothing changes."""
    desk, begun = await site.begin()
    verdict = await desk.check([("rack.yaml", DROPPED.encode())])
    assert any("gpu-04" in problem.message for problem in verdict.problems)
    assert verdict.revision not in {None, begun.policy.revision}
    broken = await desk.check([("rack.yaml", BROKEN.encode())])
    assert broken.revision is None
    assert site.changes() == []


async def test_policies_are_shown_with_and_without_the_store(site: Site) -> None:
    """The one in force is known without the store; history is not."""
    desk, begun = await site.begin()
    assert (await desk.policy(None)).revision == begun.policy.revision
    await ruled(site, desk)
    await applied(site, desk, LOWER)
    await ruled(site, desk)
    assert (await desk.policy(begun.policy.revision)).files[0].text == SMALL
    with pytest.raises(RevisionUnknown):
        await desk.policy(Revision("nobody-knows"))
    site.store.fails[""] = DOWN
    assert (await desk.policy(None)).files[0].text == LOWER
    with pytest.raises(StoreUnavailable):
        await desk.policy(begun.policy.revision)


async def test_before_the_first_reign_no_policy_is_in_force(site: Site) -> None:
    """It says what the controller waits for."""
    with pytest.raises(RevisionUnknown, match="waits for its store"):
        await site.start().policy(None)
