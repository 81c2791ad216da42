"""What a start of rackctl may load: its users wait for every import."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("cryptography", "numpy", "ortools", "pydantic", "rackpower_sim", "ruamel", "redis")


def loaded_by(*modules: str) -> set[str]:
    """Return the heavy packages that a fresh interpreter has loaded after importing some modules."""
    lines = [f"import {', '.join(modules)}", "import sys", "print(*sys.modules)"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, capture_output=True, text=True)
    return {name.partition(".")[0] for name in done.stdout.split()} & set(HEAVY)


@pytest.mark.parametrize(
    "modules",
    [("rackpower_ctl.main",), ("rackpower_ctl.main", "rackpower_ctl.client", "rackpower_ctl.render.status_view")],
)
def test_status_loads_nothing_heavy(modules: tuple[str, ...]) -> None:
    """Neither the command line nor what a status needs loads a solver, a policy reader or the simulator."""
    assert loaded_by(*modules) == set()


def test_a_heavy_import_would_be_seen() -> None:
    """The check can fail."""
    assert "pydantic" in loaded_by("rackpower_ctl.policy_files")
