"""Store addresses: what is understood, what is refused, and that secrets stay out of messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rackpower_controller.store.address import Embedded, Sentinels, parse_address
from rackpower_controller.store.base import StoreError
from rackpower_controller.store.redis_store import open_store
from support.stores import free_port, run


def test_an_embedded_folder_is_made_absolute() -> None:
    """A relative folder is taken from where the controller was started."""
    address = parse_address("embedded:state/store")
    assert address == Embedded(Path("state/store").absolute())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://ann:secret@db1:6380/2", "redis://db1:6380/2"),
        ("rediss://:secret@[::1]", "rediss://[::1]:6379"),
        ("unix:///run/redis.sock?db=3&password=secret", "unix:///run/redis.sock"),
        ("redis+sentinel://:secret@s1,s2:26380/rack/3", "redis+sentinel://s1:26379,s2:26380/rack/3"),
    ],
)
def test_an_address_is_shown_without_its_secret(text: str, shown: str) -> None:
    """What people see names host and database and never the password."""
    assert str(parse_address(text)) == shown


def test_sentinels_are_read_in_full() -> None:
    """Hosts, default port, service, database, user and password are understood."""
    address = parse_address("redis+sentinel://ann:s%40cret@s1,s2:26380/rack/3")
    assert address == Sentinels((("s1", 26379), ("s2", 26380)), "rack", 3, "ann", "s@cret")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("embedded:", "names no folder"),
        ("memcached://host", "starts with 'memcached'"),
        ("redis://", "names no host"),
        ("redis://host:port", "not a URL"),
        ("unix://", "names no socket"),
        ("redis+sentinel://s1", "no service"),
        ("redis+sentinel://s1:x/rack", "bad sentinel 's1:x'"),
        ("redis+sentinel://s1/rack/x", "bad database number 'x'"),
    ],
)
def test_an_address_that_names_no_store_is_refused(text: str, message: str) -> None:
    """The error says what is wrong with the address."""
    with pytest.raises(StoreError, match=re.escape(message)):
        parse_address(text)


@pytest.mark.parametrize(
    "scheme", ["redis://ann:secret@127.0.0.1:{port}", "redis+sentinel://:secret@127.0.0.1:{port}/rack"]
)
def test_a_store_that_is_down_is_named_without_its_secret(scheme: str) -> None:
    """A refused connection becomes a StoreError with the address, a hint and no password."""

    async def body() -> None:
        store = open_store(scheme.format(port=free_port()))
        with pytest.raises(StoreError) as failed:
            await store.ensure()
        assert "127.0.0.1" in str(failed.value)
        assert "secret" not in str(failed.value)
        await store.close()

    run(body())
