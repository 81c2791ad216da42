"""`rackctl status --watch` as a process, over a controller that goes away and comes back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.operator_fake import FakeOperator, serving
from support.statuses import rack

RACKCTL = str(Path(sys.executable).with_name("rackctl"))
END_S = 20.0


@contextmanager
def watching(address: str, home: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """Run `rackctl status --watch` with pipes; end it in the end."""
    command = [RACKCTL, "--controller", address, "status", "--watch", *flags]
    environment = os.environ | {"HOME": str(home), "XDG_CONFIG_HOME": str(home)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_watch_outlives_its_controller(tmp_path: Path) -> None:
    """One JSON line a status; the trouble is told on stderr; a new controller on the same socket is followed."""
    address = f"unix:{tmp_path}/operator.sock"
    with watching(address, tmp_path, "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        with serving(FakeOperator(now=rack(tick=1)), address):
            assert json.loads(process.stdout.readline())["tick"] == 1
        troubles = iter(process.stderr.readline, "")
        assert any("no socket" in line or "has stopped" in line or "broke" in line for line in troubles)
        with serving(FakeOperator(now=rack(tick=2)), address):
            assert json.loads(process.stdout.readline())["tick"] == 2
            process.send_signal(signal.SIGTERM)
            assert process.wait(END_S) == 0


def test_a_watch_without_a_terminal_prints_pages(tmp_path: Path) -> None:
    """Text for people, page after page, without colour; Ctrl-C is an orderly end."""
    address = f"unix:{tmp_path}/operator.sock"
    fake = FakeOperator(now=rack(tick=1))
    with serving(fake, address), watching(address, tmp_path) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("rackpower · tick 1 ·")
        fake.to_come.put(rack(tick=2))
        lines = iter(process.stdout.readline, "")
        assert any(line.startswith("rackpower · tick 2 ·") for line in lines)
        process.send_signal(signal.SIGINT)
        assert process.wait(END_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_what_can_never_work_is_said_at_once(tmp_path: Path) -> None:
    """A wrong address ends a watch with 2 instead of trying for ever."""
    with watching("nowhere", tmp_path) as process:
        assert process.wait(END_S) == 2
