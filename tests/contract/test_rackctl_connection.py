"""Reaching a controller over sockets, TCP and TLS, and what is said when it cannot be reached."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rackpower_common.roles import Role
from rackpower_common.tls import TlsFiles
from rackpower_ctl.diagnosis import socket_verdict
from rackpower_ctl.pki_files import Authority, Issued
from support.ctl import Ctl, Ran
from support.operator_fake import FakeOperator, serving


@pytest.fixture
def ctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ctl:
    """Return a rackctl without settings of this machine."""
    return Ctl(monkeypatch, str(tmp_path))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Return an authority."""
    return Authority.create(tmp_path / "pki")


@contextmanager
def secured(authority: Authority, *hosts: str) -> Iterator[str]:
    """Serve with mutual TLS on loopback under some names."""
    issued = authority.issue(Role.SERVER, "controller", hosts)
    credentials = TlsFiles(issued.ca, issued.cert, issued.key).server_credentials()
    with serving(FakeOperator(), "127.0.0.1:0", credentials) as address:
        yield address


def status(ctl: Ctl, address: str, issued: Issued | None = None, ca: Path | None = None) -> Ran:
    """Ask for the status with a certificate."""
    flags = ["--ca", str(ca or issued.ca), "--cert", str(issued.cert), "--key", str(issued.key)] if issued else []
    return ctl("--controller", address, *flags, "status")


def assert_unreachable(ran: Ran, *words: str) -> None:
    """See that the run ended with 3 and a sentence, and without a traceback."""
    assert (ran.code, ran.out) == (3, "")
    assert all(word in ran.err for word in (*words, "hint:")), ran.err
    assert "Traceback" not in ran.err


def test_mutual_tls_works(ctl: Ctl, authority: Authority) -> None:
    """A certificate of the same authority is let in."""
    with secured(authority, "127.0.0.1") as address:
        assert status(ctl, address, authority.issue(Role.OPERATOR, "ada")).code == 0


def test_a_certificate_of_another_authority_is_told(ctl: Ctl, authority: Authority, tmp_path: Path) -> None:
    """The server refuses a stranger's certificate; the sentence names the file."""
    stranger = Authority.create(tmp_path / "other").issue(Role.OPERATOR, "eve")
    with secured(authority, "127.0.0.1") as address:
        ran = status(ctl, address, stranger, tmp_path / "pki" / "ca.pem")
    assert_unreachable(ran, "refuses our certificate", "eve.pem")


def test_a_server_of_another_authority_is_told(ctl: Ctl, authority: Authority, tmp_path: Path) -> None:
    """We do not talk to a controller that our authority does not know."""
    with secured(Authority.create(tmp_path / "other"), "127.0.0.1") as address:
        ran = status(ctl, address, authority.issue(Role.OPERATOR, "ada"))
    assert_unreachable(ran, "is not known to our authority", "ca.pem")


def test_a_server_with_another_name_is_told(ctl: Ctl, authority: Authority) -> None:
    """The sentence says which certificate to issue."""
    with secured(authority, "rack-1.example") as address:
        ran = status(ctl, address, authority.issue(Role.OPERATOR, "ada"))
    assert_unreachable(ran, "is for another name", "--host 127.0.0.1")


def test_plain_text_to_a_tls_server_is_told(ctl: Ctl, authority: Authority) -> None:
    """Who forgot the certificates reads which flags to give."""
    with secured(authority, "127.0.0.1") as address:
        assert_unreachable(status(ctl, address), "wants TLS", "--ca")


def test_tls_to_a_plain_server_is_told(ctl: Ctl, authority: Authority) -> None:
    """Who gave certificates to a plain controller reads to leave them out."""
    with serving(FakeOperator(), "127.0.0.1:0") as address:
        ran = status(ctl, address, authority.issue(Role.OPERATOR, "ada"))
    assert_unreachable(ran, "does not speak TLS")


def test_no_socket_is_told(ctl: Ctl, tmp_path: Path) -> None:
    """A missing socket says how to start the controller."""
    assert_unreachable(ctl("--controller", f"unix:{tmp_path}/none.sock", "status"), "no socket", "systemctl start")


def test_a_socket_nobody_listens_on_is_told(ctl: Ctl, tmp_path: Path) -> None:
    """A socket left behind by a dead controller says so."""
    path = tmp_path / "left.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert_unreachable(ctl("--controller", f"unix:{path}", "status"), "it has stopped")


def test_a_socket_without_permission_is_told() -> None:
    """The sentence names the socket, and the group to join."""
    message, hint = socket_verdict("/run/rackpower/operator.sock", PermissionError(13, "Permission denied"))
    assert message == "no permission to use the controller's socket /run/rackpower/operator.sock"
    assert "usermod -aG" in hint


def test_a_port_nobody_listens_on_is_told(ctl: Ctl) -> None:
    """A refused connection is told as such."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    assert_unreachable(ctl("--controller", f"127.0.0.1:{port}", "status"), "no controller listens at")


def test_plain_text_beyond_this_machine_is_refused(ctl: Ctl) -> None:
    """Watts and policies do not cross a network in the open."""
    ran = ctl("--controller", "192.0.2.1:7443", "status")
    assert (ran.code, "plain text" in ran.err) == (2, True)


@pytest.mark.parametrize("address", ["nowhere", "host:", "unix:relative", "host:99999"])
def test_what_is_no_address_is_a_usage_error(ctl: Ctl, address: str) -> None:
    """The sentence says how to write one."""
    ran = ctl("--controller", address, "status")
    assert (ran.code, "is not an address" in ran.err) == (2, True)


def test_a_part_of_the_certificates_is_a_usage_error(ctl: Ctl, tmp_path: Path) -> None:
    """Which one is missing is said."""
    ran = ctl("--controller", "localhost:1", "--ca", str(tmp_path / "ca.pem"), "status")
    assert (ran.code, "missing: cert, key" in ran.err) == (2, True)


def test_a_missing_certificate_is_a_usage_error(ctl: Ctl, tmp_path: Path) -> None:
    """The file is named."""
    none = str(tmp_path / "none.pem")
    ran = ctl("--controller", "localhost:1", "--ca", none, "--cert", none, "--key", none, "status")
    assert (ran.code, "none.pem: No such file" in ran.err) == (2, True)


def test_the_context_file_stands_behind_flags_and_environment(
    ctl: Ctl, tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context file with paths relative to itself works; the environment and a flag go before it."""
    folder = tmp_path / ".config" / "rackpower"
    folder.mkdir(parents=True)
    authority.issue(Role.OPERATOR, "ada", into=folder)
    with secured(authority, "127.0.0.1") as address:
        (folder / "ctl.yaml").write_text(
            f"controller: {address}\nca: {tmp_path}/pki/ca.pem\ncert: ada.pem\nkey: ada.key\n"
        )
        assert ctl("status").code == 0
        monkeypatch.setenv("RACKCTL_CONTROLLER", f"unix:{tmp_path}/environment.sock")
        assert "environment.sock" in ctl("status").err
        assert "flag.sock" in ctl("--controller", f"unix:{tmp_path}/flag.sock", "status").err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("controler: x", "`controler` is not known"),
        ("- a", "not a list of names and texts"),
        ("a: [", "ctl.yaml:1:"),
        ("controller: 5", "not a list of names and texts"),
        ("\xff", "not YAML in UTF-8"),
    ],
)
def test_a_context_file_that_is_wrong_is_a_usage_error(ctl: Ctl, tmp_path: Path, content: str, words: str) -> None:
    """What is wrong with it, and what it may hold."""
    path = tmp_path / ".config" / "rackpower" / "ctl.yaml"
    path.parent.mkdir(parents=True)
    path.write_bytes(content.encode("latin-1"))
    ran = ctl("status")
    assert (ran.code, words in ran.err) == (2, True), ran.err
