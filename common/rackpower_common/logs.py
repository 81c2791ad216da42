"""Logs: one JSON object a line on stdout for journald, readable colour on a terminal."""

from __future__ import annotations

import logging
import sys
from typing import Literal, TextIO

import structlog

LogFormat = Literal["auto", "json", "pretty"]
LogLevel = Literal["debug", "info", "warning", "error"]


def configure_logs(form: LogFormat = "auto", level: LogLevel = "info", stream: TextIO | None = None) -> None:
    """Set up logging for a daemon.

    Args:
        form: `auto` is pretty on a terminal, else JSON.
        level: The least severe that is written.
        stream: Where to; stdout by default.
    """
    out = stream if stream is not None else sys.stdout
    pretty = form == "pretty" or (form == "auto" and out.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback)
        if pretty
        else structlog.processors.JSONRenderer()
    )
    stamps = structlog.processors.TimeStamper(fmt="%H:%M:%S" if pretty else "iso", utc=not pretty)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            stamps,
            *([] if pretty else [structlog.processors.dict_tracebacks]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
