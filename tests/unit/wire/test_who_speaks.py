from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest

from rackpower_common.certificate import CertificateFormatError, valid_until
from rackpower_common.roles import Identity, Role, identity_of, units_of
from rackpower_common.wire.faults import STATUSES, Reason, Refused, fault_of
from rackpower_controller.peers import PeerError, caller_of
from support.pki import authority


def context(name: str, subject: str) -> dict[str, list[bytes]]:
    """Return what gRPC tells of a peer with a certificate."""
    secured = {"transport_security_type": [b"ssl"], "x509_common_name": [name.encode()]}
    return {**secured, "x509_subject": [subject.encode()]}


@pytest.mark.parametrize(
    ("subject", "units"),
    [
        ("CN=alice,OU=rackpower-operator", ["rackpower-operator"]),
        ("OU=a+CN=b,OU=c", ["a", "c"]),
        (r"CN=x\,OU=rackpower-operator", []),
        (r"CN=x\\,OU=rackpower-operator", ["rackpower-operator"]),
        (r"O=a\+OU=rackpower-operator,CN=b", []),
        ("", []),
        ("OU=" + "x" * 5000, []),
    ],
)
def test_a_unit_counts_only_where_it_is_one(subject: str, units: list[str]) -> None:
    """A comma inside a name cannot smuggle a unit in."""
    assert units_of(subject) == units


def test_a_certificate_with_two_parts_plays_none() -> None:
    """An agent's certificate that also says operator is neither."""
    both = "CN=a,OU=rackpower-agent,OU=rackpower-operator"
    assert identity_of(context("a", both)) == Identity("a", None)
    assert identity_of(context("a", "CN=a,OU=rackpower-agent")) == Identity("a", Role.AGENT)
    assert identity_of({"transport_security_type": [b"ssl"]}) is None
    assert identity_of({"x509_common_name": [b"a", b"b"]}) is None


@pytest.mark.parametrize(
    ("peer", "address", "identity"),
    [
        ("ipv4:10.0.0.7:4000", "10.0.0.7:4000", "10.0.0.7"),
        ("ipv6:%5Bfe80::1%5D:4000", "[fe80::1]:4000", "[fe80::1]"),
        ("unix:", "unix:", "unix"),
    ],
)
def test_without_tls_the_host_is_the_identity_and_stays_when_it_dials_anew(
    peer: str, address: str, identity: str
) -> None:
    """The port changes with every connection, so it is no part of who that is."""
    caller = caller_of({"transport_security_type": [b"insecure"]}, peer)
    assert (caller.peer, caller.identity) == (address, identity)
    caller.may_speak_for("any-node")


def test_a_nameless_certificate_speaks_for_no_node() -> None:
    """Mutual TLS alone proves nothing about a node."""
    with pytest.raises(PeerError, match="nobody"):
        caller_of({"transport_security_type": [b"ssl"]}, "ipv4:10.0.0.7:1").may_speak_for("gpu-01")


def test_a_certificate_tells_until_when_it_is_valid(tmp_path: Path) -> None:
    """The end read from the bytes is the one that was written, for years before and after 2050."""
    made = authority(tmp_path)
    assert valid_until(made.ca.read_bytes()) == made.certificate.not_valid_after_utc
    issued = valid_until(made.issue("a").cert.read_bytes())
    assert timedelta(minutes=50) < issued - datetime.now(UTC) < timedelta(minutes=70)


@pytest.mark.parametrize("cut", [0, 30, 100, 200])
def test_a_broken_certificate_is_told_and_never_crashes(tmp_path: Path, cut: int) -> None:
    """Cut off anywhere, it is a format error."""
    text = authority(tmp_path).ca.read_text()
    begin, body = text[:28], text[28:].replace("-----END CERTIFICATE-----\n", "")
    with pytest.raises(CertificateFormatError):
        valid_until(f"{begin}{body[:cut]}\n-----END CERTIFICATE-----\n".encode())
    with pytest.raises(CertificateFormatError):
        valid_until(b"nothing")


def test_every_reason_has_a_status() -> None:
    """The table is whole: no reason reaches a client without one."""
    assert set(STATUSES) == set(Reason)


def test_the_nearest_class_in_the_table_decides_and_strangers_stay_internal() -> None:
    """A subclass may have a kind of its own; what nobody foresaw keeps its words to itself."""
    table: dict[type[BaseException], Reason] = {OSError: Reason.NOT_NOW, FileNotFoundError: Reason.INVALID}
    assert fault_of(FileNotFoundError("x"), table).reason is Reason.INVALID
    assert fault_of(PermissionError("x"), table).reason is Reason.NOT_NOW
    assert fault_of(Refused(Reason.TOO_MANY, "full", "wait"), table).details == "full (wait)"
    stranger = fault_of(ValueError("secret"), table)
    assert (stranger.status, "secret" in stranger.details) == (grpc.StatusCode.INTERNAL, False)
