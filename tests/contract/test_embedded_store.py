"""The embedded server's life: started, adopted, ended, and never confused with a stranger."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackpower_controller.store.base import Store, StoreError, StoreInUse
from rackpower_controller.store.embedded import end_server, is_server_of, read_pid
from rackpower_controller.store.redis_store import open_store
from support.stores import opened, run

KILLED_CONTROLLER = """
import asyncio, os, signal, sys
from rackpower_controller.store.redis_store import open_store

async def main():
    store = open_store(sys.argv[1])
    await store.ensure()
    await store.take_term("dead", above=0, ttl_s=3600, leader="")
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder; end its server whatever the test did."""
    with tempfile.TemporaryDirectory(prefix="rp-store-") as name:
        path = Path(name) / "store"
        yield path
        pid = read_pid(path)
        if pid is not None:
            end_server(pid, path)


def _leave_a_server_behind(folder: Path) -> int:
    """Start a server by a process that is then killed with SIGKILL; return the server's pid."""
    child = subprocess.run([sys.executable, "-c", KILLED_CONTROLLER, f"embedded:{folder}"], check=False, timeout=60)
    assert child.returncode == -signal.SIGKILL
    pid = read_pid(folder)
    assert pid is not None
    assert is_server_of(pid, folder)
    return pid


def test_a_server_ends_with_its_controller(folder: Path) -> None:
    """A clean close ends the server and removes its pid file and socket."""

    async def body() -> int:
        async with opened(f"embedded:{folder}"):
            pid = read_pid(folder)
            assert pid is not None
            return pid

    pid = run(body())
    assert not is_server_of(pid, folder)
    assert not (folder / "valkey.sock").exists()
    assert read_pid(folder) is None


def test_a_server_left_by_a_killed_controller_is_adopted(folder: Path) -> None:
    """The next controller uses the very same server, its data and a higher term, and ends it at its own end."""
    pid = _leave_a_server_behind(folder)

    async def body() -> None:
        async with opened(f"embedded:{folder}") as store:
            assert read_pid(folder) == pid
            # the dead instance's lead still runs for an hour; the folder's lock proves that nobody holds it
            assert (await store.take_term("next", above=0, ttl_s=5, leader="")).number == 2

    run(body())
    assert not is_server_of(pid, folder)


def test_a_hung_server_left_behind_is_ended_by_its_own_pid_file(folder: Path) -> None:
    """A left-over server that does not answer is ended and replaced; what it had written is there."""
    pid = _leave_a_server_behind(folder)
    os.kill(pid, signal.SIGSTOP)

    async def body() -> None:
        async with opened(f"embedded:{folder}") as store:
            assert read_pid(folder) != pid
            assert (await store.take_term("next", above=0, ttl_s=5, leader="")).number == 2

    run(body())
    assert not is_server_of(pid, folder)


def test_a_stale_pid_file_ends_no_stranger(folder: Path) -> None:
    """A pid file that names a living process of somebody else is ignored and the process lives on."""
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as stranger:
        (folder / "valkey.pid").write_text(f"{stranger.pid}\n")
        (folder / "valkey.sock").touch()

        async def body() -> None:
            async with opened(f"embedded:{folder}"):
                assert read_pid(folder) != stranger.pid

        run(body())
        assert stranger.poll() is None
        stranger.kill()


def test_a_killed_server_is_started_again_with_its_data(folder: Path) -> None:
    """When the server dies under us, calls fail with words, `ensure` brings it back, nothing is lost."""

    async def body() -> None:
        async with opened(f"embedded:{folder}") as store:
            await store.take_term("i1", above=0, ttl_s=5, leader="")
            pid = read_pid(folder)
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(StoreError, match="no answer on its socket"):
                await until_it_fails(store)
            await store.ensure()
            assert (await store.take_term("i1", above=0, ttl_s=5, leader="")).number == 2

    async def until_it_fails(store: Store) -> None:
        while True:
            await store.recall_exposures()

    run(body())


def test_a_hanging_server_costs_only_the_deadline(folder: Path) -> None:
    """A stopped server makes calls fail at their deadline; once it goes on, answers belong to their questions."""

    async def body() -> None:
        async with opened(f"embedded:{folder}", deadline_s=0.3) as store:
            await store.set_seen_digest("right")
            pid = read_pid(folder)
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            try:
                with pytest.raises(StoreError, match="did not answer within"):
                    await store.recall_exposures()
            finally:
                os.kill(pid, signal.SIGCONT)
            assert await digest_once_it_answers(store) == "right"

    async def digest_once_it_answers(store: Store) -> str:
        while True:
            try:
                return await store.seen_digest()
            except StoreError:
                await asyncio.sleep(0.01)

    run(body())


def test_a_folder_serves_one_controller(folder: Path) -> None:
    """A second controller on the folder is refused with the first one's pid, and disturbs nothing."""

    async def body() -> None:
        async with opened(f"embedded:{folder}") as store:
            second = open_store(f"embedded:{folder}")
            with pytest.raises(StoreInUse, match=f"pid {os.getpid()}"):
                await second.ensure()
            await second.close()
            await store.ensure()

    run(body())


def test_a_folder_deeper_than_a_socket_path_works(folder: Path) -> None:
    """The 108 bytes of a socket's path bound nothing."""

    async def body() -> None:
        async with opened(f"embedded:{folder}/{'deep' * 20}/{'er' * 40}") as store:
            await store.set_seen_digest("x")

    run(body())


def test_a_folder_that_cannot_be_made_is_named(folder: Path) -> None:
    """A path through a file is refused with the path and what to do."""
    folder.parent.joinpath("file").touch()

    async def body() -> None:
        store = open_store(f"embedded:{folder.parent}/file/store")
        with pytest.raises(StoreError, match=r"cannot use .*/file/store as a store"):
            await store.ensure()

    run(body())


def test_a_server_that_cannot_start_says_why(folder: Path) -> None:
    """When the server ends at once, the error carries the end of its log."""
    folder.mkdir()
    (folder / "appendonlydir").touch()  # a file where the server needs a folder

    async def body() -> None:
        store = open_store(f"embedded:{folder}")
        with pytest.raises(StoreError, match=r"its log ends: .*appendonlydir"):
            await store.ensure()
        await store.close()

    run(body())
