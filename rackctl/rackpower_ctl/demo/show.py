"""What the demo says while it runs: lines of progress, or on a terminal the live table under its own lines."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from rackpower_ctl.demo.control import Controllers
from rackpower_ctl.demo.folder import Folder
from rackpower_ctl.demo.measuring import Account, Window
from rackpower_ctl.follower import Seen
from rackpower_ctl.watch import frame

LINE_S: Final = 5.0
"""Between two lines of progress where there is no terminal."""

LEASES: Final = "Caps stay until their leases end, then each is the lower of cap and fallback."


@dataclass(frozen=True, slots=True)
class Now:
    """Everything that is shown at one moment."""

    seen: Seen
    account: Account
    window: Window | None
    budget_w: int
    controllers: Controllers
    left_s: float | None


class Show(Protocol):
    """Where the demo speaks."""

    def say(self, line: str) -> None:
        """Tell one thing that happened, to stay readable."""
        ...

    def update(self, now: Now) -> None:
        """Show how things are."""
        ...


class Lines:
    """Plain lines on stderr, for pipes and for `--json`."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def say(self, line: str) -> None:
        """Print a line at once."""
        print(line, file=sys.stderr, flush=True)

    def update(self, now: Now) -> None:
        """Print a line now and then."""
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + LINE_S
            self.say(hardware_line(now))


class Screen:
    """The live table, and above it where to find what."""

    def __init__(self, console: Console, folder: Folder) -> None:
        self._console = console
        self._folder = folder
        self._live: Live | None = None
        self._said = ""

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Use the whole terminal inside the block."""
        with Live(console=self._console, screen=True, auto_refresh=False) as live:
            self._live, self._said = live, ""  # what was said before stands on the terminal already
            try:
                yield
            finally:
                self._live = None

    def say(self, line: str) -> None:
        """Print a line, or keep it on the screen until the next one."""
        self._said = line
        if self._live is None:
            self._console.print(Text(line), soft_wrap=True)

    def update(self, now: Now) -> None:
        """Draw everything."""
        if self._live is None:
            return
        above: list[RenderableType] = [Text(hardware_line(now), style="bold"), *controller_lines(now, self._folder)]
        above.append(Text(f"talk to it: {self._folder.rackctl_command('status')}", style="dim"))
        above.append(Text(f"edit it:    {self._folder.policy}    end it: Ctrl-C", style="dim"))
        if self._said:
            above.append(Text(self._said, style="cyan"))
        self._live.update(frame(now.seen, time.monotonic(), self._console, [*above, Text("")]), refresh=True)


def hardware_line(now: Now) -> str:
    """Return what the hardware itself tells."""
    account = now.account
    rate = f"; {now.window.tokens_per_s:,.0f} tokens/s" if now.window is not None and now.window.length_s > 0 else ""
    left = f"; {now.left_s:.0f} s left" if now.left_s is not None else ""
    return (
        f"hardware {account.time_s:.0f} s: {account.power_w:,.0f} W of {now.budget_w:,} W, "
        f"peak {account.peak_w:,.0f} W, over budget {account.over_budget_s:g} s{rate}{left}"
    )


def controller_lines(now: Now, folder: Folder) -> list[Text]:
    """Return how the controller is, and while it is down how to start it."""
    controllers = now.controllers
    if controllers.down_since_s is None:
        return [Text(f"controller: pid {controllers.pid}; kill -9 it and see", style="dim")]
    down_s = time.monotonic() - controllers.down_since_s
    return [
        Text(f"controller: DOWN for {down_s:.0f} s. {LEASES}", style="bold red"),
        Text(f"start it:   {shlex.join(folder.controller_command())}", style="bold"),
    ]
