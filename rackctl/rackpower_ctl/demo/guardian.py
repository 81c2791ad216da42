"""Ends everything that a demo started, also when the demo itself is killed: `python -m rackpower_ctl.demo.guardian`.

A small process in a session of its own. It learns over a pipe what there is to end; when the pipe closes, because the
demo is done or because it died, it ends them in order and removes what is to be removed. The standard library only,
so that it starts at once and stays small.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PATIENCE_S: Final = 8.0
"""Between asking processes to end and ending them: an agent says goodbye, a controller stops its store."""
KILL_S: Final = 3.0
MAX_LINE: Final = 4096


@dataclass(frozen=True, slots=True)
class Ward:
    """A process to be ended.

    `start_ticks` is when it began, so that a pid that is used again is left alone. `leads` tells whether it leads a
    process group of its own, which is then ended as a whole. Lower `phase` ends first.
    """

    pid: int
    start_ticks: int
    leads: bool
    phase: int


@dataclass(frozen=True, slots=True)
class Store:
    """A server that its starter may have left behind: known by its pid file and the folder in its command line."""

    pid_file: str
    folder: str


def start_ticks(pid: int) -> int | None:
    """Return when a living process began, in clock ticks since boot; None for none and for one that was not reaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if len(fields) < 20 or fields[0] in "ZX" else int(fields[19])


def lives(ward: Ward) -> bool:
    """Return whether this very process still runs."""
    return start_ticks(ward.pid) == ward.start_ticks


def end(wards: Iterable[Ward], patience_s: float = PATIENCE_S) -> None:
    """End processes phase by phase: ask, wait, then kill what is left, with its group where it leads one."""
    listed = list(wards)
    for phase in sorted({ward.phase for ward in listed}):
        mine = [ward for ward in listed if ward.phase == phase and lives(ward)]
        for ward in mine:
            _signal(ward, signal.SIGTERM)
        _wait(mine, patience_s)
        for ward in mine:
            _signal(ward, signal.SIGKILL)
            if ward.leads:
                _kill_group(ward.pid)
        _wait(mine, KILL_S)


def end_store(store: Store, patience_s: float = PATIENCE_S) -> None:
    """End the server that a pid file names, if its command line is that of this folder's server."""
    try:
        pid = int(Path(store.pid_file).read_text(encoding="ascii"))
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return
    begun = start_ticks(pid)
    if begun is not None and os.fsencode(store.folder) in words:
        end([Ward(pid, begun, leads=False, phase=0)], patience_s)


def _signal(ward: Ward, number: signal.Signals) -> None:
    try:
        # the descriptor pins the process: a pid that is used again cannot be hit after the check
        descriptor = os.pidfd_open(ward.pid)
    except OSError:
        return
    try:
        if lives(ward):
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)


def _kill_group(pid: int) -> None:
    """Kill what is left in a group whose leader lived a moment ago."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _wait(wards: list[Ward], patience_s: float) -> None:
    until_s = time.monotonic() + patience_s
    while any(lives(ward) for ward in wards) and time.monotonic() < until_s:
        time.sleep(0.02)


def main() -> int:
    """Learn what to end until the pipe closes, then end it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when the demo has ended, not before
    wards: dict[int, Ward] = {}
    stores: list[Store] = []
    folders: list[str] = []
    for line in iter(lambda: sys.stdin.buffer.readline(MAX_LINE), b""):
        try:
            word = json.loads(line)
        except ValueError:
            continue  # cut off in the middle: the demo was killed while it wrote
        if "pid" in word:
            wards[word["pid"]] = Ward(**word)
        elif "pid_file" in word:
            stores.append(Store(**word))
        elif "remove" in word:
            folders.append(word["remove"])
    end(wards.values())
    for store in stores:
        end_store(store)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
