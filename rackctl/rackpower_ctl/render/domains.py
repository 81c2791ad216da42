"""The power tree as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from rackpower.v1 import operator_pb2
from rackpower_ctl.render import words
from rackpower_ctl.render.tables import cell, number_column, plain_table, text_column, word_column


def domain_table(domains: Sequence[operator_pb2.Domain], *, wide: bool) -> Group:
    """Return the domains in tree order, children indented; watts; narrow tells what is out of the ordinary below."""
    told = [(domain.name, _notes(domain)) for domain in domains if _notes(domain)] if not wide else []
    notes = (Text(f"{words.clean(name)}: ", style="dim").append(note, style="yellow not dim") for name, note in told)
    return Group(_table(domains, wide=wide), *notes)


def _table(domains: Sequence[operator_pb2.Domain], *, wide: bool) -> Table:
    table = plain_table()
    word_column(table, "DOMAIN", at_most=24)
    for header in ("LIMIT W", "HEADROOM W", "LEDGER W", "FREE W", "MEASURED W"):
        number_column(table, header)
    with_notes = wide and any(_notes(domain) for domain in domains)
    if with_notes:
        text_column(table, "NOTE")
    for depth, domain in in_tree_order(domains):
        measured = domain.measured_milliwatts if domain.HasField("measured_milliwatts") else None
        free = domain.limit_milliwatts - domain.headroom_milliwatts - domain.ledger_milliwatts
        row: list[str | Text] = [
            cell("  " * depth + domain.name),
            words.watts(domain.limit_milliwatts),
            words.watts(domain.headroom_milliwatts),
            words.watts(domain.ledger_milliwatts),
            Text(words.watts(free), style="bold red" if free < 0 else ""),
            words.watts(measured),
        ]
        table.add_row(*row, *([cell(_notes(domain), "yellow")] if with_notes else []))
    return table


def in_tree_order(domains: Sequence[operator_pb2.Domain]) -> Iterator[tuple[int, operator_pb2.Domain]]:
    """Yield (depth, domain), parents first, each domain once, even where parents are missing or go in circles."""
    children: dict[str, list[operator_pb2.Domain]] = {}
    names = {domain.name for domain in domains}
    for domain in domains:
        children.setdefault(domain.parent if domain.parent in names else "", []).append(domain)
    seen: set[str] = set()
    waiting = [(0, domain) for domain in reversed(children.get("", []))]
    rest = list(domains)
    while waiting or rest:
        if not waiting:
            waiting.append((0, rest.pop(0)))
        depth, domain = waiting.pop()
        if domain.name in seen:
            continue
        seen.add(domain.name)
        yield depth, domain
        waiting.extend((depth + 1, child) for child in reversed(children.get(domain.name, [])))


def _notes(domain: operator_pb2.Domain) -> str:
    """Return what is out of the ordinary, empty for nothing."""
    notes = []
    if domain.deficit_milliwatts > 0:
        notes.append(f"deficit {words.watts(domain.deficit_milliwatts)} W")
    if domain.held_milliwatts > 0:
        notes.append(f"{words.watts(domain.held_milliwatts)} W held by silent nodes")
    return ", ".join(notes)
