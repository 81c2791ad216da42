"""Names and ranges of names: `gpu-node-[01-18]` stands for eighteen nodes, and back for messages."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Final

from rackpower_common.errors import RackpowerError
from rackpower_common.quantity import quoted

MAX_NODES: Final = 20_000
"""Nodes of one policy; also what one range may stand for."""

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
_RANGE: Final = re.compile(r"(?P<first>[0-9]{1,9})(?:-(?P<last>[0-9]{1,9}))?", re.ASCII)
_PIECES: Final = re.compile(r"\[([^\[\]]*)\]")
_NUMBERED: Final = re.compile(r"(?P<stem>.*?)(?P<number>[0-9]{1,9})(?P<tail>[^0-9]*)", re.ASCII)


class InvalidNameError(RackpowerError):
    """A name, or a range of names, that cannot be used."""


def check_name(name: str) -> str:
    """Return `name` if it can be a name.

    Raises:
        InvalidNameError: It is empty, too long or holds other characters than letters, digits, `-`, `_` and `.`.
    """
    if not _NAME.fullmatch(name):
        hint = "use 1 to 63 letters, digits, `-`, `_` or `.`, with a letter or digit at both ends"
        raise InvalidNameError(f"{quoted(name)} cannot be a name", hint)
    return name


def expand(name: str) -> tuple[str, ...]:
    """Return the names that a range stands for, in order.

    Args:
        name: A name with any number of ranges, `gpu-[01-18]` or `r[1-2]-n[1,3,5-8]`, or with none.
            A first number with leading zeros pads all of its range.

    Raises:
        InvalidNameError: The range is malformed, runs backwards, stands for too many names or for no valid name.
    """
    pieces = _PIECES.split(name)
    if "[" in "".join(pieces[::2]) or "]" in "".join(pieces[::2]):
        raise InvalidNameError(f"{quoted(name)} has an unmatched bracket", "write a range as `gpu-node-[01-18]`")
    choices: list[tuple[str, ...]] = []
    count = 1
    for index, piece in enumerate(pieces):
        choice = _numbers(name, piece) if index % 2 else (piece,)
        count *= len(choice)
        if count > MAX_NODES:
            raise InvalidNameError(f"{quoted(name)} stands for more than {MAX_NODES:,} names", "check the range")
        choices.append(choice)
    return tuple(check_name("".join(parts)) for parts in itertools.product(*choices))


def fold(names: Iterable[str]) -> str:
    """Return names for people, with runs written as ranges: `gpu-node-[01-18], spare-1`; every name is in it."""
    groups: dict[tuple[str, str, int], list[int]] = {}
    rest: list[str] = []
    for name in dict.fromkeys(names):
        match = _NUMBERED.fullmatch(name)
        if match is None:
            rest.append(name)
            continue
        number = match["number"]
        width = len(number) if number.startswith("0") or len(number) > 1 else 0
        groups.setdefault((match["stem"], match["tail"], width), []).append(int(number))
    written: list[str] = []
    for (stem, tail, width), numbers in groups.items():
        parts = [_run(first, last, width) for first, last in _runs(sorted(set(numbers)))]
        single = len(parts) == 1 and "-" not in parts[0]
        written.append(f"{stem}{parts[0]}{tail}" if single else f"{stem}[{','.join(parts)}]{tail}")
    return ", ".join(f"`{name}`" for name in [*written, *rest])


def nodes_named(names: Sequence[str]) -> str:
    """Return ``node `a` `` or ``2 nodes `a[1-2]` `` for a sentence."""
    return f"{'node' if len(names) == 1 else f'{len(names):,} nodes'} {fold(names)}"


def _numbers(name: str, text: str) -> tuple[str, ...]:
    numbers: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InvalidNameError(f"{quoted(part)} in {quoted(name)} is not a range", "write `[01-18]` or `[1,3,5-8]`")
        first = match["first"]
        last = match["last"] or first
        if int(last) < int(first):
            raise InvalidNameError(f"range `[{part}]` in {quoted(name)} runs backwards", f"write `[{last}-{first}]`")
        if int(last) - int(first) >= MAX_NODES:
            raise InvalidNameError(f"{quoted(name)} stands for more than {MAX_NODES:,} names", "check the range")
        width = len(first) if first.startswith("0") else 0
        numbers.extend(str(number).zfill(width) for number in range(int(first), int(last) + 1))
    return tuple(numbers)


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _run(first: int, last: int, width: int) -> str:
    start, end = str(first).zfill(width), str(last).zfill(width)
    return start if first == last else f"{start}-{end}"
