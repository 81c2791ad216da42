"""One thread that reads every GPU's sensors in turn, ten times a second.

A thread a GPU that wakes by itself costs twice as much: waking is dearer than reading. A reading that does not return
costs the others half a second at most: another thread takes over, and the stuck one ends when its call returns.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from rackpower_agent.devices.worker import DeviceWorker
from rackpower_common.clock import Clock

SAMPLE_PERIOD_S: Final = 0.1

STUCK_S: Final = 0.5
"""How long one reading may hold up those of the other GPUs."""


class Sampler:
    """Reads sensors.

    Args:
        workers: Whose.
        clock: Time.
        period_s: How often each is read.
    """

    def __init__(self, workers: Iterable[DeviceWorker], clock: Clock, period_s: float = SAMPLE_PERIOD_S) -> None:
        self._workers = tuple(workers)
        self._clock = clock
        self._period_s = period_s
        self._generation = 0
        self._at: DeviceWorker | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        self._take_over()

    def check(self, now_s: float) -> None:
        """Let another thread take over from one that is stuck; to be called a few times a second, by one thread.

        A stuck reading keeps its GPU's turn, so the next thread passes that GPU over: there are never more threads
        than GPUs and one.
        """
        at = self._at
        since_s = at.sampling_since_s if at is not None else None
        if since_s is not None and now_s - since_s > STUCK_S and not self._stopped.is_set():
            self._take_over()

    def stop(self) -> None:
        """End the thread after the reading under way; never waits."""
        self._stopped.set()

    def _take_over(self) -> None:
        self._generation += 1
        self._at = None
        threading.Thread(target=self._run, args=(self._generation,), name="sampler", daemon=True).start()

    def _run(self, generation: int) -> None:
        due_s = self._clock.now_s()
        while not self._stopped.is_set():
            for worker in self._workers:
                self._at = worker
                worker.sample()
                if generation != self._generation:
                    return
            now_s = self._clock.now_s()
            due_s = max(due_s + self._period_s, now_s)
            self._stopped.wait(due_s - now_s)
