"""A small certificate authority in a folder: for the demo, for tests, and for racks without one of their own.

Keys are P-256 and readable by their owner only. A certificate names its holder twice: the common name (for an agent
the node's name, which the controller compares) and the organisational unit (which part it may play).
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rackpower_common.roles import Role
from rackpower_ctl.errors import CtlError, UsageError

CA_CERT: Final = "ca.pem"
CA_KEY: Final = "ca.key"
CA_DAYS: Final = 3650
LEAF_DAYS: Final = 365
CLOCK_SKEW: Final = timedelta(minutes=5)
"""Certificates are valid a little earlier than now: the other side's clock may be behind."""
MAX_NAME: Final = 64
"""Characters of a common name, X.520's limit."""


@dataclass(frozen=True, slots=True)
class Issued:
    """Where a certificate, its key and its authority's certificate lie."""

    ca: Path
    cert: Path
    key: Path


class Authority:
    """An authority; `create` makes one, `open` reads one."""

    def __init__(self, folder: Path, cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._folder = folder
        self._cert = cert
        self._key = key

    @classmethod
    def create(cls, folder: Path, name: str = "rackpower", days: int = CA_DAYS) -> Authority:
        """Make an authority in a folder, which is made when it is missing.

        Raises:
            UsageError: There is one already, or the name cannot be used.
            CtlError: The folder cannot be written.
        """
        _check_name(name)
        if (folder / CA_KEY).exists() or (folder / CA_CERT).exists():
            raise UsageError(
                f"there is an authority in {folder} already", "take another folder, or issue from this one"
            )
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} authority"[:MAX_NAME])])
        public = key.public_key()
        cert = (
            _builder(subject, subject, public, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(key, hashes.SHA256())
        )
        with _told_as_words(folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o755)
            _write(folder / CA_KEY, _pem(key), mode=0o600)
            _write(folder / CA_CERT, cert.public_bytes(serialization.Encoding.PEM), mode=0o644)
        return cls(folder, cert, key)

    @classmethod
    def open(cls, folder: Path) -> Authority:
        """Read an authority.

        Raises:
            UsageError: There is none, or its files are not what `create` wrote.
        """
        try:
            cert = x509.load_pem_x509_certificate((folder / CA_CERT).read_bytes())
            key = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), password=None)
        except OSError as error:
            raise UsageError(
                f"no authority in {folder}: {error.filename}: {error.strerror}", f"make one: rackctl pki init {folder}"
            ) from error
        except (ValueError, TypeError) as error:
            raise UsageError(f"the authority in {folder} cannot be read: {error}", "its files are damaged") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or cert.public_key() != key.public_key():
            raise UsageError(f"{CA_CERT} and {CA_KEY} in {folder} do not belong together")
        return cls(folder, cert, key)

    def issue(
        self, role: Role, name: str, hosts: Sequence[str] = (), *, into: Path | None = None, days: int = LEAF_DAYS
    ) -> Issued:
        """Issue a certificate with a new key as `NAME.pem` and `NAME.key`, replacing an older pair.

        Args:
            role: What it is for.
            name: Its common name: a node for an agent, a person for an operator.
            hosts: Names and addresses under which a server is dialled; its own name is added.
            into: Folder, None for the authority's own.
            days: How long it is valid, never longer than the authority.

        Raises:
            UsageError: A name cannot be used.
            CtlError: The folder cannot be written.
        """
        _check_name(name)
        key = ec.generate_private_key(ec.SECP256R1())
        public = key.public_key()
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role.value),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if role is Role.SERVER else ExtendedKeyUsageOID.CLIENT_AUTH
        names = [_general_name(host) for host in dict.fromkeys((name, *hosts))]
        cert = (
            _builder(subject, self._cert.subject, public, days, latest=self._cert.not_valid_after_utc)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        folder = into or self._folder
        issued = Issued(self._folder / CA_CERT, folder / f"{name}.pem", folder / f"{name}.key")
        with _told_as_words(folder):
            folder.mkdir(parents=True, exist_ok=True)
            _write(issued.key, _pem(key), mode=0o600)
            _write(issued.cert, cert.public_bytes(serialization.Encoding.PEM), mode=0o644)
        return issued


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    days: int,
    latest: datetime | None = None,
) -> x509.CertificateBuilder:
    if days < 1:
        raise UsageError(f"a certificate cannot be valid for {days} days", "give 1 or more")
    now = datetime.now(UTC)
    end = now + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(min(end, latest) if latest else end)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise UsageError(f"{host!r} is no name of a host: {error}", "give a DNS name or an IP address") from error


def _check_name(name: str) -> None:
    """Refuse what cannot be both a common name and the name of a file."""
    allowed = name.isascii() and all(char.isalnum() or char in ".-_@" for char in name)
    if not allowed or not 0 < len(name) <= MAX_NAME or name.startswith((".", "-")):
        raise UsageError(
            f"{name!r} cannot be a certificate's name", f"letters, digits, . - _ and @, at most {MAX_NAME}"
        )
    if name == "ca":
        raise UsageError("`ca` is the authority's own name", "take another one")


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """Write a file as a whole; a key never exists with more permissions than it has in the end."""
    fresh = path.with_name(path.name + ".new")
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    fresh.replace(path)


@contextlib.contextmanager
def _told_as_words(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CtlError(
            f"{folder}: cannot be written: {error.strerror}", "check the path and its permissions"
        ) from error
