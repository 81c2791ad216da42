"""What operators are answered from: the last tick, the policies, the events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from rackpower_common.clock import Clock
from rackpower_common.model.identity import Revision
from rackpower_controller.controller import Controller, Ticked
from rackpower_controller.core.decision import Severity
from rackpower_controller.events_log import EventLog
from rackpower_controller.operator_api.base import Applied, PolicyFiles, StatusSource, Verdict
from rackpower_controller.planner_runner import PlannerRunner
from rackpower_controller.policy_desk import PolicyDesk
from rackpower_controller.reign import Reign
from rackpower_controller.store.base import EventRecord, PolicyRecord


class ControllerDesk:
    """Implements the operators' `Desk`.

    Args:
        controller: Whose ticks are shown.
        policies: Policies.
        events: Events.
        planner: For how long plans take.
        reign: For the store's state.
        clock: Time.
        version: Ours.
    """

    def __init__(
        self,
        controller: Controller,
        policies: PolicyDesk,
        events: EventLog,
        planner: PlannerRunner,
        reign: Reign,
        clock: Clock,
        version: str,
    ) -> None:
        self._controller = controller
        self._policies = policies
        self._events = events
        self._planner = planner
        self._reign = reign
        self._clock = clock
        self._version = version
        self._source = self._before_the_first_tick()
        self._news = asyncio.Event()
        controller.listen(self._ticked)

    def _before_the_first_tick(self) -> StatusSource:
        return StatusSource(
            now_s=self._clock.now_s(),
            unix_s=self._clock.unix_s(),
            state=self._controller.state,
            policy=self._controller.policy,
            plan=None,
            decision=None,
            decide=self._controller.durations,
            plans=self._planner.durations,
            store_detail=self._reign.detail or "it has not been reached yet",
            sentence="Starting: nothing was decided yet.",
            controller_version=self._version,
            notices=self._policies.notices,
        )

    def _ticked(self, ticked: Ticked) -> None:
        self._source = replace(
            self._source,
            now_s=ticked.now_s,
            unix_s=self._clock.unix_s(),
            state=ticked.state,
            policy=ticked.policy,
            plan=self._planner.plan,
            decision=ticked.decision,
            store_detail=self._reign.detail,
            sentence=ticked.decision.sentence,
            notices=self._policies.notices,
        )
        self._news.set()
        self._news = asyncio.Event()

    def status(self) -> StatusSource:
        """Return what the newest status is drawn from."""
        return self._source

    async def watch(self) -> AsyncIterator[StatusSource]:
        """Yield the newest status source after every tick."""
        shown: StatusSource | None = None
        while True:
            if self._source is not shown:
                shown = self._source
                yield shown
                continue
            await self._news.wait()

    async def policy(self, revision: Revision | None) -> PolicyRecord:
        """Return a policy revision."""
        return await self._policies.policy(revision)

    async def check(self, files: PolicyFiles) -> Verdict:
        """Judge a policy."""
        return await self._policies.check(files)

    async def apply(self, files: PolicyFiles, author: str, expected: Revision | None) -> Applied:
        """Judge a policy and put it in force."""
        return await self._policies.apply(files, author, expected)

    def past_events(self, limit: int, at_least: Severity) -> list[EventRecord]:
        """Return past events."""
        return self._events.past(limit, at_least)

    def follow_events(self, at_least: Severity) -> AsyncIterator[EventRecord]:
        """Yield events from now on."""
        return self._events.follow(at_least)
