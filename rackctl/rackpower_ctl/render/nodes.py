"""Nodes as a table."""

from __future__ import annotations

from collections import Counter

from rich.console import Group
from rich.table import Table
from rich.text import Text

from rackpower.v1 import operator_pb2
from rackpower_ctl.render import words
from rackpower_ctl.render.gpu_groups import short_model
from rackpower_ctl.render.tables import cell, number_column, plain_table, state_cell, text_column, word_column
from rackpower_ctl.render.words import clean


def node_table(status: operator_pb2.Status, *, wide: bool) -> Group:
    """Return one row a node; wide adds its domains, its agent's version and details; narrow tells details below."""
    table = _table(status, wide=wide)
    told = [(node.name, node.detail) for node in status.nodes if node.detail] if not wide else []
    return Group(table, *(Text(f"{clean(name)}: ", style="dim").append(clean(detail)) for name, detail in told))


def _table(status: operator_pb2.Status, *, wide: bool) -> Table:
    table = plain_table()
    word_column(table, "NODE", at_most=32 if wide else 16)
    word_column(table, "STATE")
    word_column(table, "GPUS", at_most=32 if wide else 18)
    for header in ("DRAW W", "LEDGER W", "TOK/S"):
        number_column(table, header)
    number_column(table, "REPORT")
    if wide:
        word_column(table, "FEEDS", at_most=32)
        word_column(table, "AGENT", at_most=16)
    if wide and any(node.detail for node in status.nodes):
        text_column(table, "DETAIL")
    for node in status.nodes:
        row = _row(node, [gpu for gpu in status.gpus if gpu.node == node.name], wide=wide)
        table.add_row(*row[: len(table.columns)])
    return table


def gpu_counts(gpus: list[operator_pb2.Gpu]) -> str:
    """Return `8 H100`, or `4 H100, 4 B200`."""
    counts = Counter(short_model(gpu.model) for gpu in gpus)
    return ", ".join(f"{count} {model}" for model, count in counts.items()) or words.MISSING


def _row(node: operator_pb2.Node, gpus: list[operator_pb2.Gpu], *, wide: bool) -> list[str | Text]:
    rates = [gpu.tokens_per_second for gpu in gpus if gpu.HasField("tokens_per_second")]
    row: list[str | Text] = [
        cell(node.name),
        state_cell(words.node_state(node.state)),
        cell(gpu_counts(gpus)),
        words.watts(node.power_milliwatts if node.HasField("power_milliwatts") else None),
        words.watts(node.exposure_milliwatts),
        words.whole(sum(rates) if rates else None),
        words.age(node.report_age_milliseconds if node.HasField("report_age_milliseconds") else None),
    ]
    if wide:
        row += [cell(", ".join(node.domains)), cell(node.agent_version)]
    return [*row, cell(node.detail)]
