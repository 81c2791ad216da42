"""`rackctl status`: the whole rack, once or as it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rackpower_ctl.commands.flags import Json, connection, operator
from rackpower_ctl.errors import ExitCode

if TYPE_CHECKING:  # the stubs are imported only by commands that talk
    from rackpower.v1 import operator_pb2


def status(
    context: typer.Context,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Follow every tick until Ctrl-C.")] = False,
) -> None:
    """Show racks, nodes, GPUs and what needs attention.

    Exit code 0: fine; 1: something needs attention; 3: the controller cannot be reached.
    """
    if watch:
        from rackpower_ctl.watch import watch_rack

        raise typer.Exit(watch_rack(connection(context), as_json=as_json))
    with operator(context) as rack:
        answer = rack.status()
    if as_json:
        from rackpower_ctl.output import print_json
        from rackpower_ctl.render.status_json import status_document

        print_json(status_document(answer))
    else:
        from rackpower_ctl.output import console
        from rackpower_ctl.render.status_view import page

        screen = console()
        screen.print(page(answer, screen))
    raise typer.Exit(exit_code(answer))


def exit_code(answer: operator_pb2.Status) -> ExitCode:
    """Return 1 when something needs attention; what is only good to know does not."""
    from rackpower_ctl.render import words

    grave = any(words.severity(item.severity) != "info" for item in answer.attention)
    return ExitCode.ATTENTION if grave else ExitCode.FINE
