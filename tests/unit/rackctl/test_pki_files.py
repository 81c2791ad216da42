"""The small certificate authority: what it writes, what it refuses."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rackpower_common.roles import Role
from rackpower_common.tls import TlsFiles
from rackpower_ctl.errors import UsageError
from rackpower_ctl.pki_files import Authority


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    """Neither the authority's key nor a leaf's can be read by others."""
    issued = Authority.create(tmp_path).issue(Role.AGENT, "gpu-01")
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "ca.key", issued.key)} == {0o600}


def test_a_certificate_names_its_holder_and_its_part(tmp_path: Path) -> None:
    """Common name, unit, names and purpose are what was asked for."""
    issued = Authority.create(tmp_path).issue(Role.SERVER, "controller-1", ["127.0.0.1", "rack.example"])
    cert = x509.load_pem_x509_certificate(issued.cert.read_bytes())
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    purpose = cert.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [name.value for name in cert.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["controller-1"]
    assert names.get_values_for_type(x509.DNSName) == ["controller-1", "rack.example"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert list(purpose) == [ExtendedKeyUsageOID.SERVER_AUTH]
    units = cert.subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    assert [unit.value for unit in units] == ["rackpower-server"]


def test_an_opened_authority_issues_what_fits_its_own(tmp_path: Path) -> None:
    """An authority survives its process, and its certificates can be used."""
    Authority.create(tmp_path / "pki")
    issued = Authority.open(tmp_path / "pki").issue(Role.OPERATOR, "ada@ops", into=tmp_path / "ada")
    TlsFiles(issued.ca, issued.cert, issued.key).check()
    assert issued.cert == tmp_path / "ada" / "ada@ops.pem"


def test_an_authority_is_never_overwritten(tmp_path: Path) -> None:
    """A second init would lock every node out."""
    Authority.create(tmp_path)
    with pytest.raises(UsageError, match="already"):
        Authority.create(tmp_path)


@pytest.mark.parametrize("name", ["", "a/b", "../x", "ca", "ä", "x" * 65, "-rf"])
def test_names_that_are_no_file_are_refused(tmp_path: Path, name: str) -> None:
    """A name becomes a common name and a file's name, and nothing else."""
    with pytest.raises(UsageError):
        Authority.create(tmp_path).issue(Role.AGENT, name)


def test_a_missing_authority_says_how_to_make_one(tmp_path: Path) -> None:
    """No traceback, but the command."""
    with pytest.raises(UsageError, match=r"no authority in .*rackctl pki init"):
        Authority.open(tmp_path)
