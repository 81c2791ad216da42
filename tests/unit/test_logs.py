"""Logs: one line an event, and whoever logs never waits and never fails."""

from __future__ import annotations

import fcntl
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from rackpower_common.logs import LineWriter, configure_logs
from support.waiting import wait_until

WITHIN_S = 10.0
SMALL_PIPE = 4096


def read_some(descriptor: int) -> str:
    """Return what a pipe holds now."""
    try:
        return os.read(descriptor, 1 << 20).decode()
    except BlockingIOError:
        return ""


@pytest.fixture
def full_pipe() -> Iterator[tuple[int, int]]:
    """Return the ends of a pipe that takes nothing more until it is read."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, SMALL_PIPE)
    os.write(writer, b"." * SMALL_PIPE)
    os.set_blocking(reader, False)
    yield reader, writer
    os.close(reader)
    os.close(writer)


def test_an_event_is_one_json_object_a_line(tmp_path: Path) -> None:
    """Line breaks and odd characters inside of values do not make lines."""
    path = tmp_path / "log"
    with path.open("w") as out:
        configure_logs("json", stream=out)
        structlog.get_logger("x").warning("an event", reason="two\nlines", gpu="GPU-\udcff")
        configure_logs("json", stream=io.StringIO())  # closes the writer: all is on the disk
    (line,) = path.read_text().splitlines()
    said = json.loads(line)
    assert (said["event"], said["level"], said["reason"]) == ("an event", "warning", "two\nlines")


def test_less_severe_events_are_left_out() -> None:
    """The level is the least severe that is written."""
    out = io.StringIO()
    configure_logs("json", "warning", out)
    structlog.get_logger().info("no")
    structlog.get_logger().error("yes")
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["yes"]


def test_a_full_disk_costs_lines_and_nothing_else() -> None:
    """The one who logs goes on; every line that could not be written is counted."""
    with Path("/dev/full").open("w") as full:
        writer = LineWriter(full.fileno())
        for _ in range(3):
            writer.msg("line")
        writer.close(WITHIN_S)
        assert writer._lost == 3


def test_a_reader_that_stopped_reading_holds_up_nobody(full_pipe: tuple[int, int]) -> None:
    """What exceeds the limit is dropped at once, and told as soon as lines are taken again."""
    reader, descriptor = full_pipe
    writer = LineWriter(descriptor, limit=2)
    writer.msg("first")
    wait_until(writer._waiting.empty, within_s=WITHIN_S, what="the thread to hang in its write")
    for number in range(5):
        writer.msg(f"line {number}")
    seen = [read_some(reader)]

    def told() -> bool:
        seen.append(read_some(reader))
        return "line 1" in "".join(seen)

    wait_until(told, within_s=WITHIN_S, what="the lines that waited")
    assert "".join(seen).lstrip(".").splitlines() == [
        "first",
        '{"event": "log lines were lost", "level": "warning", "lines": 3}',
        "line 0",
        "line 1",
    ]
    writer.close(WITHIN_S)


def test_a_process_ends_while_its_log_hangs(full_pipe: tuple[int, int]) -> None:
    """The last words get a second; then the process ends with its own exit code, not the interpreter's."""
    code = (
        "import structlog\nfrom rackpower_common.logs import configure_logs\n"
        "configure_logs('json')\nstructlog.get_logger().info('x')\nraise SystemExit(7)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=full_pipe[1], stderr=subprocess.PIPE, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (7, b"")


def test_the_last_lines_of_a_process_are_written() -> None:
    """What was logged just before the end is there."""
    code = (
        "import structlog\nfrom rackpower_common.logs import configure_logs\n"
        "configure_logs('json')\n[structlog.get_logger().info('x') for _ in range(200)]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30, check=True)
    assert len(done.stdout.splitlines()) == 200
