"""Who is at the other end of an agent's stream, and for which node it may speak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from rackpower_common.errors import RackpowerError
from rackpower_common.roles import AuthContext, Identity, Role, identity_of, is_secured

_FAMILIES: Final = ("ipv4:", "ipv6:")


class PeerError(RackpowerError):
    """A certificate that does not speak for the node that is claimed."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The other end of a stream.

    `peer` is its address for people. `identity` stays the same when it dials anew: the certificate's name, or
    without TLS the host. `certificate` is None without TLS; a certificate without a name has an empty one.
    """

    peer: str
    identity: str
    certificate: Identity | None

    def may_speak_for(self, node: str) -> None:
        """Check that the certificate names the node.

        Raises:
            PeerError: It names another, or is an operator's or a server's.
        """
        if self.certificate is None:
            return
        if self.certificate.role not in (Role.AGENT, None):
            raise PeerError(
                f"the certificate of {self.certificate} is not an agent's",
                f"issue one for the node: rackctl pki issue agent {node}",
            )
        if self.certificate.name != node:
            raise PeerError(
                f"the certificate is of {self.certificate.name or 'nobody'}, the agent says that it is {node}",
                f"use the node's own certificate (rackctl pki issue agent {node}) or set the agent's node name",
            )


def caller_of(context: AuthContext, peer: str) -> Caller:
    """Return who is at the other end.

    Args:
        context: What gRPC tells of the connection.
        peer: Its address as gRPC writes it, `ipv6:%5B::1%5D:4000` for instance.
    """
    address = unquote(peer)
    for family in _FAMILIES:
        address = address.removeprefix(family)
    if not is_secured(context):
        host = "unix" if address.startswith("unix:") else address.rpartition(":")[0]
        return Caller(address, host, None)
    certificate = identity_of(context) or Identity("", None)
    return Caller(address, certificate.name, certificate)
