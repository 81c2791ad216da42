"""`rackctl demo` as a process: started, read, and looked into through the hardware's own files."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rackpower_ctl.demo.guardian import start_ticks
from rackpower_sim.node_layout import HistoryEntry
from rackpower_sim.shared_state import NodeFile
from support.waiting import wait_until

RACKCTL: Final = str(Path(sys.executable).with_name("rackctl"))
NODES: Final = 2
GPUS: Final = 2
UP_S: Final = 90.0
"""For a small demo to come up on a machine that is busy with other tests."""
END_S: Final = 40.0


class Demo:
    """A small demo in a folder of its own."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.said: list[str] = []
        assert process.stderr is not None
        self._reader = threading.Thread(target=self.said.extend, args=(process.stderr,), daemon=True)
        self._reader.start()

    def wait_said(self, words: str, within_s: float = UP_S) -> str:
        """Wait until a line on stderr holds these words, and return it."""

        def found() -> str | None:
            line = next((line for line in list(self.said) if words in line), None)
            assert line or self.process.poll() is None, "".join(self.said)
            return line

        return wait_until(found, within_s=within_s, what=f"`{words}`") or ""

    def started(self) -> None:
        """Wait until it measures."""
        self.wait_said("after kill -9:")

    @property
    def controller_pid(self) -> int:
        """Return the first controller's process."""
        return int(self.wait_said("controller:     pid ").rsplit(" ", 1)[1])

    def start_again_command(self) -> list[str]:
        """Return the command that the demo prints for starting the controller again."""
        return shlex.split(self.wait_said("after kill -9:").partition(":")[2])

    def ctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Ask the demo's controller."""
        command = [RACKCTL, "--controller", f"unix:{self.folder}/operator.sock", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    def status(self) -> dict[str, object]:
        """Return the controller's status."""
        answer = self.ctl("status", "--json")
        assert answer.returncode in (0, 1), answer.stderr
        document: dict[str, object] = json.loads(answer.stdout)
        return document

    def caps_w(self) -> list[int]:
        """Return what the hardware enforces, GPU by GPU."""
        caps_w = []
        for path in sorted((self.folder / "rack").glob("*.node")):
            with contextlib.closing(NodeFile.open(path)) as node:
                caps_w += [gpu.enforced_w for gpu in node.gpus()]
        return caps_w

    def history(self) -> list[HistoryEntry]:
        """Return the last 25 s of the whole rack, one summed entry a step."""
        by_step: dict[int, list[HistoryEntry]] = {}
        for path in (self.folder / "rack").glob("*.node"):
            with contextlib.closing(NodeFile.open(path)) as node:
                for entry in node.history():
                    by_step.setdefault(entry.step, []).append(entry)
        return [
            entries[0]._replace(caps_w=sum(e.caps_w for e in entries), power_w=sum(e.power_w for e in entries))
            for step, entries in sorted(by_step.items())
            if len(entries) == NODES
        ]

    def end(self, number: int) -> str:
        """Send a signal, wait for the end, and return what stands on stdout."""
        self.process.send_signal(number)
        return self.finished()

    def finished(self) -> str:
        """Wait for the end and return what stands on stdout."""
        assert self.process.stdout is not None
        out = self.process.stdout.read()
        self.process.wait(END_S)
        self._reader.join(END_S)
        return out


@contextmanager
def demo(folder: Path, *arguments: str) -> Iterator[Demo]:
    """Run a small demo with `--json`, and end it in the end."""
    flags = ["--nodes", str(NODES), "--gpus-per-node", str(GPUS), "--dir", str(folder), "--json", *arguments]
    with subprocess.Popen(
        [RACKCTL, "demo", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        running = Demo(process, folder)
        try:
            yield running
        finally:
            if process.poll() is None:
                process.terminate()
                running.finished()


def processes_of(folder: Path) -> dict[int, str]:
    """Return the living processes whose command line names a folder, by pid."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if str(folder) in words and start_ticks(int(entry.name)) is not None:
            found[int(entry.name)] = words
    return found
