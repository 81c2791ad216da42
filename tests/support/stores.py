"""Real stores for tests: the embedded server and, where installed, the distribution's redis-server."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rackpower_controller.store.base import Store, StoreError
from rackpower_controller.store.redis_store import open_store
from support.store_fake import FakeStore, Memory

T = TypeVar("T")

KINDS = ("memory", "embedded", "redis-server", "sentinel")
"""`memory` is the double that unit tests use: it keeps the same contract."""

_memories: dict[str, Memory] = {}


def run(body: Coroutine[Any, Any, T], deadline_s: float = 60.0) -> T:
    """Run a coroutine to its end, or fail after `deadline_s` seconds."""

    async def bounded() -> T:
        return await asyncio.wait_for(body, deadline_s)

    return asyncio.run(bounded())


def free_port() -> int:
    """Return a TCP port of the loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class StoreSite:
    """Where a test's store is: `address` for the first controller, `rival_address` for a second on the same data."""

    kind: str
    address: str
    rival_address: str


@contextlib.contextmanager
def store_site(kind: str) -> Iterator[StoreSite]:
    """Give a fresh, empty store of a kind; its folder has a short path, for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="rp-store-"))
    try:
        if kind == "memory":
            yield StoreSite(kind, f"memory:{folder}", f"memory:{folder}")
        elif kind == "embedded":
            yield StoreSite(kind, f"embedded:{folder}", f"unix://{folder}/valkey.sock")
        elif kind == "redis-server":
            with redis_server(folder) as url:
                yield StoreSite(kind, url, url)
        else:
            with redis_server(folder) as url, sentinel(folder, url) as sentinel_url:
                yield StoreSite(kind, sentinel_url, url)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def redis_server(folder: Path, port: int | None = None) -> Iterator[str]:
    """Run the distribution's redis-server and give its URL."""
    chosen = port or free_port()
    command = [
        "redis-server",
        "--port",
        str(chosen),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--dir",
        str(folder),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            url = f"redis://127.0.0.1:{chosen}/0"
            run(_until_it_answers(url))
            yield url
        finally:
            process.kill()


@contextlib.contextmanager
def sentinel(folder: Path, url: str) -> Iterator[str]:
    """Run one sentinel that watches the server at a URL and give the sentinel's URL."""
    port = free_port()
    watched = url.removeprefix("redis://127.0.0.1:").removesuffix("/0")
    settings = folder / "sentinel.conf"
    settings.write_text(f"port {port}\nbind 127.0.0.1\nsentinel monitor rack 127.0.0.1 {watched} 1\n")
    command = ["redis-server", str(settings), "--sentinel"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=folder) as process:
        try:
            sentinel_url = f"redis+sentinel://127.0.0.1:{port}/rack"
            run(_until_it_answers(sentinel_url))
            yield sentinel_url
        finally:
            process.kill()


async def _until_it_answers(url: str) -> None:
    store = open_store(url)
    while True:
        try:
            await store.ensure()
        except StoreError:
            await asyncio.sleep(0.02)
        else:
            await store.close()
            return


@contextlib.asynccontextmanager
async def opened(address: str, **options: Any) -> AsyncIterator[Store]:
    """Open a store, make it answer, close it at the end."""
    store = _memory(address, **options) if address.startswith("memory:") else open_store(address, **options)
    try:
        await store.ensure()
        yield store
    finally:
        await store.close()


def _memory(address: str, prefix: str = "rackpower") -> Store:
    return FakeStore(_memories.setdefault(f"{address} {prefix}", Memory()))
