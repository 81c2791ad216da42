"""For whom a certificate speaks: its common name is a node's name, or `operator:NAME` for a person.

Names of nodes hold no colon, so the two never meet: an agent's certificate cannot pass for an operator's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

OPERATOR_PREFIX: Final = "operator:"
CONTROLLER_PREFIX: Final = "controller:"
"""Of a controller's own certificate; what it is called matters to people only, its hosts are what is verified."""

NAME_LIMIT: Final = 64
"""Characters of a common name (RFC 5280, ub-common-name)."""


def operator_of(common_name: str) -> str | None:
    """Return the operator that a common name speaks for, None when it is not an operator's."""
    name = common_name.removeprefix(OPERATOR_PREFIX)
    return name if name != common_name and name.isprintable() and name.strip() else None


def common_name_of(auth_context: Mapping[str, Iterable[bytes]]) -> str | None:
    """Return the common name of a peer's certificate, None when the connection has none.

    Args:
        auth_context: What gRPC tells of the peer (`ServicerContext.auth_context()`).
    """
    names = list(auth_context.get("x509_common_name", ()))
    return names[0].decode("utf-8", "replace") if len(names) == 1 else None


def is_secured(auth_context: Mapping[str, Iterable[bytes]]) -> bool:
    """Whether a connection is TLS, by what gRPC tells of the peer."""
    return list(auth_context.get("transport_security_type", ())) == [b"ssl"]
