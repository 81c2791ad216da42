"""The lease keeper's memory on the disk: one small JSON file, replaced atomically, locked by the agent that owns it.

The lock outlives a killed agent for as long as one of its threads is inside the kernel: who finds it held by a
process that is being killed knows that an old driver call may yet take effect.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rackpower_agent.lease.memory import GpuRecord, JournalImage, Memory, WriteRecord
from rackpower_common.errors import RackpowerError
from rackpower_common.model.identity import GpuId, Term

FORMAT: Final = 1
"""Rises when an older agent could misread the file; an unknown format counts as a lost journal."""

SIZE_LIMIT_BYTES: Final = 1 << 20
WHOLE_LIMIT: Final = (1 << 63) - 1
"""Sequences and terms are 64 bits wide on the wire."""

_KILL_BIT: Final = 1 << 8
"""SIGKILL among the pending signals of /proc/PID/status."""


class JournalError(RackpowerError):
    """The journal's folder cannot be used."""


class Journal:
    """The journal of one agent.

    Args:
        folder: Where it lies; made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "lease.json"
        self._lock: int | None = None

    def open(self) -> Memory:
        """Take the folder and read what is remembered.

        Raises:
            JournalError: The folder cannot be written, or belongs to a living agent.
        """
        try:
            self._folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._lock = os.open(self._folder / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            hint = "check state_dir and its permissions"
            raise JournalError(f"cannot use {self._folder}: {error.strerror}", hint) from None
        former_writer_alive = not self.try_lock()
        if former_writer_alive:
            pid = self._owner()
            if pid is None or not is_dying(pid):
                who = f"process {pid}" if pid is not None else "another process"
                raise JournalError(f"{self._folder} belongs to {who}", "one agent a node: stop the other one first")
        return _remember(self._path, former_writer_alive=former_writer_alive)

    def try_lock(self) -> bool:
        """Take the lock if it is free; True when it is ours."""
        if self._lock is None:
            return False
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        return True

    def save(self, image: JournalImage) -> None:
        """Put an image on the disk; returns when it is there.

        Raises:
            OSError: The disk does not take it.
        """
        content = encode(image)
        fresh = self._path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def close(self) -> None:
        """Let go of the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _owner(self) -> int | None:
        if self._lock is None:
            return None
        text = os.pread(self._lock, 32, 0).decode("ascii", "replace").strip()
        return int(text) if text.isdigit() else None


def is_dying(pid: int, proc: Path = Path("/proc")) -> bool:
    """Return whether a process has been killed and only waits to leave the kernel."""
    try:
        status = (proc / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True  # gone between our looks
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    if fields.get("State", "").strip()[:1] in ("Z", "X"):
        return True
    pending = int(fields.get("ShdPnd", "0").strip() or "0", 16) | int(fields.get("SigPnd", "0").strip() or "0", 16)
    return bool(pending & _KILL_BIT)


def _remember(path: Path, *, former_writer_alive: bool) -> Memory:
    """Read the journal; whatever is wrong with it, it is a lost one, in words."""
    try:
        return Memory(decode(_content(path)), former_writer_alive)
    except FileNotFoundError:
        return Memory(None, former_writer_alive, f"there is no {path}")
    except OSError as error:
        return Memory(None, former_writer_alive, f"{path} cannot be read: {error.strerror}")
    except ValueError as error:
        return Memory(None, former_writer_alive, f"{path} cannot be read: {error}")


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(SIZE_LIMIT_BYTES + 1)
    if len(content) > SIZE_LIMIT_BYTES:
        raise ValueError(f"it has more than {SIZE_LIMIT_BYTES} bytes")
    return content


def encode(image: JournalImage) -> bytes:
    """Return an image as one line of JSON and a line with its checksum."""
    line = json.dumps({"format": FORMAT, **asdict(image)}, separators=(",", ":"), allow_nan=False).encode()
    return b"%s\n%08x\n" % (line, zlib.crc32(line))


def decode(content: bytes) -> JournalImage:
    """Return the image that a file holds.

    Raises:
        ValueError: It is torn, changed, of another format, or no journal at all.
    """
    line, _, checksum = content.partition(b"\n")
    if checksum != b"%08x\n" % zlib.crc32(line):
        raise ValueError("it is torn or was changed: its checksum does not match")
    try:
        return _image(json.loads(line))
    except KeyError as error:
        raise ValueError(f"it has no {error}") from None
    except (TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"it is no journal: {error}") from None


def _image(values: Mapping[str, Any]) -> JournalImage:
    if values["format"] != FORMAT:
        raise ValueError(f"its format is {values['format']}, this agent reads {FORMAT}")
    return JournalImage(
        boot_id=_text(values["boot_id"]), term=_term(values["term"]), gpus=tuple(map(_gpu, values["gpus"]))
    )


def _gpu(values: Mapping[str, Any]) -> GpuRecord:
    return GpuRecord(
        gpu=GpuId(_text(values["gpu"])),
        term=_term(values["term"]),
        sequence=_whole(values["sequence"]),
        seen_sequence=_whole(values["seen_sequence"]),
        applied_sequence=_whole(values["applied_sequence"]),
        cap_w=_optional(values["cap_w"]),
        fallback_w=_optional(values["fallback_w"]),
        deadline_s=_time(values["deadline_s"]) if values["deadline_s"] is not None else None,
        writes=tuple(WriteRecord(_whole(write["cap_w"]), _time(write["issued_s"])) for write in values["writes"]),
    )


def _term(values: Mapping[str, Any] | None) -> Term | None:
    return Term(_whole(values["number"]), _text(values["instance"])) if values is not None else None


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is not a name")
    return value


def _time(value: object) -> float:
    """Return a time of the boot clock; one that is not finite would make a lease without end."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a time")
    return float(value)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= WHOLE_LIMIT:
        raise ValueError(f"{value!r} is not a whole number ≥ 0")
    return value


def _optional(value: object) -> int | None:
    return None if value is None else _whole(value)
