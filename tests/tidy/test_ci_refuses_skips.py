"""CI refuses skips: a tier that silently did not run is no evidence."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.skipping import is_refused
from support.tree import ROOT

SUITE = """
import pytest

def test_refused():
    pytest.skip("no root here")

@pytest.mark.skipif(True, reason="not today")
def test_refused_by_mark():
    pass

def test_accepted():
    pytest.skip("data file absent: a.csv.gz")

@pytest.mark.xfail(reason="known")
def test_expected_failure():
    raise AssertionError
"""


def run_suite(folder: Path, ci: str) -> str:
    """Run a small suite under our conftest, and return pytest's last line."""
    unit = folder / "tests" / "unit"
    unit.mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "conftest.py", unit.parent)
    shutil.copytree(ROOT / "tests" / "support", unit.parent / "support")
    shutil.copy(ROOT / "pyproject.toml", folder)
    (unit / "test_suite.py").write_text(SUITE)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder)],
        cwd=folder,
        env=os.environ | {"CI": ci},
        check=False,
        capture_output=True,
        text=True,
    )
    return run.stdout.strip().splitlines()[-1]


def test_a_skip_fails_the_run_in_ci(tmp_path: Path) -> None:
    """With CI=true unexplained skips fail (one in its set-up), the absent data file and the expected failure do not."""
    assert run_suite(tmp_path, "true").startswith("1 failed, 1 skipped, 1 xfailed, 1 error")


def test_a_skip_is_only_told_on_a_laptop(tmp_path: Path) -> None:
    """Without CI every skip is a skip."""
    assert run_suite(tmp_path, "").startswith("3 skipped, 1 xfailed")


@pytest.mark.parametrize(
    ("reason", "refused"),
    [("no root", True), ("data file absent: x", False), ("Skipped: data file absent: x", False), ("", True)],
)
def test_only_listed_reasons_are_accepted(reason: str, refused: bool) -> None:
    """A reason is accepted when it begins as the list says."""
    assert is_refused(reason, in_ci=True) is refused
    assert is_refused(reason, in_ci=False) is False
