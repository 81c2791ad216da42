"""Tasks side by side: until told to stop, until the first error, and none left behind."""

from __future__ import annotations

import asyncio

import pytest

from rackpower_common.tasks import beside, run_until, unless

pytestmark = pytest.mark.anyio


class Job:
    """A job that runs for ever and remembers how it ended."""

    def __init__(self) -> None:
        self.running = False
        self.ended = False

    async def run(self) -> int:
        """Run until cancelled."""
        self.running = True
        try:
            await asyncio.Event().wait()
        finally:
            self.ended = True
        return 0


async def fails() -> None:
    """Fail at once."""
    raise ValueError("broken")


async def test_jobs_run_until_the_stop_and_through_the_farewell() -> None:
    """The farewell is said while the jobs still run; then they are ended."""
    stop, job = asyncio.Event(), Job()

    async def farewell() -> None:
        assert job.running
        assert not job.ended

    asyncio.get_running_loop().call_soon(stop.set)
    await run_until(stop, [job.run()], farewell)
    assert job.ended


async def test_the_first_error_ends_all_and_comes_out_as_itself() -> None:
    """No group hides what went wrong, and no job outlives it."""
    job = Job()
    with pytest.raises(ValueError, match="broken"):
        await run_until(asyncio.Event(), [job.run(), fails()])
    assert job.ended


async def test_work_ends_what_runs_beside_it() -> None:
    """The value comes back and the job is gone."""
    job = Job()

    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert await beside(job.run(), work()) == 7
    assert job.ended
    with pytest.raises(ValueError, match="broken"):
        await beside(fails(), Job().run())
    with pytest.raises(ValueError, match="broken"):
        await beside(Job().run(), fails())


async def test_work_is_given_up_when_told_to_stop() -> None:
    """None when the stop came first; else the value, or the error."""
    stop, job = asyncio.Event(), Job()

    async def work() -> int:
        return 7

    assert await unless(stop, work()) == 7
    with pytest.raises(ValueError, match="broken"):
        await unless(stop, fails())
    asyncio.get_running_loop().call_soon(stop.set)
    assert await unless(stop, job.run()) is None
    assert job.ended
