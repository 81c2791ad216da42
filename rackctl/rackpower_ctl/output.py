"""Where rackctl writes: text for people through rich, JSON as it is."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # rich is imported only where something is drawn
    from rich.console import Console


def console(*, stderr: bool = False) -> Console:
    """Return a console that takes its width from the terminal or COLUMNS, with colour on a terminal only."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def print_json(document: object) -> None:
    """Print a document for scripts that read one whole answer."""
    print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def print_json_line(document: object) -> None:
    """Print a document as one line, at once, for scripts that follow."""
    print(json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False), flush=True)


def complain(message: str, hint: str = "") -> None:
    """Print what went wrong, and what to do, to stderr."""
    print(f"rackctl: {message}", file=sys.stderr)
    for line in hint.splitlines():
        print(f"  hint: {line}", file=sys.stderr)
