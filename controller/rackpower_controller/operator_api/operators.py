"""Who asks: an operator by certificate, or somebody whom this machine lets at its socket or its loopback."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rackpower_common.roles import OPERATOR_PREFIX, common_name_of, is_secured, operator_of
from rackpower_common.wire.checks import text
from rackpower_common.wire.faults import Reason, Refused

AUTHOR_LIMIT: Final = 200
"""Characters of an author as recorded."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. `certified` is the name that a certificate proves, None for a local connection; `via` says how."""

    certified: str | None
    via: str

    def author(self, claimed: str) -> str:
        """Return whom to record: what is proven, beside what is claimed."""
        claimed = text(claimed).strip()[: AUTHOR_LIMIT // 2]
        if self.certified is None:
            return f"{claimed or 'unnamed'} ({self.via})"
        proven = text(self.certified)[: AUTHOR_LIMIT // 2]
        return proven if claimed in ("", proven) else f"{claimed} (certificate of {proven})"


def caller_of(auth_context: Mapping[str, Iterable[bytes]], peer: str) -> Caller:
    """Return who asks.

    Args:
        auth_context: What gRPC tells of the connection.
        peer: The other end as gRPC names it.

    Raises:
        Refused: The certificate is not an operator's.
    """
    if not is_secured(auth_context):
        # the server listens without TLS on loopback and on a socket of mode 0660 only
        return Caller(None, "unix socket" if peer.startswith("unix:") else "loopback")
    name = common_name_of(auth_context)
    operator = operator_of(name) if name is not None else None
    if operator is None:
        whose = f"of {name}" if name else "without a name"
        raise Refused(
            Reason.NOT_ALLOWED,
            f"a certificate {whose} is not an operator's",
            f"its common name must begin with {OPERATOR_PREFIX}; issue one with `rackctl pki issue operator NAME`",
        )
    return Caller(operator, "certificate")
