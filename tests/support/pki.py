"""A throw-away certificate authority for tests, and certificates that are right, wrong, expired or of others."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rackpower_common.roles import Role
from rackpower_common.tls import TlsFiles

VALID = dt.timedelta(hours=1)


@dataclass(frozen=True)
class Authority:
    """A certificate authority in a folder."""

    folder: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def ca(self) -> Path:
        """Return the path of its certificate."""
        return self.folder / "ca.pem"

    def issue(self, common_name: str, *hosts: str, role: Role | None = None, expired: bool = False) -> TlsFiles:
        """Return a certificate with its key.

        Args:
            common_name: Whom it speaks for.
            hosts: Names and addresses that it may serve.
            role: Its organisational unit.
            expired: Whether it ended an hour ago.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        now = dt.datetime.now(dt.UTC)
        units = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role.value)] if role is not None else []
        subject = x509.Name([*units, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        ends = now - VALID if expired else now + VALID
        builder = (
            _builder(subject, self.certificate.subject, key)
            .not_valid_before(ends - 2 * VALID)
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False
            )
        stem = common_name + (f"-{role.name.lower()}" if role is not None else "") + ("-expired" if expired else "")
        cert_path, key_path = self.folder / f"{stem}.pem", self.folder / f"{stem}.key"
        cert_path.write_bytes(builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        key_path.write_bytes(_key_bytes(key))
        return TlsFiles(self.ca, cert_path, key_path)


def authority(folder: Path, name: str = "test authority") -> Authority:
    """Return a new authority whose files lie in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(subject, subject, key)
        .not_valid_before(now - VALID)
        .not_valid_after(now + 2 * VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    made = Authority(folder, certificate, key)
    made.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return made


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
