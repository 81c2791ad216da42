"""Blocking calls that may never return, made side by side with a deadline; a thread that hangs is left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from rackpower_common.clock import Clock

Key = TypeVar("Key")
Value = TypeVar("Value")


def all_within(calls: Mapping[Key, Callable[[], Value]], clock: Clock, deadline_s: float) -> dict[Key, Value]:
    """Make every call at once and return what came back in time; what hangs holds up no other.

    Args:
        calls: What to call; none of them may raise.
        clock: Time.
        deadline_s: How long all of it may take, in seconds.

    Returns:
        The values of the calls that returned.
    """
    done: dict[Key, Value] = {}

    def make(key: Key, call: Callable[[], Value]) -> None:
        done[key] = call()

    threads = [threading.Thread(target=make, args=item, daemon=True) for item in calls.items()]
    for thread in threads:
        thread.start()
    ends_s = clock.now_s() + deadline_s
    for thread in threads:
        thread.join(max(0.0, ends_s - clock.now_s()))
    return dict(done)
