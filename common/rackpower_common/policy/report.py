"""Problems as a compiler would print them: place, message, the line with a caret, what to do. Plain text."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rackpower_common.policy.problems import Problem, Severity

MAX_LINE: Final = 160
"""Characters of a source line that are shown."""


def format_problems(problems: Iterable[Problem], files: Mapping[str, bytes] | Sequence[tuple[str, bytes]]) -> str:
    """Return problems as text.

    Args:
        problems: What to print, in this order.
        files: Content by name, for the source lines; a file that is missing is printed without.

    Returns:
        Lines, each ended; empty for no problem. A count stands last.
    """
    listed = list(problems)
    contents = dict(files)
    lines: dict[str, list[str]] = {}
    blocks = []
    for problem in listed:
        if problem.file not in lines:
            content = contents.get(problem.file, b"")
            lines[problem.file] = content.decode("utf-8-sig", "replace").splitlines()
        blocks.append(_block(problem, lines[problem.file]))
    return "".join(blocks) + (count_problems(listed) + "\n" if listed else "")


def count_problems(problems: Iterable[Problem]) -> str:
    """Return `2 errors, 1 warning`."""
    listed = list(problems)
    words = []
    for severity in (Severity.ERROR, Severity.WARNING):
        count = sum(problem.severity is severity for problem in listed)
        if count:
            words.append(f"{count} {severity.value}{'s' if count > 1 else ''}")
    return ", ".join(words) or "no problems"


def _block(problem: Problem, lines: list[str]) -> str:
    where = f"{problem.place}: " if problem.file else ""
    text = [f"{where}{problem.severity.value}: {problem.message}"]
    if 0 < problem.line <= len(lines):
        source = lines[problem.line - 1]
        if source.strip() and problem.column <= MAX_LINE:
            number = f"{problem.line:>5} | "
            pad = "".join("\t" if char == "\t" else " " * _width(char) for char in source[: problem.column - 1])
            text.append(f"{number}{_printable(source[:MAX_LINE])}")
            if problem.column:
                text.append(f"{'| '.rjust(len(number))}{pad}^")
    if problem.hint:
        text.append(f"      = hint: {problem.hint}")
    return "\n".join(text) + "\n"


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _printable(text: str) -> str:
    """Keep control characters of a broken file off the terminal."""
    return "".join(char if char.isprintable() or char == "\t" else "�" for char in text)
