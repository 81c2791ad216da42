"""Files and functions stay small enough to be read; the numbers may only go down."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from support.tree import parsed, python_files, text

FILE_LINES: Final = 500
FUNCTION_LINES: Final = 60
# What was longer when this rule came, with its length then. Never add a line here; lower the number or remove it.
LONGER_FILES: Final[dict[str, int]] = {}
LONGER_FUNCTIONS: Final[dict[str, int]] = {}


def function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function's signature and body, its docstring not counted."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node, clean=False) is not None:
        docstring = node.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


def over(lengths: dict[str, int], usual: int, longer: dict[str, int], advice: str) -> list[str]:
    """Return a sentence for each thing that is too long, or whose exception is out of date."""
    faults = [
        f"{name} has {lines} lines, at most {longer.get(name, usual)}: {advice}"
        for name, lines in lengths.items()
        if lines > longer.get(name, usual)
    ]
    faults += [
        f"{name} has {lengths.get(name, 0)} lines now: tighten its exception of {allowed} in test_size.py"
        for name, allowed in longer.items()
        if lengths.get(name, 0) < allowed
    ]
    return faults


def function_lengths(path: Path) -> dict[str, int]:
    """Return the length of every function of a file by `path::name`; of equal names the longest."""
    lengths: dict[str, int] = {}
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{path}::{node.name}"
            lengths[name] = max(lengths.get(name, 0), function_lines(node))
    return lengths


def test_no_file_is_longer_than_the_limit() -> None:
    """A Python file has at most 500 lines; usual is 250."""
    lengths = {str(path): text(path).count("\n") for path in python_files()}
    faults = over(lengths, FILE_LINES, LONGER_FILES, "split it by subject into files that a reader finds by name")
    assert not faults, "\n".join(faults)


def test_no_function_is_longer_than_a_screen() -> None:
    """A function has at most 60 lines without its docstring."""
    lengths = {name: lines for path in python_files() for name, lines in function_lengths(path).items()}
    faults = over(lengths, FUNCTION_LINES, LONGER_FUNCTIONS, "give its steps names from the glossary")
    assert not faults, "\n".join(faults)


def test_the_ratchet_only_tightens() -> None:
    """Too long is told with advice, and an exception that is no longer needed must go."""
    assert over({"a": 11, "b": 10}, 10, {}, "split") == ["a has 11 lines, at most 10: split"]
    assert over({"a": 15}, 10, {"a": 15}, "split") == []
    assert over({"a": 14}, 10, {"a": 15}, "split") == [
        "a has 14 lines now: tighten its exception of 15 in test_size.py"
    ]
