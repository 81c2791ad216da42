"""Facts on their way to the owner of the state: bounded, the newest report of a stream wins, urgent ones wake it."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from rackpower_controller.core.facts import Fact, NodeConnected, NodeReported, WriteFailed

FACTS_LIMIT = 4096
"""Facts of agents that wait at most; beyond, hellos are refused and the rest is dropped: a report comes every second.

Streams that end and words of the controller itself are always taken: they are few, and nobody says them again.
"""


class Inbox:
    """A queue in which a newer report or write error takes the place of the one that it outdates, and keeps its turn.

    Owned by one event loop; nothing here waits but `wait`.
    """

    def __init__(self) -> None:
        self._facts: list[Fact] = []
        self._places: dict[Hashable, int] = {}
        self._woken = asyncio.Event()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._facts)

    def put(self, fact: Fact) -> bool:
        """Add a fact; never waits.

        Returns:
            False when it was not taken because too many wait.
        """
        key = _outdates(fact)
        place = self._places.get(key) if key is not None else None
        if place is not None:
            self._facts[place] = _newer(fact, self._facts[place])
        elif len(self._facts) >= FACTS_LIMIT and isinstance(fact, NodeConnected | NodeReported | WriteFailed):
            self.dropped += 1
            self._woken.set()
            return False
        else:
            if key is not None:
                self._places[key] = len(self._facts)
            self._facts.append(fact)
        if _wakes(fact):
            self._woken.set()
        return True

    def wake(self) -> None:
        """Wake the owner now."""
        self._woken.set()

    def drain(self) -> list[Fact]:
        """Take every fact, oldest first."""
        facts, self._facts, self._places = self._facts, [], {}
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


def _outdates(fact: Fact) -> Hashable:
    """Return what a newer fact of the same kind and key makes worthless, None for a fact that stands for itself."""
    match fact:
        case NodeReported():
            return fact.stream
        case WriteFailed():
            return (fact.stream, fact.error.gpu)
        case _:
            return None


def _newer(fact: Fact, waiting: Fact) -> Fact:
    if isinstance(fact, NodeReported) and isinstance(waiting, NodeReported):
        return fact if fact.report.sequence >= waiting.report.sequence else waiting
    return fact


def _wakes(fact: Fact) -> bool:
    """Whether somebody waits for what follows: all but a report that tells of no override can."""
    return not isinstance(fact, NodeReported) or any(line.override_w is not None for line in fact.report.gpus)
