"""The planner beside the tick: one thread, the newest question wins, a late answer hurts nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

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
        executor = ThreadPoolExecutor(1, thread_name_prefix="planner")
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                request, self._waiting = self._waiting, None
                if request is not None:
                    await self._answer(executor, request)
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, executor: ThreadPoolExecutor, request: PlanRequest) -> None:
        started_s = self._clock.now_s()
        loop = asyncio.get_running_loop()
        answer = loop.run_in_executor(executor, self._planner.plan, request, self._deadline_s)
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
