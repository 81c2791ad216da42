"""Talking to systemd: READY=1, WATCHDOG=1, STATUS=… over the socket that it names. Without systemd nothing happens.

The protocol is one datagram (sd_notify(3)); the libraries that speak it bring libsystemd along, this needs none.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

WATCHDOG_SHARE = 0.5
"""The watchdog is fed after this share of its time, as sd_watchdog_enabled(3) recommends."""


class Notifier:
    """Sends notifications; failures are silent, the daemon's work goes on.

    Args:
        environment: Where systemd's variables are; the process's own by default.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        values = os.environ if environment is None else environment
        self._address = values.get("NOTIFY_SOCKET", "")
        self.watchdog_s = _watchdog_s(values)

    @property
    def feed_period_s(self) -> float | None:
        """Return how often the watchdog wants to be fed, in seconds; None without one."""
        return self.watchdog_s * WATCHDOG_SHARE if self.watchdog_s is not None else None

    def ready(self, status: str = "") -> None:
        """Say that the service has started."""
        self._send("READY=1", *_status(status))

    def status(self, text: str) -> None:
        """Say in one line what goes on; `systemctl status` shows it."""
        self._send(*_status(text))

    def alive(self) -> None:
        """Feed the watchdog."""
        if self.watchdog_s is not None:
            self._send("WATCHDOG=1")

    def reloading(self, monotonic_us: int) -> None:
        """Say that the configuration is being read again."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={monotonic_us}")

    def stopping(self, status: str = "") -> None:
        """Say that the service is stopping."""
        self._send("STOPPING=1", *_status(status))

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), address)
        except OSError:
            return


def _status(text: str) -> tuple[str, ...]:
    return (f"STATUS={text.replace(chr(10), ' ')}",) if text else ()


def _watchdog_s(values: Mapping[str, str]) -> float | None:
    micros, pid = values.get("WATCHDOG_USEC", ""), values.get("WATCHDOG_PID", "")
    if not micros.isdigit() or int(micros) <= 0 or (pid and pid != str(os.getpid())):
        return None
    return int(micros) / 1_000_000
