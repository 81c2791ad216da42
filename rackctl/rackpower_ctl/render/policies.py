"""Policies and what is wrong with them, as text and as JSON."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final

from rich.text import Text

from rackpower.v1 import operator_pb2
from rackpower_common.policy.report import count_problems, format_problems
from rackpower_ctl.policy_files import Judged
from rackpower_ctl.render import words

FORMAT: Final = 1
_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


def judged_text(judged: Judged) -> str:
    """Return problems with their source lines, and a last line that says what the policy is."""
    text = format_problems(judged.problems, judged.files)
    if judged.policy is not None and judged.ok:
        policy = judged.policy
        gpus = sum(group.count for node in policy.nodes for group in node.gpus)
        count = "" if judged.problems else f"; {count_problems(())}"
        text += (
            f"policy {judged.revision}: {len(policy.domains)} domains, {len(policy.nodes)} nodes, {gpus} GPUs{count}\n"
        )
    return text


def verdict_document(judged: Judged) -> dict[str, object]:
    """Return a verdict for scripts."""
    return {
        "format": FORMAT,
        "ok": judged.ok,
        "revision": judged.revision or None,
        "problems": [
            {
                "file": problem.file or None,
                "line": problem.line or None,
                "column": problem.column or None,
                "severity": problem.severity.value,
                "message": problem.message,
                "hint": problem.hint or None,
            }
            for problem in judged.problems
        ],
    }


def policy_text(policy: operator_pb2.PolicyRevision) -> str:
    """Return a policy's files; several are told apart by a comment before each."""
    parts = []
    for file in policy.files:
        content = file.content.decode("utf-8", "replace")
        ended = content if content.endswith("\n") or not content else content + "\n"
        parts.append(ended if len(policy.files) == 1 else f"# --- {words.clean(file.name)}\n{ended}")
    return "".join(parts)


def policy_document(policy: operator_pb2.PolicyRevision) -> dict[str, object]:
    """Return a policy for scripts."""
    return {
        "format": FORMAT,
        "revision": policy.revision,
        "author": policy.author,
        "time_unix_seconds": policy.unix_seconds,
        "files": [{"name": file.name, "content": file.content.decode("utf-8", "replace")} for file in policy.files],
    }


def difference(in_force: operator_pb2.PolicyRevision, files: Sequence[tuple[str, bytes]]) -> Text:
    """Return what changes, as a unified diff; files are matched by the last part of their names, a lone pair always."""
    old = {file.name: file.content for file in in_force.files}
    new = dict(files)
    lines: list[str] = []
    for before, after in _pairs(old, new):
        lines += difflib.unified_diff(
            _lines(old.get(before or "", b"")),
            _lines(new.get(after or "", b"")),
            f"{in_force.revision}/{PurePath(before).name}" if before else "/dev/null",
            after or "/dev/null",
            lineterm="",
        )
    if not lines:
        return Text(f"no difference from the policy in force, {in_force.revision}")
    text = Text()
    for number, line in enumerate(lines):
        heading = line.startswith(("+++", "---"))
        text.append("\n" if number else "").append(line, style="bold" if heading else _STYLES.get(line[:1], ""))
    return text


def _pairs(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> list[tuple[str | None, str | None]]:
    if len(old) == len(new) == 1:
        return [(next(iter(old)), next(iter(new)))]
    by_name = {PurePath(name).name: name for name in old}
    pairs: list[tuple[str | None, str | None]] = [(by_name.pop(PurePath(name).name, None), name) for name in new]
    return [*pairs, *((name, None) for name in by_name.values())]


def _lines(content: bytes) -> list[str]:
    return [words.clean(line) for line in content.decode("utf-8", "replace").splitlines()]
