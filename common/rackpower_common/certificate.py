"""Until when a certificate is valid, read from its own bytes: nodes carry no certificate library, `ssl` does not say.

Only the few fields on the way to `validity` are walked (RFC 5280, section 4.1); nothing is verified here.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"


class CertificateFormatError(ValueError):
    """Bytes that are no certificate."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """One value: its tag, and where its content lies."""

    tag: int
    start: int
    end: int


def valid_until(pem: bytes) -> datetime:
    """Return when the first certificate of a PEM file ends.

    Raises:
        CertificateFormatError: There is none, or it is broken.
    """
    text = pem.decode("ascii", "replace")
    start = text.find(_BEGIN)
    end = text.find(_END, start)
    if start < 0 or end < 0:
        raise CertificateFormatError("no certificate in it")
    try:
        der = ssl.PEM_cert_to_DER_cert(text[start : end + len(_END)])
        certificate = _expect(der, _piece(der, 0), _SEQUENCE)
        fields = _expect(der, _piece(der, certificate.start), _SEQUENCE)
        piece = _piece(der, fields.start)
        if piece.tag == _VERSION:
            piece = _piece(der, piece.end)
        for _ in range(3):  # serial number, signature, issuer
            piece = _piece(der, piece.end)
        validity = _expect(der, piece, _SEQUENCE)
        not_after = _piece(der, _piece(der, validity.start).end)
        return _time(not_after.tag, der[not_after.start : not_after.end].decode("ascii"))
    except (IndexError, ValueError) as error:
        raise CertificateFormatError(f"its certificate is broken: {error}") from error


def _piece(der: bytes, place: int) -> _Piece:
    tag, length, start = der[place], der[place + 1], place + 2
    if length & 0x80:
        size = length & 0x7F
        length = int.from_bytes(der[start : start + size], "big")
        start += size
    if start + length > len(der):
        raise CertificateFormatError("it is cut off")
    return _Piece(tag, start, start + length)


def _expect(der: bytes, piece: _Piece, tag: int) -> _Piece:
    if piece.tag != tag or piece.end > len(der):
        raise CertificateFormatError("it is no X.509 certificate")
    return piece


def _time(tag: int, text: str) -> datetime:
    if tag == _UTC_TIME:
        # two digits of the year: from 50 on they are of the twentieth century (RFC 5280, 4.1.2.5.1)
        century = "19" if int(text[:2]) >= 50 else "20"
        text = century + text
    elif tag != _GENERALIZED_TIME:
        raise CertificateFormatError("its validity is no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
