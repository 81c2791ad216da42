"""GPUs as a table: folded by node and kind on narrow screens, one row each on wide ones."""

from __future__ import annotations

from typing import Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from rackpower.v1 import operator_pb2
from rackpower_ctl.render import words
from rackpower_ctl.render.gpu_groups import GpuGroup, group_gpus, merged_sentences, shape, short_model
from rackpower_ctl.render.tables import cell, number_column, plain_table, state_cell, text_column, word_column

MOST_REASONS: Final = 20
"""Different reasons spelt out under the folded table."""


def folded_gpus(status: operator_pb2.Status) -> Group:
    """Return a row for each group of alike GPUs, and under the table why they have their caps."""
    groups = group_gpus(status)
    reasons = merged_sentences([gpu.why for group in groups for gpu in group.gpus])
    shapes = dict.fromkeys(shape(gpu.why) for group in groups for gpu in group.gpus if gpu.why.strip())
    number_of = {text: number for number, text in enumerate(shapes, start=1)}
    table = plain_table()
    word_column(table, "NODE", at_most=14)
    word_column(table, "GPUS", at_most=20)
    for header in ("CAP W", "DRAW W", "°C", "TOK/S"):
        number_column(table, header)
    word_column(table, "LIMITED BY", at_most=14)
    word_column(table, "WHY", at_most=7)
    previous = None
    for group in groups:
        table.add_row(*_folded_row(group, number_of, repeats_node=group.node == previous))
        previous = group.node
    parts: list[Table | Text] = [table]
    for number, reason in enumerate(reasons[:MOST_REASONS], start=1):
        parts.append(Text(f"why {number}: ", style="dim").append(words.clean(reason)))
    if len(reasons) > MOST_REASONS:
        parts.append(Text(f"and {len(reasons) - MOST_REASONS} other reasons: rackctl gpu ID tells them", style="dim"))
    return Group(*parts)


def whole_gpus(status: operator_pb2.Status) -> Table:
    """Return a row for each GPU."""
    short = short_uuids([gpu.gpu_uuid for gpu in status.gpus])
    with_workload = any(gpu.workload for gpu in status.gpus)
    table = plain_table()
    word_column(table, "NODE", at_most=24)
    word_column(table, "GPU")
    word_column(table, "MODEL", at_most=24)
    for header in ("CAP W", "GRANTED W", "TARGET W", "LEDGER W", "DRAW W", "°C", "TOK/S"):
        number_column(table, header)
    word_column(table, "LIMITED BY")
    word_column(table, "HEALTH")
    if with_workload:
        word_column(table, "WORKLOAD", at_most=24)
    text_column(table, "WHY THIS CAP")
    rank = {node.name: index for index, node in enumerate(status.nodes)}
    for gpu in sorted(status.gpus, key=lambda gpu: (rank.get(gpu.node, len(rank)), gpu.node)):
        workload = [cell(gpu.workload)] if with_workload else []
        table.add_row(*_whole_row(gpu, short[gpu.gpu_uuid]), *workload, cell(gpu.why))
    return table


def short_uuids(uuids: list[str], at_least: int = 12) -> dict[str, str]:
    """Return for each UUID its shortest beginning, of one length for all, that names it alone."""
    longest = max((len(uuid) for uuid in uuids), default=0)
    for length in range(at_least, longest):
        if len({uuid[:length] for uuid in uuids}) == len(set(uuids)):
            return {uuid: uuid[:length] for uuid in uuids}
    return {uuid: uuid for uuid in uuids}


def _folded_row(group: GpuGroup, number_of: dict[str, int], *, repeats_node: bool) -> list[str | Text]:
    numbers = sorted({number_of[shape(gpu.why)] for gpu in group.gpus if gpu.why.strip()})
    if group.health != "ok":
        limited = state_cell(group.health)
    elif group.control != "ok":
        limited = Text(words.clean(group.control.replace("_", " ")), style="yellow")
    else:
        limited = Text(group.limited_by)
    return [
        cell("" if repeats_node else group.node),
        cell(f"{len(group.gpus)} {short_model(group.model)}"),
        words.watts_range(group.caps_milliwatts),
        words.watts(group.mean_power_milliwatts),
        words.celsius(group.hottest_celsius),
        words.whole(group.tokens_per_second),
        limited,
        ",".join(map(str, numbers)) or words.MISSING,
    ]


def _whole_row(gpu: operator_pb2.Gpu, short: str) -> list[str | Text]:
    cap, granted = _optional(gpu, "enforced_cap_milliwatts"), _optional(gpu, "granted_cap_milliwatts")
    control = words.cap_control(gpu.cap_control)
    health = words.health(gpu.health)
    return [
        cell(gpu.node),
        cell(short),
        cell(short_model(gpu.model)),
        words.watts(cap),
        Text(words.watts(granted), style="yellow" if None not in (cap, granted) and cap != granted else ""),
        words.watts(_optional(gpu, "target_cap_milliwatts")),
        words.watts(gpu.exposure_milliwatts),
        words.watts(_optional(gpu, "power_milliwatts")),
        words.celsius(_optional(gpu, "core_celsius")),
        words.whole(gpu.tokens_per_second if gpu.HasField("tokens_per_second") else None),
        words.LIMITED_BY.get(gpu.limit_reason, words.MISSING),
        state_cell(health) if control == "ok" or health != "ok" else Text(control.replace("_", " "), style="yellow"),
    ]


def _optional(gpu: operator_pb2.Gpu, field: str) -> int | None:
    value: int = getattr(gpu, field)
    return value if gpu.HasField(field) else None  # type: ignore[arg-type]
