"""Blocking calls off the event loop: one daemon thread that makes them in order.

An executor's threads are joined when the interpreter ends: a disk or driver that hangs would keep the process.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
Value = TypeVar("Value")


class Background:
    """One thread, started by the first call.

    Args:
        name: The thread's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def call(self, function: Callable[P, Value], *args: P.args, **kwargs: P.kwargs) -> Value:
        """Return what the function returns or raises. A call given up before its turn is not made."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Value] = loop.create_future()

        def make() -> None:
            if answer.cancelled():
                return
            try:
                value = function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - handed to who asked
                tell, told = _fail, error
            else:
                tell, told = _answer, value  # type: ignore[assignment]
            with suppress(RuntimeError):  # the loop has ended: nobody asks any longer
                loop.call_soon_threadsafe(tell, answer, told)

        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._calls.put(make)
        return await answer

    def stop(self) -> None:
        """End the thread after the calls that wait; never waits."""
        self._calls.put(None)

    def _run(self) -> None:
        while (make := self._calls.get()) is not None:
            make()


def _answer(answer: asyncio.Future[Any], value: Any) -> None:
    if not answer.done():
        answer.set_result(value)


def _fail(answer: asyncio.Future[Any], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
