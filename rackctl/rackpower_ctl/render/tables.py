"""The look of every table: no lines, one header row, numbers to the right."""

from __future__ import annotations

from typing import Final

from rich.table import Table
from rich.text import Text

from rackpower_ctl.render.words import clean

STATE_STYLES: Final = {
    "live": "green",
    "ok": "green",
    "waiting": "yellow",
    "unheard": "yellow",
    "degraded": "yellow",
    "off": "dim",
    "silent": "red",
    "unknown": "red",
    "quarantined": "red",
    "lost": "red",
}
SEVERITY_STYLES: Final = {"info": "cyan", "warning": "yellow", "error": "bold red"}


def plain_table() -> Table:
    """Return an empty table in the house's look."""
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", collapse_padding=True)


def number_column(table: Table, header: str) -> None:
    """Add a column of numbers, never wrapped."""
    table.add_column(header, justify="right", no_wrap=True)


def word_column(table: Table, header: str, *, at_most: int | None = None) -> None:
    """Add a column of single words, cut with an ellipsis where it is too wide."""
    table.add_column(header, no_wrap=True, overflow="ellipsis", max_width=at_most)


def text_column(table: Table, header: str) -> None:
    """Add a column of sentences, wrapped."""
    table.add_column(header, overflow="fold")


def cell(text: str, style: str = "") -> Text:
    """Return text from elsewhere as a cell: no markup in it is obeyed."""
    return Text(clean(text), style=style)


def state_cell(word: str) -> Text:
    """Return a state or health in its colour."""
    return Text(word, style=STATE_STYLES.get(word, ""))
