"""`rackctl events`: what happened, and with `--follow` what happens."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from rackpower_ctl.commands.flags import Json, operator

MOST_EVENTS = 10_000


class AtLeast(StrEnum):
    """How bad an event must be to be shown."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def events(
    context: typer.Context,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with events to come, until Ctrl-C.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=MOST_EVENTS, help="At most so many past events.")
    ] = 50,
    at_least: Annotated[AtLeast, typer.Option(help="Only events at least this severe.")] = AtLeast.INFO,
    as_json: Json = False,
) -> None:
    """Show events, oldest first; with --json one object a line."""
    with operator(context) as rack:
        from rackpower.v1 import operator_pb2
        from rackpower_ctl.output import console, print_json_line
        from rackpower_ctl.render.events import event_line, event_record

        screen = console()
        severity = operator_pb2.Severity.Value(f"SEVERITY_{at_least.name}")
        try:
            for event in rack.events(limit, severity, follow=follow):
                if as_json:
                    print_json_line(event_record(event))
                else:
                    screen.print(event_line(event), soft_wrap=True)
        except KeyboardInterrupt:
            return
