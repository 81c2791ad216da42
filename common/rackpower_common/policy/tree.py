"""YAML text to a tree in which every key and value knows its place.

A composer of our own over ruamel.yaml's event stream, because a policy needs what loaders do not give: the place of
every value, all duplicate keys, and hard limits on size, depth and what aliases may blow up to.
Scalars follow YAML 1.2: `true` and `false` are the only booleans, `on` and `off` are words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StringMark, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from rackpower_common.policy.problems import Findings, Place
from rackpower_common.quantity import quoted

MAX_FILE_BYTES: Final = 1024 * 1024
POLICY_HINT: Final = "a policy starts with `version: 1`"
"""One file, and all files of a policy together: what one message on the wire may carry."""
MAX_DEPTH: Final = 16
MAX_VALUES: Final = 200_000
"""Values of one file after aliases are followed."""

ScalarValue = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value: what YAML makes of it, and the text as it was written."""

    value: ScalarValue
    text: str
    place: Place


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list of values."""

    items: tuple[Tree, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Entry:
    """A key of a mapping with its value; `place` is the key's."""

    place: Place
    value: Tree


@dataclass(frozen=True, slots=True)
class Mapping:
    """Values by key, in the order of the file."""

    entries: dict[str, Entry]
    place: Place


Tree = Scalar | Sequence | Mapping

_INT: Final = re.compile(r"[-+]?[0-9]+", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", re.ASCII)
_MAX_DIGITS: Final = 40


class _StopReadingError(Exception):
    """The file cannot be read further; the problem is noted."""


def parse(
    file: str, content: bytes, findings: Findings, what: str = "a policy", hint: str = POLICY_HINT
) -> Mapping | None:
    """Read one YAML file.

    Args:
        file: Its name, for problems.
        content: Its bytes.
        findings: Where problems go.
        what: What the file should hold, for problems.
        hint: How such a file begins.

    Returns:
        The top-level mapping, None when there is none; duplicate keys and the like are noted and the rest is read.
    """
    text = _decode(file, content, findings)
    if text is None:
        return None
    try:
        return _Composer(file, text, findings, what, hint).document()
    except _StopReadingError:
        return None
    except MarkedYAMLError as error:
        findings.error(*_yaml_problem(file, text, error))
    except (YAMLError, ValueError, RecursionError) as error:
        reason = getattr(error, "reason", None) or str(error).splitlines()[0]
        findings.error(_unreadable_place(file, text, error), f"this is not YAML: {reason}", "remove the odd character")
    return None


def plain(tree: Tree) -> object:
    """Return a tree as Python values, for pydantic."""
    if isinstance(tree, Scalar):
        return tree.value
    if isinstance(tree, Sequence):
        return [plain(item) for item in tree.items]
    return {key: plain(entry.value) for key, entry in tree.entries.items()}


def find(tree: Tree, path: tuple[str | int, ...]) -> tuple[Tree, Place, bool]:
    """Follow a path as far as it goes.

    Returns:
        The deepest tree met, the place of the key that leads to it (its own for a list's item), and whether the
        path was followed to its end.
    """
    place = tree.place
    for step in path:
        if isinstance(tree, Mapping) and isinstance(step, str) and step in tree.entries:
            entry = tree.entries[step]
            tree, place = entry.value, entry.place
        elif isinstance(tree, Sequence) and isinstance(step, int) and step < len(tree.items):
            tree = tree.items[step]
            place = tree.place
        elif step == 0 and not isinstance(tree, Sequence):
            continue  # one item may be written without its list
        else:
            return tree, place, False
    return tree, place, True


def describe(tree: Tree) -> str:
    """Return what a tree is, in words."""
    if isinstance(tree, Mapping):
        return "a mapping"
    if isinstance(tree, Sequence):
        return "a list"
    return "nothing" if tree.value is None else quoted(tree.text)


def _decode(file: str, content: bytes, findings: Findings) -> str | None:
    if len(content) > MAX_FILE_BYTES:
        size = f"the file has {len(content):,} bytes, at most {MAX_FILE_BYTES:,} are read"
        findings.error(Place(file), size, "write alike nodes as one range, `gpu-node-[01-18]` for instance")
        return None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
        place = Place(file, line, column)
        utf16 = content[:2] in (b"\xff\xfe", b"\xfe\xff")
        hint = "save it as UTF-8; it looks like UTF-16" if utf16 else "save the file as UTF-8"
        findings.error(place, f"the file is not UTF-8: byte 0x{content[error.start]:02x}", hint)
        return None
    if not text.strip():
        findings.error(Place(file, 1, 1), "the file is empty", POLICY_HINT)
        return None
    return text


@dataclass(slots=True)
class _Composer:
    """Builds the tree from events, refusing what is too deep, too large or written twice."""

    file: str
    text: str
    findings: Findings
    what: str
    hint: str
    anchors: dict[str, tuple[Tree, int, int]] = field(default_factory=dict)
    values: int = 0
    events: Iterator[Event] = field(init=False)

    def __post_init__(self) -> None:
        self.events = iter(YAML(typ="safe", pure=True).parse(self.text))

    def document(self) -> Mapping | None:
        root: Tree | None = None
        for event in self.events:
            if isinstance(event, DocumentStartEvent):
                if root is not None:
                    self._stop(
                        self._place(event), "the file holds a second document", "use one file for each, no `---`"
                    )
            elif isinstance(event, (ScalarEvent, MappingStartEvent, SequenceStartEvent, AliasEvent)):
                root = self._tree(event, 1)
        if isinstance(root, Mapping):
            return root
        if root is None or (isinstance(root, Scalar) and root.value is None):
            self._stop(Place(self.file, 1, 1), "the file is empty", self.hint)
        elif root is not None:
            words = f"{self.what} is a mapping of keys to values, this is {describe(root)}"
            self._stop(root.place, words, self.hint)
        return None

    def _tree(self, event: Event, depth: int) -> Tree:
        if isinstance(event, AliasEvent):
            return self._alias(event, depth)
        self._count(1, event)
        self._check_depth(depth, event)
        before = self.values
        tree: Tree
        if isinstance(event, MappingStartEvent):
            tree = self._mapping(event, depth)
        elif isinstance(event, SequenceStartEvent):
            tree = self._sequence(event, depth)
        elif isinstance(event, ScalarEvent):
            tree = _scalar(event, self._place(event))
        else:
            raise AssertionError(f"unexpected YAML event {event!r}")
        if event.anchor:
            self.anchors[str(event.anchor)] = (tree, self.values - before + 1, _height(tree))
        return tree

    def _mapping(self, start: MappingStartEvent, depth: int) -> Mapping:
        entries: dict[str, Entry] = {}
        for event in self.events:
            if isinstance(event, MappingEndEvent):
                break
            place = self._place(event)
            key_tree = self._tree(event, depth + 1)
            value = self._tree(next(self.events), depth + 1)
            if not isinstance(key_tree, Scalar):
                self.findings.error(place, f"a key is a single word, this is {describe(key_tree)}", "put it in quotes")
                continue
            key = key_tree.text
            if key in entries:
                first = entries[key].place
                where = f"first on line {first.line}"
                self.findings.error(place, f"key {quoted(key)} is here twice, {where}", "remove one of them")
                continue
            entries[key] = Entry(place, value)
        return Mapping(entries, self._place(start))

    def _sequence(self, start: SequenceStartEvent, depth: int) -> Sequence:
        items: list[Tree] = []
        for event in self.events:
            if isinstance(event, SequenceEndEvent):
                break
            items.append(self._tree(event, depth + 1))
        return Sequence(tuple(items), self._place(start))

    def _alias(self, event: AliasEvent, depth: int) -> Tree:
        name = str(event.anchor)
        if name not in self.anchors:
            self._stop(self._place(event), f"alias `*{name}` has no anchor before it", f"define `&{name}` first")
        tree, size, height = self.anchors[name]
        self._count(size, event)
        self._check_depth(depth + height - 1, event)
        return tree

    def _count(self, size: int, event: Event) -> None:
        self.values += size
        if self.values > MAX_VALUES:
            what = f"the file holds more than {MAX_VALUES:,} values once its aliases are followed"
            self._stop(self._place(event), what, "write alike nodes as one range, `gpu-node-[01-18]` for instance")

    def _check_depth(self, depth: int, event: Event) -> None:
        if depth > MAX_DEPTH:
            self._stop(self._place(event), f"nested more than {MAX_DEPTH} levels deep", "no policy needs that")

    def _place(self, event: Event) -> Place:
        mark: StringMark = event.start_mark
        return Place(self.file, mark.line + 1, mark.column + 1)

    def _stop(self, place: Place, message: str, hint: str) -> None:
        self.findings.error(place, message, hint)
        raise _StopReadingError


def _height(tree: Tree) -> int:
    if isinstance(tree, Mapping):
        return 1 + max((_height(entry.value) for entry in tree.entries.values()), default=0)
    if isinstance(tree, Sequence):
        return 1 + max((_height(item) for item in tree.items), default=0)
    return 1


def _scalar(event: ScalarEvent, place: Place) -> Scalar:
    text = str(event.value)
    if event.style not in (None, ""):
        return Scalar(text, text, place)
    value: ScalarValue = text
    if text in ("", "~", "null", "Null", "NULL"):
        value = None
    elif text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        value = text.lower() == "true"
    elif len(text) <= _MAX_DIGITS and _INT.fullmatch(text):
        value = int(text)
    elif _NOT_FINITE.fullmatch(text):
        value = float(text.replace(".", "", 1))
    elif len(text) <= _MAX_DIGITS and _FLOAT.fullmatch(text):
        value = float(text)
    return Scalar(value, text, place)


def _yaml_problem(file: str, text: str, error: MarkedYAMLError) -> tuple[Place, str, str]:
    """Return place, message and hint for a syntax error, at the point where a person should look."""
    lines = text.splitlines()
    mark = error.problem_mark or error.context_mark
    problem = str(error.problem or error.context or "syntax error")
    opened = error.context_mark
    at_end = mark is not None and mark.line >= len(lines)
    unclosed = "end of stream" in problem or "<stream end>" in problem or "expected ',' or" in problem or at_end
    if opened is not None and unclosed:
        place = Place(file, opened.line + 1, opened.column + 1)
        return place, "this is not closed where it should be", "add the missing quote, comma, `]` or `}`"
    place = Place(file, mark.line + 1, mark.column + 1) if mark is not None else Place(file)
    if "'\\t'" in problem or (mark is not None and "\t" in _indent(lines, mark.line)):
        return place, "a tab cannot indent YAML", "use spaces"
    if "mapping values are not allowed" in problem:
        return place, "a second `:` on one line", "put the value in quotes, or the key on a line of its own"
    if "could not find expected ':'" in problem:
        return place, "a key without `:`", "write `key: value`"
    if "block end" in problem or "block mapping" in problem:
        return place, "this line does not fit in here", "indent it like the lines above"
    return place, f"this is not YAML: {problem}", "check quotes, brackets and indentation"


def _indent(lines: list[str], line: int) -> str:
    written = lines[line] if line < len(lines) else ""
    return written[: len(written) - len(written.lstrip())]


def _unreadable_place(file: str, text: str, error: Exception) -> Place:
    position = getattr(error, "position", None)
    if not isinstance(position, int):
        return Place(file)
    before = text[:position]
    return Place(file, before.count("\n") + 1, len(before) - before.rfind("\n"))
