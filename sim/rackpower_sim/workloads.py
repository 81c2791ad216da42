"""Simulated inference servers: requests queue for a replica and are served, first come first served, at its rate.

A replica is one GPU or several that gate each other; it is as fast as its slowest GPU times their number. Served
tokens are a fluid, so that a request's tokens are counted as they are generated. The curve's rate already includes
prefill, as the measured peaks do; batching and latency come later. Pure, and in lanes like `physics`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rackpower_sim.physics import Floats
from rackpower_sim.traces import Request

QUEUE_LIMIT_TOKENS: Final = 400_000.0
"""Outstanding tokens at which a replica takes no more requests: about half an hour's work."""
_TIE_TOKENS: Final = 1e-3
_DONE_TOKENS: Final = 1e-6


class ReplicaCounts(NamedTuple):
    """One replica so far; tokens since the start, `running` and `waiting` requests now."""

    generated_tokens: float
    prompt_tokens: float
    completed: int
    running: int
    waiting: int
    refused: int


class _Queue:
    """The requests of one replica, by the mark of assigned tokens at which each is done."""

    __slots__ = ("assigned", "completed", "head_started", "prompt_tokens", "refused", "waiting")

    def __init__(self) -> None:
        self.assigned = 0.0
        self.completed = 0
        self.prompt_tokens = 0.0
        self.refused = 0
        self.head_started = False
        self.waiting: deque[tuple[float, int]] = deque()

    def add(self, request: Request) -> None:
        self.assigned += request.output_tokens
        self.waiting.append((self.assigned, request.prompt_tokens))

    def served(self, outstanding: float) -> None:
        """Complete what is done and begin what comes next."""
        mark = self.assigned - outstanding + _DONE_TOKENS
        while self.waiting:
            if not self.head_started:
                self.prompt_tokens += self.waiting[0][1]
                self.head_started = True
            if self.waiting[0][0] > mark:
                break
            self.waiting.popleft()
            self.completed += 1
            self.head_started = False


class ReplicaBank:
    """All replicas of a rack, and the balancer before them.

    Args:
        groups: GPU indices of each replica; no GPU in two.
        gpus: How many GPUs there are; those of no replica stay idle.
        arrivals: Requests by arrival; may never end.
        lanes: How many copies run side by side.
        records: Whether single requests are followed, in lane 0; evaluation needs only tokens.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[int]],
        gpus: int,
        arrivals: Iterator[Request],
        lanes: int = 1,
        records: bool = True,
        queue_limit_tokens: float = QUEUE_LIMIT_TOKENS,
    ) -> None:
        self._sizes = np.array([len(group) for group in groups], dtype=np.int64)
        self._order = np.array([gpu for group in groups for gpu in group], dtype=np.int64)
        self._starts = np.concatenate(([0], np.cumsum(self._sizes)[:-1]))
        self._arrivals = arrivals
        self._next = next(arrivals, None)
        self._limit = queue_limit_tokens
        self._lanes = np.arange(lanes)
        self._dispatched = 0
        replicas = len(groups)
        ranks = (np.arange(replicas)[None, :] - np.arange(replicas)[:, None]) % replicas
        self._ties: Floats = ranks.astype(np.float64) * _TIE_TOKENS
        self.serving: npt.NDArray[np.bool_] = np.ones(replicas, dtype=np.bool_)
        self.outstanding: Floats = np.zeros((lanes, replicas))
        self.generated: Floats = np.zeros((lanes, replicas))
        self.arrived = 0
        self._load: Floats = np.zeros((lanes, gpus))
        self._queues = [_Queue() for _ in groups] if records else []

    def admit(self, until_s: float) -> None:
        """Hand the requests that arrive before `until_s` to the replicas with the least work outstanding.

        While no replica is serving, requests wait before the balancer.
        """
        if not self.serving.any():
            return
        closed = None if self.serving.all() else np.where(self.serving, 0.0, np.inf)
        while self._next is not None and self._next.arrival_s < until_s:
            self._dispatch(self._next, closed)
            self._next = next(self._arrivals, None)

    def serve(self, rates: Floats, step_s: float) -> Floats:
        """Serve for one step.

        Args:
            rates: Tokens/s of each GPU if busy, shape `(lanes, gpus)`.
            step_s: Seconds.

        Returns:
            Share of the step that each GPU was busy, shape `(lanes, gpus)`.
        """
        slowest = np.minimum.reduceat(rates[:, self._order], self._starts, axis=1)
        possible = np.where(self.serving, slowest * self._sizes * step_s, 0.0)
        done = np.minimum(self.outstanding, possible)
        stalled = (self.outstanding > 0) & self.serving  # at a rate of 0 a replica works and gets nowhere
        busy = np.divide(done, possible, out=stalled.astype(np.float64), where=possible > 0)
        self.outstanding -= done
        self.generated += done
        self._load[:, self._order] = np.repeat(busy, self._sizes, axis=1)
        for queue, outstanding in zip(self._queues, self.outstanding[0].tolist(), strict=False):
            queue.served(outstanding)
        return self._load

    def counts(self) -> tuple[ReplicaCounts, ...]:
        """Return each replica so far, in lane 0.

        Raises:
            ValueError: Single requests are not followed here.
        """
        if not self._queues:
            raise ValueError("this bank was made without records")
        generated = self.generated[0].tolist()
        return tuple(
            ReplicaCounts(
                generated_tokens=tokens,
                prompt_tokens=queue.prompt_tokens,
                completed=queue.completed,
                running=int(queue.head_started),
                waiting=len(queue.waiting) - int(queue.head_started),
                refused=queue.refused,
            )
            for tokens, queue in zip(generated, self._queues, strict=True)
        )

    def _dispatch(self, request: Request, closed: Floats | None) -> None:
        score = self.outstanding + self._ties[self._dispatched % len(self._ties)]
        if closed is not None:
            score = score + closed
        chosen = score.argmin(axis=1)
        room = self.outstanding[self._lanes, chosen] < self._limit
        self.outstanding[self._lanes, chosen] += np.where(room, request.output_tokens, 0)
        self._dispatched += 1
        self.arrived += 1
        if self._queues:
            queue = self._queues[int(chosen[0])]
            if room[0]:
                queue.add(request)
            else:
                queue.refused += 1
