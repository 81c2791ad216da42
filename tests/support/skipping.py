"""When a test may skip: the only reasons that CI accepts.

A tier that cannot run skips loudly on a laptop; in CI (`CI=true`) a skip fails the run unless it came from here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

# Reasons that CI accepts begin with one of these; nothing but a file that the repository does not carry belongs here.
ALLOWED_IN_CI: Final = ("data file absent: ",)


def data_file(path: Path) -> Path:
    """Return a data file that the repository does not carry, or skip the test when it is absent."""
    if not path.is_file():
        pytest.skip(f"data file absent: {path.name}")
    return path


def is_refused(reason: str, *, in_ci: bool) -> bool:
    """Return whether a skip fails the run.

    Args:
        reason: What the skip said.
        in_ci: Whether the run is CI's.
    """
    return in_ci and not reason.removeprefix("Skipped: ").startswith(ALLOWED_IN_CI)
