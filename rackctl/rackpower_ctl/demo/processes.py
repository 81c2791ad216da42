"""The demo's processes: started with a log each, watched, and always ended, by the guardian."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rackpower_ctl.demo.guardian import Store, Ward, start_ticks
from rackpower_ctl.errors import CtlError

END_S: Final = 45.0
"""How long everything together may take to end."""
LAST_LINES: Final = 6
MAX_LOG_TAIL_BYTES: Final = 16_384


@dataclass(frozen=True, slots=True)
class Child:
    """A process that we started."""

    name: str
    command: tuple[str, ...]
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def exit_code(self) -> int | None:
        """Return its exit code, None while it runs."""
        return self.process.poll()

    def last_words(self) -> str:
        """Return the end of its log, one thing a line."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - MAX_LOG_TAIL_BYTES))
                lines = file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return "(no log)"
        return "\n".join(lines[-LAST_LINES:]) or "(it said nothing)"


class Processes:
    """Everything that runs; use it in a `with`, at whose end nothing runs any more.

    Args:
        logs: Folder of the logs, made when missing.
        environment: What the processes get, None for ours.
    """

    def __init__(self, logs: Path, environment: Mapping[str, str] | None = None) -> None:
        self._logs = logs
        self._environment = dict(os.environ if environment is None else environment)
        self._guardian: subprocess.Popen[bytes] | None = None
        self.children: dict[str, Child] = {}

    def __enter__(self) -> Self:
        self._logs.mkdir(parents=True, exist_ok=True)
        with (self._logs / "guardian.log").open("wb") as log:
            self._guardian = subprocess.Popen(
                [sys.executable, "-m", "rackpower_ctl.demo.guardian"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        guardian = self._guardian
        if guardian is None or guardian.stdin is None:
            return
        self._guardian = None
        guardian.stdin.close()
        try:
            guardian.wait(END_S)
        except subprocess.TimeoutExpired:
            guardian.kill()
        for child in self.children.values():
            child.process.poll()  # reaped, so that nothing is left behind as a zombie

    def start(self, name: str, command: Sequence[str], phase: int = 0) -> Child:
        """Start a process in a session of its own, so that a Ctrl-C on our terminal reaches us alone.

        Args:
            name: For people, and of its log.
            command: Program and arguments.
            phase: Lower ends first.

        Raises:
            CtlError: It cannot be started.
        """
        log = self._logs / f"{name}.log"
        try:
            with log.open("ab") as file:
                process = subprocess.Popen(
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    env=self._environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise CtlError(f"{name} cannot be started: {error.strerror}: {command[0]}") from error
        child = Child(name, tuple(command), process, log)
        self.children[name] = child
        self.adopt(process.pid, leads=True, phase=phase)
        return child

    def adopt(self, pid: int, *, leads: bool = False, phase: int = 0) -> None:
        """Let a process be ended with the others, also one that somebody else started."""
        begun = start_ticks(pid)
        if begun is not None:
            self._tell(asdict(Ward(pid, begun, leads, phase)))

    def end_with_us(self, store: Store) -> None:
        """Let a server be ended that its starter may leave behind."""
        self._tell(asdict(store))

    def remove_with_us(self, folder: Path) -> None:
        """Let a folder be removed once everything has ended."""
        self._tell({"remove": str(folder)})

    def ended(self) -> list[Child]:
        """Return the children that have ended."""
        return [child for child in self.children.values() if child.exit_code is not None]

    def _tell(self, word: dict[str, object]) -> None:
        if self._guardian is None or self._guardian.stdin is None:
            raise CtlError("the demo's processes are started and ended inside its `with` only")
        try:
            self._guardian.stdin.write(json.dumps(word).encode() + b"\n")
            self._guardian.stdin.flush()
        except OSError as error:
            raise CtlError("the demo's guardian has ended", f"its log: {self._logs / 'guardian.log'}") from error
