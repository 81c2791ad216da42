"""Policies on their way into force: from files, from the store at start, from operators; the last good one stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from rackpower_common.clock import Clock
from rackpower_common.model.identity import Revision
from rackpower_common.policy import LoadedPolicy, PolicyError, Problem, Severity, judge
from rackpower_common.policy.report import format_problems
from rackpower_controller.core.decision import Event
from rackpower_controller.core.decision import Severity as EventSeverity
from rackpower_controller.core.facts import PolicyChanged
from rackpower_controller.inbox import Inbox
from rackpower_controller.operator_api.base import (
    Applied,
    DeskError,
    Notice,
    PolicyFiles,
    PolicyMoved,
    RevisionUnknown,
    StoreUnavailable,
    Verdict,
)
from rackpower_controller.policy_source import PolicySource
from rackpower_controller.reign import Begun
from rackpower_controller.store.base import PolicyRecord, PolicyText, Store, StoreError

FROM_FILES = "policy files"
"""The author of a policy that came from the files on disk."""

APPLY_S = 5.0
"""How long an operator waits for a policy to come into force."""

log = structlog.get_logger("rackpower.policy")


@dataclass(frozen=True, slots=True)
class _Unsaved:
    """What the store is to remember once `revision` is in force and its former places are recorded.

    `record` is None when the history has it already, `digest` empty when the files on disk had no part in it.
    """

    revision: Revision
    record: PolicyRecord | None
    digest: str


class PolicyDesk:
    """Judges policies, puts them in force through the inbox, keeps their history.

    Only the controller that leads changes the policy in force: one that stands by begins with what the store says.

    Args:
        source: The files on disk.
        store: Where revisions are kept.
        inbox: Where a policy goes to come into force.
        clock: For times of revisions.
        reigning: Tells whether we lead.
        apply_s: How long an operator waits for a policy to come into force, in seconds.
    """

    def __init__(
        self,
        source: PolicySource,
        store: Store,
        inbox: Inbox,
        clock: Clock,
        reigning: Callable[[], bool],
        *,
        apply_s: float = APPLY_S,
    ) -> None:
        self._source = source
        self._store = store
        self._inbox = inbox
        self._clock = clock
        self._reigning = reigning
        self._apply_s = apply_s
        self._in_force: LoadedPolicy | None = None
        self._unsaved: _Unsaved | None = None
        self._seen_digest = ""
        self._arrived = asyncio.Event()
        self._arrived_revision = Revision("")
        self.notices: tuple[Notice, ...] = ()

    @property
    def in_force(self) -> LoadedPolicy:
        """Return the policy in force.

        Raises:
            RevisionUnknown: There is none yet.
        """
        if self._in_force is None:
            raise RevisionUnknown("no policy is in force yet", "the controller waits for its store, or stands by")
        return self._in_force

    async def begin(self) -> Begun:
        """Find the policy to begin a reign with; what the files say differently is a change, so that nothing is freed.

        Files that were in force before and have not changed since do not undo what an operator applied after them.

        Raises:
            PolicyError: The files are wrong, and no last good policy is known.
            StoreError: The store does not tell.
        """
        stored, seen = await self.stored(), await self._store.seen_digest() or self._seen_digest
        digest = self._source.digest()
        before = stored or self._in_force
        if before is None:
            files = await asyncio.to_thread(self._source.read_first)
            self._rule(files, _Unsaved(files.policy.revision, self._record(files, FROM_FILES), digest))
            return Begun(files.policy)
        kept = self._record(before, before.author or FROM_FILES) if stored is None else None
        self._rule(before, _Unsaved(before.policy.revision, kept, seen) if kept is not None else None)
        try:
            files = await asyncio.to_thread(self._source.read)
        except PolicyError as error:
            self._refused(error.problems, ())
            return Begun(before.policy)
        if files.policy.revision == before.policy.revision:
            self._remember(digest)
        elif digest == seen:
            log.info("a policy that was applied stays in force, the files differ", revision=before.policy.revision)
        else:
            return Begun(before.policy, self._consider(files, FROM_FILES, digest)[1])
        return Begun(before.policy)

    def _rule(self, policy: LoadedPolicy, unsaved: _Unsaved | None) -> None:
        self._in_force, self._unsaved, self.notices = policy, unsaved, ()

    async def run(self) -> None:
        """Follow the files for ever."""
        await self._source.run(self._files_changed)

    async def _files_changed(self) -> None:
        if not self._reigning():
            return  # read when a reign begins
        digest = self._source.digest()
        try:
            loaded = await asyncio.to_thread(self._source.read)
        except PolicyError as error:
            self._refused(error.problems, ())
            return
        if loaded.policy.revision == self.in_force.policy.revision:
            self.notices = ()
            self._remember(digest)
            return
        change = self._consider(loaded, FROM_FILES, digest)[1]
        if change is not None:
            self._inbox.put(change)

    def _remember(self, digest: str) -> None:
        """Note that the files on disk say what is in force."""
        unsaved, revision = self._unsaved, self.in_force.policy.revision
        record = unsaved.record if unsaved is not None and unsaved.revision == revision else None
        self._unsaved = _Unsaved(revision, record, digest)

    def _consider(
        self, loaded: LoadedPolicy, author: str, digest: str
    ) -> tuple[tuple[Problem, ...], PolicyChanged | None]:
        """Return everything found about a policy, and the change that puts it in force unless its wishes do not fit."""
        problems = (*loaded.problems, *judge(loaded, self.in_force.policy))
        if any(problem.severity is Severity.ERROR for problem in problems):
            if author == FROM_FILES:
                self._refused(problems, loaded.files)
            return problems, None
        for problem in problems:
            log.warning(str(problem))
        self._rule(loaded, _Unsaved(loaded.policy.revision, self._record(loaded, author), digest))
        return problems, PolicyChanged(loaded.policy, author, self._clock.now_s())

    def _refused(self, problems: Sequence[Problem], files: Sequence[tuple[str, bytes]]) -> None:
        """Say what is wrong with the files; the policy in force stays."""
        log.error("policy refused, the one in force stays", problems=format_problems(problems, files))
        errors = [problem for problem in problems if problem.severity is Severity.ERROR]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        message = f"the policy files are wrong, the last good policy stays: {errors[0]}{more}"
        self.notices = (Notice(EventSeverity.ERROR, "policy_refused", message),)

    def events(self) -> tuple[Event, ...]:
        """Return what stands against the files, as events: told every tick, folded by the log."""
        return tuple(Event(notice.severity, notice.reason, notice.message) for notice in self.notices)

    def arrived(self, revision: Revision) -> None:
        """Wake those who wait for a policy to come into force; called after every tick with the one that is."""
        self._arrived_revision = revision
        self._arrived.set()
        self._arrived = asyncio.Event()

    async def save(self, revision: Revision) -> None:
        """Keep the policy in the store, once the former places that it makes are recorded; tries again until it can."""
        unsaved = self._unsaved
        if unsaved is None or unsaved.revision != revision:
            return
        try:
            if unsaved.record is not None:
                await self._store.add_policy(unsaved.record)
            if unsaved.digest:
                await self._store.set_seen_digest(unsaved.digest)
                self._seen_digest = unsaved.digest
        except StoreError as error:
            log.warning("the policy is not in the store yet", reason=str(error))
            return
        if self._unsaved is unsaved:
            self._unsaved = None

    def _record(self, loaded: LoadedPolicy, author: str) -> PolicyRecord:
        texts = tuple(PolicyText(name, content.decode("utf-8-sig")) for name, content in loaded.files)
        return PolicyRecord(loaded.policy.revision, author, self._clock.unix_s(), texts)

    async def stored(self) -> LoadedPolicy | None:
        """Return the policy that was put in force last, as the store knows it; None when it knows none that loads.

        Raises:
            StoreError: The store does not answer.
        """
        newest = await self._store.policies(1)
        if not newest:
            return None
        files = [(text.name, text.text.encode()) for text in newest[0].files]
        try:
            return await asyncio.to_thread(self._source.parse, files, newest[0].author)
        except PolicyError as error:
            log.warning("the store's policy does not load any more", reason=str(error))
            return None

    async def policy(self, revision: Revision | None) -> PolicyRecord:
        """Return a revision with its files."""
        if revision is None or (self._in_force is not None and revision == self._in_force.policy.revision):
            loaded = self.in_force
            unsaved = self._unsaved
            if unsaved is not None and unsaved.record is not None and unsaved.revision == loaded.policy.revision:
                return unsaved.record
            known = await self._known(loaded.policy.revision)
            return known if known is not None else self._record(loaded, loaded.author or FROM_FILES)
        found = await self._known(revision)
        if found is None:
            raise RevisionUnknown(f"no policy with revision {revision} is known", "`rackctl events` names revisions")
        return found

    async def _known(self, revision: Revision) -> PolicyRecord | None:
        try:
            return await self._store.policy(revision)
        except StoreError as error:
            if self._in_force is not None and revision == self._in_force.policy.revision:
                return None
            raise StoreUnavailable(f"the store does not answer: {error}") from error

    async def check(self, files: PolicyFiles) -> Verdict:
        """Judge a policy without applying it."""
        try:
            loaded = await asyncio.to_thread(self._source.parse, files, "")
        except PolicyError as error:
            return Verdict(error.problems, None)
        old = self._in_force.policy if self._in_force is not None else None
        return Verdict((*loaded.problems, *judge(loaded, old)), loaded.policy.revision)

    async def apply(self, files: PolicyFiles, author: str, expected: Revision | None) -> Applied:
        """Judge a policy and put it in force."""
        try:
            loaded = await asyncio.to_thread(self._source.parse, files, author)
        except PolicyError as error:
            return Applied(applied=False, problems=error.problems, revision=None)
        now = self.in_force.policy.revision
        if not self._reigning():
            raise DeskError("this controller does not lead", "apply the policy to the one that does, or wait")
        if expected is not None and expected != now:
            raise PolicyMoved(f"revision {now} is in force, not {expected}", "look at `rackctl policy show` first")
        if loaded.policy.revision == now:
            return Applied(applied=True, problems=loaded.problems, revision=now)
        problems, change = self._consider(loaded, author, "")
        if change is None:
            return Applied(applied=False, problems=problems, revision=loaded.policy.revision)
        self._inbox.put(change)
        try:
            async with asyncio.timeout(self._apply_s):
                # a later policy in force says that this one was, for a moment
                while self._arrived_revision not in {loaded.policy.revision, self.in_force.policy.revision}:
                    await self._arrived.wait()
        except TimeoutError:
            raise DeskError("it is not in force yet: the controller has not ticked, look at its log") from None
        return Applied(applied=True, problems=problems, revision=loaded.policy.revision)
