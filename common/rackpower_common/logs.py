"""Logs: one JSON object a line on stdout for journald, readable colour on a terminal.

Whoever logs never waits and never fails: a full disk, a reader that is gone or one that stopped reading costs lines,
not caps. A thread of its own writes; what it cannot take is dropped, counted, and told when it takes lines again.
"""

from __future__ import annotations

import atexit
import io
import json
import logging
import os
import queue
import sys
import threading
from typing import Final, Literal, TextIO

import structlog

LogFormat = Literal["auto", "json", "pretty"]
LogLevel = Literal["debug", "info", "warning", "error"]

WAITING_LIMIT: Final = 1000
"""Lines that wait for a slow reader; later ones are lost."""

LAST_WORDS_S: Final = 1.0
"""How long the lines that wait at the end may take."""


class LineWriter:
    """A logger for structlog: hands lines to a thread that writes them.

    Args:
        descriptor: Where to; written to directly, past Python's buffer, which a hung write would keep locked.
        limit: Lines that wait at most.
    """

    def __init__(self, descriptor: int, limit: int = WAITING_LIMIT) -> None:
        self._descriptor = descriptor
        self._waiting: queue.Queue[str | None] = queue.Queue(limit)
        self._lost = 0
        self._counting = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def msg(self, message: str) -> None:
        """Write a line as soon as the reader takes it."""
        try:
            self._waiting.put_nowait(message)
        except queue.Full:
            self._count(1)

    debug = info = warning = warn = error = critical = fatal = exception = log = failure = msg

    def close(self, within_s: float = LAST_WORDS_S) -> None:
        """Give the lines that wait a last chance, `within_s` seconds at most."""
        try:
            self._waiting.put(None, timeout=within_s)
        except queue.Full:
            return
        self._thread.join(within_s)

    def _run(self) -> None:
        while (line := self._waiting.get()) is not None:
            lost = self._lost
            notice = f"{json.dumps({'event': 'log lines were lost', 'level': 'warning', 'lines': lost})}\n"
            try:
                self._write(f"{notice if lost else ''}{line}\n".encode(errors="backslashreplace"))
            except OSError:
                self._count(1)
            else:
                self._count(-lost)

    def _count(self, lines: int) -> None:
        with self._counting:
            self._lost += lines

    def _write(self, content: bytes) -> None:
        while content:
            content = content[os.write(self._descriptor, content) :]


_writers: list[LineWriter] = []
"""The one in use, kept for the process's last words."""


def configure_logs(form: LogFormat = "auto", level: LogLevel = "info", stream: TextIO | None = None) -> None:
    """Set up logging for a daemon.

    Args:
        form: `auto` is pretty on a terminal, else JSON.
        level: The least severe that is written.
        stream: Where to; stdout by default. One without a file descriptor is written to at once.
    """
    out = stream if stream is not None else sys.stdout
    pretty = form == "pretty" or (form == "auto" and out.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback)
        if pretty
        else structlog.processors.JSONRenderer()
    )
    stamps = structlog.processors.TimeStamper(fmt="%H:%M:%S" if pretty else "iso", utc=not pretty)
    while _writers:
        _writers.pop().close()
    writer = _writer(out)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            stamps,
            *([] if pretty else [structlog.processors.dict_tracebacks]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(out) if writer is None else lambda *_: writer,
        cache_logger_on_first_use=False,
    )


def _writer(out: TextIO) -> LineWriter | None:
    try:
        writer = LineWriter(out.fileno())
    except io.UnsupportedOperation:
        return None
    _writers.append(writer)
    return writer


@atexit.register
def _last_words() -> None:
    while _writers:
        _writers.pop().close()
