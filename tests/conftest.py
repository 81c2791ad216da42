"""What every test gets: a marker by its folder, a deadline, a hypothesis profile, and a CI that refuses skips."""

from __future__ import annotations

import io
import os
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest
import structlog
from hypothesis import HealthCheck, settings

from rackpower_common.logs import configure_logs
from support.skipping import is_refused

TESTS: Final = Path(__file__).parent
IN_CI: Final = os.environ.get("CI", "").lower() in {"1", "true", "yes"}
# Seconds that one test may take, by folder; the others get pyproject's. Processes start slowly on a busy machine.
TIMEOUT_S: Final = {"system": 240, "sim": 180, "property": 180}

# No deadline an example: this machine is shared, and a slow one is no bug.
settings.register_profile("dev", deadline=None, print_blob=True)
# The same examples every time, so that a red CI is red again on a laptop: HYPOTHESIS_PROFILE=ci.
settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", deadline=None, max_examples=5000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if IN_CI else "dev"))


@pytest.fixture
def anyio_backend() -> str:
    """Run `async def` tests marked `anyio` on asyncio, the loop that we ship."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Generator[None, None, None]:
    """Undo a test's log set-up: its stream is closed when the next test wants to log."""
    yield
    configure_logs(stream=io.StringIO())  # ends the thread that wrote for the set-up before
    structlog.reset_defaults()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its folder and give it that folder's deadline."""
    for item in items:
        if not item.path.is_relative_to(TESTS):
            continue
        folder = item.path.relative_to(TESTS).parts[0]
        if folder.endswith(".py"):
            raise pytest.UsageError(f"{item.path.name}: tests live in a folder below tests/, not beside them")
        item.add_marker(getattr(pytest.mark, folder))
        if folder in TIMEOUT_S and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S[folder]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a refused skip into a failure."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        refuse(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn a refused skip of a whole file into a failure."""
    report = yield
    if report.skipped:
        refuse(report)
    return report


def refuse(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Fail a report whose skip CI does not accept."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if is_refused(reason, in_ci=IN_CI):
        report.outcome = "failed"
        report.longrepr = f"CI refuses skips: {reason}. Provide what the test needs, or see tests/support/skipping.py"
