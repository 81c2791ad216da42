"""Where a server listens or is dialled: `host:port`, `[v6]:port` or `unix:/path`, and whether it may be plain."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from rackpower_common.errors import RackpowerError

PORT_LIMIT = 65_535
UNIX_PATH_LIMIT = 107
"""Longest path of a unix socket that Linux takes, in bytes."""


class AddressError(RackpowerError):
    """An address that cannot be used."""


@dataclass(frozen=True, slots=True)
class Address:
    """One address; `path` for a unix socket, else host and port (0: any free one)."""

    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def target(self) -> str:
        """Return the address as gRPC takes it."""
        return str(self)

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Return an address.

    Args:
        text: `host:port`, `[v6]:port` or `unix:/absolute/path`.

    Raises:
        AddressError: It is none of these.
    """
    hint = "write host:port, [v6]:port or unix:/path"
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path.startswith("/"):
            raise AddressError(f"{text!r} is not an address: a unix socket needs an absolute path", hint)
        if len(path.encode()) > UNIX_PATH_LIMIT:
            raise AddressError(f"{text!r} is not an address: a socket's path has at most {UNIX_PATH_LIMIT} bytes", hint)
        return Address(path=path)
    host, separator, port_text = text.rpartition(":")
    if not separator or not port_text.isascii() or not port_text.isdigit() or int(port_text) > PORT_LIMIT:
        raise AddressError(f"{text!r} is not an address: no port at its end", hint)
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not host or (":" in host and not bracketed):
        raise AddressError(f"{text!r} is not an address: no host before the port", hint)
    return Address(host=host, port=int(port_text))


def require_tls(address: Address, *, secured: bool, what: str) -> None:
    """Refuse an address beyond this machine without mutual TLS.

    Args:
        address: Where.
        secured: Whether certificates are configured.
        what: Who listens or dials, for the message.

    Raises:
        AddressError: Others can reach it and it would be plain.
    """
    if secured or address.loopback:
        return
    raise AddressError(
        f"{what} {address} would be plain text: only loopback and unix sockets may be",
        "set tls: with ca, cert and key (`rackctl pki` makes them), or use 127.0.0.1",
    )
