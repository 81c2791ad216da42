"""For whom a certificate speaks: its common name is who, its organisational unit is which part they may play."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

AuthContext = Mapping[str, Iterable[bytes]]
"""What gRPC tells of a peer: `ServicerContext.auth_context()`."""

_PIECES_LIMIT: Final = 4096
"""Characters of a subject that are read; a longer one names no role."""


class Role(Enum):
    """What a certificate is for; the value is its organisational unit (`rackctl pki issue` writes it)."""

    SERVER = "rackpower-server"
    AGENT = "rackpower-agent"
    OPERATOR = "rackpower-operator"


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a verified certificate names; `role` is None where no or several units of ours are in it."""

    name: str
    role: Role | None

    def __str__(self) -> str:
        return f"{self.name} ({self.role.value})" if self.role is not None else self.name


def is_secured(context: AuthContext) -> bool:
    """Whether a connection is TLS."""
    return list(context.get("transport_security_type", ())) == [b"ssl"]


def identity_of(context: AuthContext) -> Identity | None:
    """Return whom a peer's certificate names, None when it has none or names nobody.

    Args:
        context: What gRPC tells of the peer.
    """
    names = list(context.get("x509_common_name", ()))
    if len(names) != 1:
        return None
    name = names[0].decode("utf-8", "replace")
    if not name.strip() or not name.isprintable():
        return None
    subject = b"".join(context.get("x509_subject", ())).decode("utf-8", "replace")
    known = {role.value: role for role in Role}
    roles = {known[unit] for unit in units_of(subject) if unit in known}
    return Identity(name, roles.pop() if len(roles) == 1 else None)


def units_of(subject: str) -> list[str]:
    """Return the organisational units of a subject in the form of RFC 2253, in which gRPC gives it.

    Args:
        subject: For instance `CN=alice,OU=rackpower-operator`; commas inside a value are escaped.
    """
    if len(subject) > _PIECES_LIMIT:
        return []
    pieces, piece, escaped = [], "", False
    for char in subject:
        if not escaped and char in ",+":
            pieces.append(piece)
            piece = ""
            continue
        escaped = char == "\\" and not escaped
        piece += char
    pieces.append(piece)
    return [value for kind, _, value in (one.partition("=") for one in pieces) if kind.strip() == "OU"]
