from __future__ import annotations

import pytest

from rackpower_common.address import Address, AddressError, parse_address, require_tls


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:7443", Address("127.0.0.1", 7443)),
        ("rack-1.example:0", Address("rack-1.example", 0)),
        ("[::1]:7443", Address("::1", 7443)),
        ("unix:/run/rackpower/operator.sock", Address(path="/run/rackpower/operator.sock")),
    ],
)
def test_an_address_is_read_and_written_back(text: str, address: Address) -> None:
    """What is parsed prints as it was written."""
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    ["", ":7443", "host", "host:", "host:http", "host:70000", "host:-1", "::1:7443", "unix:", "unix:a.sock", "host:１"],
)
def test_what_is_no_address_is_told_with_how_to_write_one(text: str) -> None:
    """The words quote the text, the hint shows the forms."""
    with pytest.raises(AddressError) as caught:
        parse_address(text)
    assert repr(text) in caught.value.message
    assert "host:port" in caught.value.hint


def test_a_socket_path_longer_than_linux_takes_is_refused() -> None:
    """Longer paths fail in the kernel without words."""
    with pytest.raises(AddressError, match="107 bytes"):
        parse_address("unix:/" + "a" * 107)


@pytest.mark.parametrize("text", ["127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1", "unix:/a"])
def test_this_machine_may_be_plain(text: str) -> None:
    """Loopback and unix sockets need no certificates."""
    require_tls(parse_address(text), secured=False, what="the port")


@pytest.mark.parametrize("text", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "rack-1.example:1", "localhost.example:1"])
def test_beyond_this_machine_needs_mutual_tls(text: str) -> None:
    """Everything else is refused in words without certificates, and let through with them."""
    require_tls(parse_address(text), secured=True, what="the port")
    with pytest.raises(AddressError, match="plain text"):
        require_tls(parse_address(text), secured=False, what="the port")
