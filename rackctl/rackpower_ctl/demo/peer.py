"""Which process answers on a unix socket: how the demo knows a controller that somebody else started."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Final

ASK_S: Final = 1.0
_CREDENTIALS: Final = struct.Struct("3i")


def listener_pid(path: Path) -> int | None:
    """Return the process that listens on a socket, None when nobody does."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(ASK_S)
            asking.connect(str(path))
            answer = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return None
    pid: int = _CREDENTIALS.unpack(answer)[0]
    return pid if pid > 0 else None
