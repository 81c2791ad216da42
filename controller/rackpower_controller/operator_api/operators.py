"""Who asks: an operator by certificate, or somebody whom this machine lets at its socket or its loopback."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rackpower_common.roles import AuthContext, Role, identity_of, is_secured
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


def caller_of(context: AuthContext, peer: str) -> Caller:
    """Return who asks.

    Args:
        context: What gRPC tells of the connection.
        peer: The other end as gRPC names it.

    Raises:
        Refused: The certificate is not an operator's.
    """
    if not is_secured(context):
        # the server listens without TLS on loopback and on a socket of mode 0660 only
        return Caller(None, "unix socket" if peer.startswith("unix:") else "loopback")
    identity = identity_of(context)
    if identity is None or identity.role is not Role.OPERATOR:
        whose = f"of {identity}" if identity is not None else "without a name"
        raise Refused(
            Reason.NOT_ALLOWED,
            f"a certificate {whose} is not an operator's",
            f"its organisational unit must be {Role.OPERATOR.value}: rackctl pki issue operator NAME",
        )
    return Caller(identity.name, "certificate")
