"""Tasks side by side until told to stop; the error of one ends all, and comes out as itself, not as a group."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Job = Coroutine[Any, Any, Any]
Value = TypeVar("Value")


async def run_until(
    stop: asyncio.Event, jobs: Iterable[Job], farewell: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Run jobs side by side until `stop` is set, then `farewell` while they still run, then end them.

    A job that returns is done; the others go on.

    Raises:
        Exception: The first that a job raised; the other jobs were ended, and there was no farewell.
    """
    with one_error():
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(job) for job in jobs]
            await stop.wait()
            if farewell is not None:
                await farewell()
            for task in running:
                task.cancel()


async def beside(background: Job, work: Coroutine[Any, Any, Value]) -> Value:
    """Return what `work` returns; `background` runs as long, and its error ends the work.

    Raises:
        Exception: The first that either raised.
    """
    with one_error():
        async with asyncio.TaskGroup() as group:
            task = group.create_task(background)
            value = await work
            task.cancel()
    return value


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, Value]) -> Value | None:
    """Return what `work` returns, or None when `stop` was set first: the work is then ended.

    Raises:
        Exception: What the work raised.
    """
    with one_error():
        async with asyncio.TaskGroup() as group:
            task, stopping = group.create_task(work), group.create_task(stop.wait())
            await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
            task.cancel()
            stopping.cancel()
    return None if task.cancelled() else task.result()


@contextmanager
def one_error() -> Iterator[None]:
    """Let the first error of a task group out as itself."""
    try:
        yield
    except BaseExceptionGroup as errors:
        raise _first(errors) from None


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
