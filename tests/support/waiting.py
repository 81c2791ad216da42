"""Waiting for a condition with a deadline: the only place in tests that sleeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

# Long enough to leave the processor to those we wait for, short enough not to be felt.
_POLL_S: Final = 0.02


def wait_until(condition: Callable[[], T], *, within_s: float, what: str) -> T:
    """Poll until a condition is truthy, and return what it returned.

    Args:
        condition: Called again and again; cheap, and without side effects.
        within_s: Seconds to wait at most; generous, since it is only spent by a failing test.
        what: What is waited for, for the message.

    Raises:
        AssertionError: The condition stayed falsy; the message tells its last value.
    """
    deadline_s = time.monotonic() + within_s
    while True:
        last = condition()
        if last:
            return last
        if time.monotonic() > deadline_s:
            raise AssertionError(f"waited {within_s:g} s for {what}; last seen: {last!r}")
        time.sleep(_POLL_S)


async def async_wait_until(condition: Callable[[], T], *, within_s: float, what: str) -> T:
    """Do what `wait_until` does, and leave the event loop running meanwhile.

    Raises:
        AssertionError: The condition stayed falsy; the message tells its last value.
    """
    deadline_s = time.monotonic() + within_s
    while True:
        last = condition()
        if last:
            return last
        if time.monotonic() > deadline_s:
            raise AssertionError(f"waited {within_s:g} s for {what}; last seen: {last!r}")
        await asyncio.sleep(_POLL_S)
