"""Store addresses: what an operator writes in the settings, checked before anything is opened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rackpower_controller.store.base import StoreError

SCHEMES = ("embedded:", "redis://", "rediss://", "redis+sentinel://", "unix://")
SENTINEL_PORT = 26379


@dataclass(frozen=True, slots=True)
class Embedded:
    """A server of our own in a folder."""

    folder: Path

    def __str__(self) -> str:
        return f"embedded:{self.folder}"


@dataclass(frozen=True, slots=True)
class Direct:
    """A URL that redis-py opens by itself; `shown` is the same without secrets."""

    url: str
    shown: str

    def __str__(self) -> str:
        return self.shown


@dataclass(frozen=True, slots=True)
class Sentinels:
    """`redis+sentinel://[[user]:password@]host[:port][,host[:port]…]/service[/db]`."""

    hosts: tuple[tuple[str, int], ...]
    service: str
    db: int
    username: str | None
    password: str | None

    def __str__(self) -> str:
        return f"redis+sentinel://{','.join(f'{h}:{p}' for h, p in self.hosts)}/{self.service}/{self.db}"


StoreAddress = Embedded | Direct | Sentinels


def parse_address(text: str) -> StoreAddress:
    """Return the address that a setting names.

    Args:
        text: One of `embedded:DIR`, `redis://…`, `rediss://…`, `redis+sentinel://…`, `unix://…`.

    Raises:
        StoreError: It names none; the message says what is wrong, never a password.
    """
    if text.startswith("embedded:"):
        folder = text.removeprefix("embedded:")
        if not folder:
            raise StoreError("the store's address names no folder", "write embedded:/var/lib/rackpower/store")
        return Embedded(Path(folder).absolute())
    if text.startswith("redis+sentinel://"):
        return _sentinels(text)
    for scheme in ("redis://", "rediss://", "unix://"):
        if text.startswith(scheme):
            return _direct(text)
    scheme = text.split(":", 1)[0]
    raise StoreError(f"the store's address starts with {scheme!r}", f"use one of {', '.join(SCHEMES)}")


def _direct(text: str) -> Direct:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise StoreError("the store's address is not a URL", str(error)) from error
    if parts.scheme == "unix":
        if not parts.path:
            raise StoreError("the store's address names no socket", "write unix:///run/redis/redis.sock")
        return Direct(text, f"unix://{parts.path}")
    if not parts.hostname:
        raise StoreError("the store's address names no host", f"write {parts.scheme}://host:6379/0")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return Direct(text, f"{parts.scheme}://{host}:{port or 6379}{parts.path}")


def _sentinels(text: str) -> Sentinels:
    usage = "write redis+sentinel://host1:26379,host2:26379/service"
    rest = text.removeprefix("redis+sentinel://")
    login, _, rest = rest.rpartition("@")
    hosts_text, _, path = rest.partition("/")
    service, _, db_text = path.partition("/")
    if not hosts_text or not service:
        raise StoreError("the store's address names no sentinel or no service", usage)
    hosts = []
    for item in hosts_text.split(","):
        host, _, port_text = item.rpartition(":") if ":" in item else (item, "", str(SENTINEL_PORT))
        if not host or not port_text.isdigit() or not 0 < int(port_text) < 65536:
            raise StoreError(f"the store's address has a bad sentinel {item!r}", usage)
        hosts.append((host, int(port_text)))
    if db_text and not db_text.isdigit():
        raise StoreError(f"the store's address has a bad database number {db_text!r}", usage)
    username, _, password = login.partition(":") if ":" in login else ("", "", login)
    return Sentinels(
        tuple(hosts),
        unquote(service),
        int(db_text or 0),
        unquote(username) or None,
        unquote(password) or None,
    )
