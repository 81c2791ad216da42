"""Facts on their way to the owner of the state: bounded, the newest report of a stream wins, urgent ones wake it."""

from __future__ import annotations

import asyncio

from rackpower_common.model.identity import StreamId
from rackpower_controller.core.facts import Fact, NodeReported

FACTS_LIMIT = 4096
"""Facts that wait at most; beyond, the oldest reports are dropped, their streams' next ones come in a second."""


class Inbox:
    """A queue in which a report takes the place of the stream's last one, and keeps its turn among other facts."""

    def __init__(self) -> None:
        self._facts: list[Fact] = []
        self._reports: dict[StreamId, int] = {}
        self._woken = asyncio.Event()
        self.dropped = 0

    def put(self, fact: Fact) -> None:
        """Add a fact; never waits."""
        if isinstance(fact, NodeReported):
            place = self._reports.get(fact.stream)
            if place is not None:
                self._facts[place] = self._newer(fact, self._facts[place])
                return
            if len(self._facts) >= FACTS_LIMIT:
                self.dropped += 1
                return
            self._reports[fact.stream] = len(self._facts)
        self._facts.append(fact)
        if _wakes(fact):
            self._woken.set()

    @staticmethod
    def _newer(fact: NodeReported, waiting: Fact) -> Fact:
        if isinstance(waiting, NodeReported) and waiting.report.sequence > fact.report.sequence:
            return waiting
        return fact

    def wake(self) -> None:
        """Wake the owner now."""
        self._woken.set()

    def drain(self) -> list[Fact]:
        """Take every fact, oldest first."""
        facts, self._facts, self._reports = self._facts, [], {}
        self._woken.clear()
        return facts

    async def wait(self, timeout_s: float) -> bool:
        """Wait until an urgent fact is there or the time is over; returns whether it was woken."""
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                await self._woken.wait()
        except TimeoutError:
            return False
        return True


def _wakes(fact: Fact) -> bool:
    """Whether somebody waits for what follows: all but a report that tells of no override can."""
    return not isinstance(fact, NodeReported) or any(line.override_w is not None for line in fact.report.gpus)
