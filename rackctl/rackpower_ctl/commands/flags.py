"""Flags that several commands share, and how a command gets at its controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rackpower_ctl.connection import Connection, Wanted, environment, resolve

if TYPE_CHECKING:  # gRPC is imported only by commands that talk
    from rackpower_ctl.client import Operator

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts; docs/rackctl.md tells every field.")]


def connection(context: typer.Context) -> Connection:
    """Return the connection that the root's flags, the environment and the context file ask for.

    Raises:
        UsageError: They contradict themselves.
    """
    wanted = context.obj
    return resolve(wanted if isinstance(wanted, Wanted) else Wanted(), environment())


def operator(context: typer.Context) -> Operator:
    """Return a connection to the controller, to be used in a `with`.

    Raises:
        UsageError: The address or the certificates cannot be used.
    """
    from rackpower_ctl.client import Operator

    return Operator(connection(context))
