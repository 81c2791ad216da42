"""`rackctl demo`: a whole simulated rack on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackpower_ctl.commands.flags import Json
from rackpower_ctl.errors import UsageError


def demo(
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1, help="Measure for so long after the start, then end; without it until Ctrl-C.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
    nodes: Annotated[int, typer.Option(help="Nodes of the rack.")] = 9,
    gpus_per_node: Annotated[int, typer.Option(help="GPUs of each node.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same hardware and requests.")] = 1,
    trace: Annotated[
        Path | None, typer.Option(help="Requests, in the Azure CSV format, plain or gzip.", show_default=False)
    ] = None,
    curves: Annotated[
        Path | None, typer.Option(help="Measured power curves, CSV, for the controller.", show_default=False)
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(help="A policy of your own; the rack is built as it describes.", show_default=False),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="A new folder for everything; it is kept.", show_default=False)
    ] = None,
    keep: Annotated[bool, typer.Option(help="Keep the temporary folder, logs and all.")] = False,
) -> None:
    """Run a simulated rack with real daemons, and measure on the simulated hardware that the budget holds.

    Exit code 0: it held; 1: it did not, or something failed.
    """
    try:
        from rackpower_ctl.demo.prepare import Options
        from rackpower_ctl.demo.run import run_demo
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the demo needs more than is installed here: {error.name} is missing",
            'pip install "rackpower[agent,controller,ctl,embedded,sim]"',
        ) from error

    options = Options(seconds, as_json, nodes, gpus_per_node, seed, trace, curves, policy, folder, keep)
    raise typer.Exit(run_demo(options))
