"""The status for a person: as much of it as the screen holds."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.text import Text

from rackpower.v1 import operator_pb2
from rackpower_ctl.render import headline
from rackpower_ctl.render.domains import domain_table
from rackpower_ctl.render.gpus import folded_gpus, whole_gpus
from rackpower_ctl.render.nodes import node_table

WIDE_COLUMNS: Final = 150
"""From here on every GPU has a row of its own; below, alike GPUs of a node share one."""

NO_NODES: Final = Text("No nodes: the policy describes none and no agent is connected.", style="yellow")


class Detail(IntEnum):
    """How much is shown; each holds what the one before it holds."""

    SUMMARY = 0
    NODES = 1
    FOLDED = 2
    WHOLE = 3


def status_view(
    status: operator_pb2.Status, detail: Detail, *, wide: bool, at_most_attention: int | None = None
) -> Group:
    """Return the status at one level of detail.

    Args:
        status: The rack.
        detail: How much to show.
        wide: Whether tables may use more than 80 columns.
        at_most_attention: Lines of attention, None for all.
    """
    blocks: list[list[RenderableType]] = [
        [headline.title(status), headline.sentence(status)],
        [*headline.totals(status)],
        [*headline.attention(status, at_most_attention)],
    ]
    if detail >= Detail.NODES:
        blocks.append(_domains(status, wide=wide))
        blocks.append(_nodes(status, wide=wide))
    if detail >= Detail.FOLDED and status.gpus:
        blocks.append([whole_gpus(status) if detail is Detail.WHOLE else folded_gpus(status)])
    lines: list[RenderableType] = []
    for block in blocks:
        if block:
            lines += [*([Text("")] if lines else []), *block]
    return Group(*lines)


def page(status: operator_pb2.Status, console: Console) -> Group:
    """Return the status for a console that scrolls: everything, in the layout that its width allows."""
    wide = console.width >= WIDE_COLUMNS
    return status_view(status, Detail.WHOLE if wide else Detail.FOLDED, wide=wide)


def screen(status: operator_pb2.Status, console: Console, lines: int) -> Group:
    """Return the most detailed status that fits into so many lines; the least detailed one when none does."""
    wide = console.width >= WIDE_COLUMNS
    choices = [Detail.WHOLE] if wide else []
    for detail in (*choices, Detail.FOLDED, Detail.NODES):
        view = status_view(status, detail, wide=wide, at_most_attention=5)
        if len(console.render_lines(view)) <= lines:
            return view
    return status_view(status, Detail.SUMMARY, wide=wide, at_most_attention=3)


def _domains(status: operator_pb2.Status, *, wide: bool) -> list[RenderableType]:
    if not status.domains:
        return [Text("No domains: no policy is in force. Apply one: rackctl policy apply FILE", style="yellow")]
    return [domain_table(status.domains, wide=wide)]


def _nodes(status: operator_pb2.Status, *, wide: bool) -> list[RenderableType]:
    if not status.nodes:
        return [NO_NODES]
    return [node_table(status, wide=wide)]
