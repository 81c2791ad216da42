"""Mutual TLS from three PEM files, with words when one of them is wrong."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc

from rackpower_common.certificate import CertificateFormatError, valid_until
from rackpower_common.errors import RackpowerError


class TlsError(RackpowerError):
    """Certificates that cannot be used."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of the authority's certificate, our certificate (with its chain) and our key, all PEM."""

    ca: Path
    cert: Path
    key: Path

    def check(self) -> None:
        """Read the files and see that they belong together.

        Raises:
            TlsError: One is missing, unreadable, no PEM, has run out, or the key is not the certificate's.
        """
        for path in (self.ca, self.cert, self.key):
            _read(path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(self.ca)
        except (ssl.SSLError, OSError) as error:
            raise TlsError(f"{self.ca} holds no certificate of an authority: {error}") from error
        try:
            context.load_cert_chain(self.cert, self.key)
        except (ssl.SSLError, OSError) as error:
            raise TlsError(f"{self.cert} and {self.key} do not belong together: {error}") from error
        for path in (self.cert, self.ca):
            _check_validity(path)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return credentials for dialling; the files are read now."""
        self.check()
        return grpc.ssl_channel_credentials(_read(self.ca), _read(self.key), _read(self.cert))

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials for serving, which ask every client for a certificate and follow renewed files."""
        self.check()
        stamp = self._stamp()
        first = self._server_configuration()

        def renewed() -> grpc.ServerCertificateConfiguration | None:
            nonlocal stamp
            try:
                now = self._stamp()
                if now == stamp:
                    return None
                self.check()
                stamp = now
                return self._server_configuration()
            except (TlsError, OSError):
                return None  # half-written files: the certificates in use stay until the new ones are whole

        return grpc.dynamic_ssl_server_credentials(
            first,
            renewed,  # type: ignore[arg-type]  # None is allowed: keep those in use
            require_client_authentication=True,
        )

    def _server_configuration(self) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(_read(self.key), _read(self.cert))], _read(self.ca))

    def _stamp(self) -> tuple[tuple[int, int], ...]:
        return tuple(
            (status.st_mtime_ns, status.st_ino) for status in (path.stat() for path in (self.ca, self.cert, self.key))
        )


def _check_validity(path: Path) -> None:
    """Refuse a certificate that has run out; one that is not valid yet may only meet a clock that is behind."""
    try:
        ends = valid_until(_read(path))
    except CertificateFormatError as error:
        raise TlsError(f"{path}: {error}") from error
    if ends < datetime.now(UTC):
        raise TlsError(f"{path} ran out on {ends:%Y-%m-%d %H:%M} UTC", "issue a new one: rackctl pki issue")


def _read(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TlsError(f"cannot read {path}: {error.strerror}", "check the path and its permissions") from error
    if b"-----BEGIN " not in content:
        raise TlsError(f"{path} is not a PEM file")
    return content
