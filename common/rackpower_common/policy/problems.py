"""What is wrong with a policy, and where: one `Problem` each, all of them in one `PolicyError`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from rackpower_common.errors import RackpowerError

MAX_PROBLEMS: Final = 100
"""Problems kept of one policy; a file with more is not a policy at all."""


class Severity(Enum):
    """How bad: an error refuses the policy, a warning does not."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A point of a file; line and column from 1, 0 when it is about the whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join([self.file, *(str(number) for number in (self.line, self.column) if number)])


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a policy, or worth a warning; line and column from 1, 0 when it is about the whole."""

    file: str
    line: int
    column: int
    message: str
    hint: str = ""
    severity: Severity = Severity.ERROR

    @property
    def place(self) -> Place:
        """Return where it is."""
        return Place(self.file, self.line, self.column)

    def __str__(self) -> str:
        where = f"{self.place}: " if self.file else ""
        return f"{where}{self.severity.value}: {self.message}" + (f" ({self.hint})" if self.hint else "")


class PolicyError(RackpowerError):
    """A policy that cannot be used; `problems` holds everything found, errors and warnings, by place."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        errors = [problem for problem in self.problems if problem.severity is Severity.ERROR]
        first = errors[0] if errors else Problem("", 0, 0, "the policy cannot be used")
        where = f"{first.place}: " if first.file else ""
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(f"{where}{first.message}{more}", first.hint)


@dataclass(slots=True)
class Findings:
    """Gathers problems while a policy is read, so that a person sees them all at once."""

    problems: list[Problem] = field(default_factory=list)
    left_out: int = 0

    def error(self, place: Place, message: str, hint: str = "") -> None:
        """Note an error at `place`."""
        self._add(Problem(place.file, place.line, place.column, message, hint))

    def warn(self, place: Place, message: str, hint: str = "") -> None:
        """Note a warning at `place`."""
        self._add(Problem(place.file, place.line, place.column, message, hint, Severity.WARNING))

    @property
    def failed(self) -> bool:
        """Whether there was an error."""
        return any(problem.severity is Severity.ERROR for problem in self.problems)

    def in_order(self) -> tuple[Problem, ...]:
        """Return the problems by file (as first met), line and column, with a last one for those left out."""
        files = {name: rank for rank, name in enumerate(dict.fromkeys(problem.file for problem in self.problems))}
        ordered = sorted(self.problems, key=lambda found: (files[found.file], found.line, found.column))
        if self.left_out:
            ordered.append(Problem("", 0, 0, f"{self.left_out} more problems are not shown", "mend these first"))
        return tuple(ordered)

    def _add(self, problem: Problem) -> None:
        if problem in self.problems:
            return
        full = len(self.problems) >= MAX_PROBLEMS
        if full and (self.failed or problem.severity is not Severity.ERROR):
            self.left_out += 1
        else:
            self.problems.append(problem)


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return `did you mean …?` for the known word nearest to `word`, else `otherwise`."""
    names = list(known)
    lowered = {name.lower().replace("-", "_"): name for name in names}
    near = difflib.get_close_matches(word.lower().replace("-", "_"), list(lowered), n=1, cutoff=0.6)
    return f"did you mean `{lowered[near[0]]}`?" if near else otherwise


def one_of(names: Iterable[str], at_most: int = 12) -> str:
    """Return a readable list of names, shortened."""
    listed = list(names)
    shown = ", ".join(f"`{name}`" for name in listed[:at_most])
    return f"{shown} and {len(listed) - at_most} more" if len(listed) > at_most else shown
