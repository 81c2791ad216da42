"""`rackctl status --watch`: the status as it goes, redrawn on a terminal, line by line elsewhere."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from rackpower_ctl.client import Operator
from rackpower_ctl.connection import Connection
from rackpower_ctl.errors import ExitCode
from rackpower_ctl.follower import Follower, Seen
from rackpower_ctl.output import complain, console, print_json_line
from rackpower_ctl.render import words
from rackpower_ctl.render.status_json import status_document
from rackpower_ctl.render.status_view import page, screen

if TYPE_CHECKING:
    from types import FrameType

REDRAW_S: Final = 0.25
STALE_S: Final = 3.0
"""Three ticks: a status older than this says so."""


def watch_rack(connection: Connection, *, as_json: bool) -> ExitCode:
    """Follow a controller until Ctrl-C or SIGTERM.

    Raises:
        UsageError: The address or the certificates cannot be used.
    """
    Operator(connection).close()  # what can never work is said at once
    where = console()
    try:
        with ended_by_sigterm(), Follower(lambda: Operator(connection)) as follower:
            if where.is_terminal and not as_json:
                _redraw(follower, where)
            else:
                _print(follower, where, as_json=as_json)
    except KeyboardInterrupt:
        pass
    return ExitCode.FINE


def frame(seen: Seen, now_s: float, where: Console, above: Sequence[RenderableType] = ()) -> Group:
    """Return what a terminal shows: lines of the caller, what is stale, and as much status as fits."""
    parts = list(above)
    if (stale := staleness(seen, now_s)) is not None:
        parts.append(stale)
    if seen.status is not None:
        used = sum(len(where.render_lines(part)) for part in parts)
        parts.append(screen(seen.status, where, max(1, where.height - used)))
    return Group(*parts)


def staleness(seen: Seen, now_s: float) -> Text | None:
    """Return a line when what is shown is not what is; None while it is fresh."""
    if seen.status is None:
        return Text(f"waiting for the controller: {words.clean(seen.trouble) or 'connecting'}", style="yellow")
    age_s = now_s - seen.received_s
    if age_s <= STALE_S:
        return None
    why = words.clean(seen.trouble) or "the controller is connected and silent"
    return Text(f"STALE: this is the rack {age_s:.0f} s ago; {why}; trying again", style="bold red")


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that the terminal is put back."""

    def interrupt(_number: int, _stack: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _redraw(follower: Follower, where: Console) -> None:
    with Live(console=where, screen=True, auto_refresh=False) as live:
        while True:
            live.update(frame(follower.latest(), time.monotonic(), where), refresh=True)
            time.sleep(REDRAW_S)


def _print(follower: Follower, where: Console, *, as_json: bool) -> None:
    """Print each status that is new; troubles go to stderr, each once."""
    printed, told = 0, ""
    while True:
        seen = follower.latest()
        if seen.status is not None and seen.count != printed:
            printed, told = seen.count, ""
            if as_json:
                print_json_line(status_document(seen.status))
            else:
                where.print(page(seen.status, where), Text(""))
        elif seen.trouble and seen.trouble != told:
            told = seen.trouble
            complain(f"{seen.trouble}; trying again")
        time.sleep(REDRAW_S)
