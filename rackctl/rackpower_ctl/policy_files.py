"""Policy files of this machine, judged here and by the controller: one value for both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from rackpower.v1 import operator_pb2
from rackpower_common.model.policy import Policy
from rackpower_common.policy import PolicyError, Problem, Severity, judge, load


@dataclass(frozen=True, slots=True)
class Judged:
    """Files and what is wrong with them; `policy` and `revision` are there when they could be read."""

    files: tuple[tuple[str, bytes], ...]
    problems: tuple[Problem, ...]
    policy: Policy | None = None
    revision: str = ""

    @property
    def ok(self) -> bool:
        """Whether they may be used."""
        return not any(problem.severity is Severity.ERROR for problem in self.problems)


class Verdict(Protocol):
    """What checking and applying have in common."""

    @property
    def problems(self) -> Sequence[operator_pb2.PolicyProblem]:
        """Errors and warnings."""
        ...

    @property
    def revision(self) -> str:
        """The revision that the policy has or would have."""
        ...


def judge_files(paths: Sequence[Path]) -> Judged:
    """Judge files and folders without a controller; whatever is wrong with them is in the answer."""
    try:
        loaded = load(paths)
    except PolicyError as error:
        return Judged(_contents(error.problems), error.problems)
    problems = (*loaded.problems, *judge(loaded, None))
    return Judged(loaded.files, problems, loaded.policy, str(loaded.policy.revision))


def judged_by_controller(judged: Judged, verdict: Verdict) -> Judged:
    """Return files with the controller's problems in place of ours: it knows what is in force."""
    problems = tuple(
        Problem(
            found.file,
            found.line,
            found.column,
            found.message,
            found.hint,
            Severity.WARNING
            if found.severity in (operator_pb2.SEVERITY_WARNING, operator_pb2.SEVERITY_INFO)
            else Severity.ERROR,
        )
        for found in verdict.problems
    )
    return replace(judged, problems=problems, revision=verdict.revision or judged.revision)


def _contents(problems: Sequence[Problem]) -> tuple[tuple[str, bytes], ...]:
    """Return the files that problems name, for their source lines; one that cannot be read is left out."""
    contents = []
    for name in dict.fromkeys(problem.file for problem in problems if problem.file):
        try:
            contents.append((name, Path(name).read_bytes()))
        except OSError:
            continue
    return tuple(contents)
