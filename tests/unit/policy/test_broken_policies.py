"""Every broken policy of tests/golden/policies/broken is refused in words that a person can act upon."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from rackpower_common.policy import PolicyError, Problem, Severity, judge, load_files
from rackpower_common.policy.report import format_problems
from support.golden import GOLDEN, check_golden

BROKEN: Final = GOLDEN / "policies" / "broken"
CASES: Final = sorted(path for path in BROKEN.iterdir() if path.is_dir() or path.suffix == ".yaml")
ABOUT_THE_WHOLE: Final = {"empty"}
"""Cases in which no single value is to blame."""


def files_of(case: Path) -> list[tuple[str, bytes]]:
    """Return a case's files under names that do not depend on where the repository lies."""
    paths = sorted(case.glob("*.yaml")) if case.is_dir() else [case]
    return [(str(path.relative_to(BROKEN)), path.read_bytes()) for path in paths]


def problems_of(files: list[tuple[str, bytes]]) -> tuple[Problem, ...]:
    """Return what `rackctl policy check` would find."""
    try:
        loaded = load_files(files)
    except PolicyError as error:
        return error.problems
    return (*loaded.problems, *judge(loaded, None))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_broken_policy_is_refused_with_its_place(case: Path) -> None:
    """The text names file, line and column, shows the line, and is what was agreed."""
    files = files_of(case)
    problems = problems_of(files)
    assert any(problem.severity is Severity.ERROR for problem in problems)
    for problem in problems:
        assert problem.file in {name for name, _ in files}
        assert problem.line > 0
        assert problem.column > 0
    check_golden(case.with_suffix(".txt"), format_problems(problems, files))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_message_never_speaks_of_the_library(case: Path) -> None:
    """No message leaks pydantic's, ruamel's or Python's own words."""
    text = " ".join(f"{problem.message} {problem.hint}" for problem in problems_of(files_of(case)))
    leak = r"pydantic|ruamel|validator|Input should|NoneType|Traceback|<class|Error\b"
    assert not re.search(leak, text), text
