"""`rackctl nodes`, `rackctl gpu ID` and `rackctl explain GPU`: parts of the status, closer up."""

from __future__ import annotations

from typing import Annotated

import typer

from rackpower_ctl.commands.flags import Json, operator

GpuArgument = Annotated[
    str, typer.Argument(metavar="GPU", help="Its UUID, the beginning of it, or NODE/NUMBER as `rackctl gpu` counts.")
]


def nodes(context: typer.Context, as_json: Json = False) -> None:
    """Show every node: state, draw, ledger, age of its last report."""
    with operator(context) as rack:
        answer = rack.status()
    from rackpower_ctl.output import console, print_json
    from rackpower_ctl.render.nodes import node_table
    from rackpower_ctl.render.status_json import node_record
    from rackpower_ctl.render.status_view import NO_NODES, WIDE_COLUMNS

    if as_json:
        print_json([node_record(node) for node in answer.nodes])
        return
    screen = console()
    screen.print(node_table(answer, wide=screen.width >= WIDE_COLUMNS) if answer.nodes else NO_NODES)


def gpu(context: typer.Context, which: GpuArgument, as_json: Json = False) -> None:
    """Show everything about one GPU."""
    with operator(context) as rack:
        answer = rack.status()
    from rackpower_ctl.output import console, print_json
    from rackpower_ctl.render.gpu_page import find_gpu, gpu_page
    from rackpower_ctl.render.status_json import gpu_record

    found = find_gpu(answer, which)
    if as_json:
        print_json(gpu_record(found))
        return
    console().print(gpu_page(found))


def explain(context: typer.Context, which: GpuArgument, as_json: Json = False) -> None:
    """Tell why a GPU has the cap it has, step by step: the limits above it, the plan, the grant, the hardware."""
    with operator(context) as rack:
        answer = rack.status()
    from rackpower_ctl.output import console, print_json
    from rackpower_ctl.render.explanation import explanation_document, explanation_text
    from rackpower_ctl.render.gpu_page import find_gpu

    found = find_gpu(answer, which)
    if as_json:
        print_json(explanation_document(answer, found))
        return
    console().print(explanation_text(answer, found))
