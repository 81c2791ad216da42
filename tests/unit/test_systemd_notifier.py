"""Talking to systemd: one datagram a word, and silence where nobody listens."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackpower_common.systemd import Notifier


@pytest.fixture(params=["path", "abstract"])
def ear(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """Return a notification socket and its address as systemd writes it."""
    address = str(tmp_path / "notify") if request.param == "path" else f"@rackpower-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(address.replace("@", "\0", 1))
        listening.settimeout(5.0)
        yield address, listening


def test_each_word_is_one_datagram(ear: tuple[str, socket.socket]) -> None:
    """READY, STATUS, WATCHDOG, RELOADING and STOPPING as sd_notify(3) has them; a status is one line."""
    address, listening = ear
    notifier = Notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "8000000"})
    notifier.ready("term 3")
    notifier.status("two\nlines")
    notifier.alive()
    notifier.reloading(17)
    notifier.stopping()
    assert [listening.recv(4096).decode() for _ in range(5)] == [
        "READY=1\nSTATUS=term 3",
        "STATUS=two lines",
        "WATCHDOG=1",
        "RELOADING=1\nMONOTONIC_USEC=17",
        "STOPPING=1",
    ]


@pytest.mark.parametrize("address", ["", "/nowhere/notify", "@nobody-listens-here", "relative"])
def test_nobody_listening_is_no_error(address: str) -> None:
    """The daemon's work goes on, also without systemd."""
    notifier = Notifier({"NOTIFY_SOCKET": address})
    notifier.ready()
    notifier.alive()


@pytest.mark.parametrize(
    ("values", "period_s"),
    [
        ({"WATCHDOG_USEC": "8000000"}, 4.0),
        ({"WATCHDOG_USEC": "8000000", "WATCHDOG_PID": str(os.getpid())}, 4.0),
        ({"WATCHDOG_USEC": "8000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_ours_only_where_systemd_says_so(values: dict[str, str], period_s: float | None) -> None:
    """Half its time, as sd_watchdog_enabled(3) recommends; a variable that another process left is not for us."""
    assert Notifier(values).feed_period_s == period_s
