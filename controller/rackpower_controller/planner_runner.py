"""The planner beside the tick: one thread, the newest question wins, a late answer hurts nobody.

The thread is a daemon: a solver that never returns must not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from functools import partial

from rackpower_common.clock import Clock
from rackpower_controller.core.decision import Event, Severity
from rackpower_controller.core.planning import Plan, Planner, PlanRequest
from rackpower_controller.durations import Durations

DEADLINE_S = 0.5
"""Seconds for the solver; after them the planner's water-fill answers."""

HUNG_S = 10.0
"""A planner that has not answered after so many seconds is told to the operator; the thread cannot be ended."""


class PlannerRunner:
    """Runs a `Planner` in a thread of its own and keeps its last plan.

    Args:
        planner: Answers requests.
        clock: For durations.
        on_event: Takes the words about a planner that failed or hangs.
        deadline_s: Seconds for the solver.
        hung_s: Seconds after which a planner counts as hung.
    """

    def __init__(
        self,
        planner: Planner,
        clock: Clock,
        on_event: Callable[[Event], object],
        *,
        deadline_s: float = DEADLINE_S,
        hung_s: float = HUNG_S,
    ) -> None:
        self._planner = planner
        self._clock = clock
        self._on_event = on_event
        self._deadline_s = deadline_s
        self._hung_s = hung_s
        self._asked: PlanRequest | None = None
        self._waiting: PlanRequest | None = None
        self._wake = asyncio.Event()
        self.plan: Plan | None = None
        self.durations = Durations()
        self.failures = 0

    def submit(self, request: PlanRequest) -> None:
        """Ask for a plan unless this very question was the last one asked; an unanswered older one is dropped."""
        if request == self._asked:
            return
        self._asked = self._waiting = request
        self._wake.set()

    async def run(self) -> None:
        """Answer requests for ever."""
        thread = _Thread(self._planner, self._deadline_s)
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                request, self._waiting = self._waiting, None
                if request is not None:
                    await self._answer(thread, request)
        finally:
            thread.end()

    async def _answer(self, thread: _Thread, request: PlanRequest) -> None:
        started_s = self._clock.now_s()
        answer = thread.ask(request)
        try:
            while True:
                done, _ = await asyncio.wait({answer}, timeout=self._hung_s)
                if done:
                    break
                self._tell("planner_hung", f"the planner has not answered for {self._clock.now_s() - started_s:.0f} s")
            self.plan = answer.result()
        except Exception as error:  # noqa: BLE001 - a bug in a planner must not stop lowers and renewals
            self.failures += 1
            self._asked = None  # the same question may be asked again
            self._tell("planner_failed", f"the planner failed: {type(error).__name__}: {error}")
        else:
            self.durations.add(self._clock.now_s() - started_s)

    def _tell(self, reason: str, message: str) -> None:
        hint = "caps stay where they are, limits are met without it; please report this"
        self._on_event(Event(Severity.ERROR, reason, f"{message}; {hint}"))


class _Thread:
    """One daemon thread that answers one request after the other."""

    def __init__(self, planner: Planner, deadline_s: float) -> None:
        self._planner = planner
        self._deadline_s = deadline_s
        self._loop = asyncio.get_running_loop()
        self._asked: queue.SimpleQueue[tuple[PlanRequest, asyncio.Future[Plan]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="planner", daemon=True).start()

    def ask(self, request: PlanRequest) -> asyncio.Future[Plan]:
        """Return the plan to come."""
        answer: asyncio.Future[Plan] = self._loop.create_future()
        self._asked.put((request, answer))
        return answer

    def end(self) -> None:
        """Let the thread end after the request under way."""
        self._asked.put(None)

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            request, answer = asked
            try:
                plan = self._planner.plan(request, self._deadline_s)
            except Exception as error:  # noqa: BLE001 - told by the one who asked
                self._tell(answer, partial(answer.set_exception, error))
            else:
                self._tell(answer, partial(answer.set_result, plan))

    def _tell(self, answer: asyncio.Future[Plan], tell: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
            self._loop.call_soon_threadsafe(lambda: None if answer.done() else tell())
