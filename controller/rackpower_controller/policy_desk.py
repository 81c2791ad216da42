"""Policies on their way into force: from files, from the store at start, from operators; the last good one stays."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from rackpower_common.clock import Clock
from rackpower_common.model.identity import Revision
from rackpower_common.model.policy import Policy
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
from rackpower_controller.store.base import PolicyRecord, PolicyText, Store, StoreError

FROM_FILES = "policy files"
"""The author of a policy that came from the files on disk."""

APPLY_S = 5.0
"""How long an operator waits for a policy to come into force."""

log = structlog.get_logger("rackpower.policy")


class PolicyDesk:
    """Judges policies, puts them in force through the inbox, keeps their history.

    Args:
        source: The files on disk.
        store: Where revisions are kept.
        inbox: Where a policy goes to come into force.
        clock: For times of revisions.
    """

    def __init__(self, source: PolicySource, store: Store, inbox: Inbox, clock: Clock) -> None:
        self._source = source
        self._store = store
        self._inbox = inbox
        self._clock = clock
        self._in_force: LoadedPolicy | None = None
        self._seen_digest = ""
        self._unsaved: tuple[PolicyRecord, str] | None = None
        self._arrived = asyncio.Event()
        self.notices: tuple[Notice, ...] = ()

    @property
    def in_force(self) -> LoadedPolicy:
        """Return the policy in force.

        Raises:
            RevisionUnknown: There is none yet.
        """
        if self._in_force is None:
            raise RevisionUnknown("no policy is in force yet")
        return self._in_force

    async def begin(self) -> Policy:
        """Find the policy to start with; what the files say differently follows as a change, so that nothing is freed.

        Returns:
            The policy that was in force before, as the store knows it, else that of the files.

        Raises:
            PolicyError: The files are wrong and the store knows no policy.
        """
        stored = await self._stored()
        digest = self._source.digest()
        try:
            files = self._source.read()
        except PolicyError as error:
            if stored is None:
                raise
            self._refused(error.problems, ())
            self._in_force = stored
            return stored.policy
        if stored is None:
            problems = [problem for problem in judge(files, None) if problem.severity is Severity.ERROR]
            if problems:
                raise PolicyError(problems)
            self._in_force = files
            self._unsaved = (self._record(files, FROM_FILES), digest)
            return files.policy
        self._in_force = stored
        if digest != await self._seen() and files.policy.revision != stored.policy.revision:
            self._consider(files, FROM_FILES, digest)
        return stored.policy

    async def run(self) -> None:
        """Follow the files for ever."""
        await self._source.run(self._files_changed)

    async def _files_changed(self) -> None:
        digest = self._source.digest()
        try:
            loaded = await asyncio.to_thread(self._source.read)
        except PolicyError as error:
            self._refused(error.problems, ())
            return
        if loaded.policy.revision == self.in_force.policy.revision:
            self.notices = ()
            return
        self._consider(loaded, FROM_FILES, digest)

    def _consider(self, loaded: LoadedPolicy, author: str, digest: str) -> tuple[Problem, ...]:
        """Put a policy in force unless its wishes do not fit; return everything found."""
        problems = (*loaded.problems, *judge(loaded, self._in_force.policy if self._in_force else None))
        if any(problem.severity is Severity.ERROR for problem in problems):
            if author == FROM_FILES:
                self._refused(problems, loaded.files)
            return problems
        for problem in problems:
            log.warning(str(problem))
        self.notices = ()
        self._in_force = loaded
        self._unsaved = (self._record(loaded, author), digest)
        self._inbox.put(PolicyChanged(loaded.policy, author, self._clock.now_s()))
        return problems

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

    def arrived(self) -> None:
        """Wake those who wait for a policy to come into force; called after every tick."""
        self._arrived.set()
        self._arrived = asyncio.Event()

    async def save(self, revision: Revision) -> None:
        """Keep the policy in the store, once the former places that it makes are recorded; tries again until it can."""
        if self._unsaved is None or self._unsaved[0].revision != revision:
            return
        unsaved = self._unsaved
        try:
            await self._store.add_policy(unsaved[0])
            if unsaved[1]:
                await self._store.set_seen_digest(unsaved[1])
        except StoreError as error:
            log.warning("the policy is not in the store yet", reason=str(error))
            return
        if self._unsaved is unsaved:
            self._unsaved = None

    def _record(self, loaded: LoadedPolicy, author: str) -> PolicyRecord:
        texts = tuple(PolicyText(name, content.decode("utf-8-sig")) for name, content in loaded.files)
        return PolicyRecord(loaded.policy.revision, author, self._clock.unix_s(), texts)

    async def _stored(self) -> LoadedPolicy | None:
        try:
            newest = await self._store.policies(1)
        except StoreError as error:
            log.warning("the store tells no policy", reason=str(error))
            return None
        if not newest:
            return None
        try:
            files = [(text.name, text.text.encode()) for text in newest[0].files]
            return self._source.parse(files, newest[0].author)
        except PolicyError as error:
            log.warning("the store's policy does not load any more", reason=str(error))
            return None

    async def _seen(self) -> str:
        try:
            return await self._store.seen_digest()
        except StoreError:
            return ""

    async def policy(self, revision: Revision | None) -> PolicyRecord:
        """Return a revision with its files."""
        if revision is None or (self._in_force is not None and revision == self._in_force.policy.revision):
            loaded = self.in_force
            if self._unsaved is not None and self._unsaved[0].revision == loaded.policy.revision:
                return self._unsaved[0]
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
        if expected is not None and expected != now:
            raise PolicyMoved(f"revision {now} is in force, not {expected}", "look at `rackctl policy show` first")
        if loaded.policy.revision == now:
            return Applied(applied=True, problems=loaded.problems, revision=now)
        problems = self._consider(loaded, author, "")
        if any(problem.severity is Severity.ERROR for problem in problems):
            return Applied(applied=False, problems=problems, revision=loaded.policy.revision)
        try:
            async with asyncio.timeout(APPLY_S):
                await self._arrived.wait()
        except TimeoutError:
            raise DeskError("the controller has not ticked for too long, look at its log") from None
        return Applied(applied=True, problems=problems, revision=loaded.policy.revision)
