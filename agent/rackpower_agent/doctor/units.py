"""Whether work can start before the boot cap: units that use GPUs and do not require `rackpower-boot-cap.service`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from rackpower_agent.doctor.finding import Area, Finding, Level

BOOT_CAP: Final = "rackpower-boot-cap.service"
AGENT: Final = "rackpower-agent.service"
WORKLOADS: Final = ("slurmd.service", "kubelet.service", "docker.service", "containerd.service")
"""Units that start work on GPUs wherever they are installed; those found by their processes come on top."""

SYSTEMCTL_S: Final = 5.0
_PROPERTIES: Final = ("Id", "LoadState", "ActiveState", "UnitFileState", "Requires", "After")
_UNIT: Final = re.compile(r"/system\.slice/(?:[^/]*\.slice/)*([^/]+\.service)")

Properties = Mapping[str, str]
Systemctl = Callable[[Iterable[str]], list[Properties] | None]
"""Shows units, in the order asked for; None where there is no systemd to ask."""


def systemctl(units: Iterable[str]) -> list[Properties] | None:
    """Ask systemd about units."""
    if not Path("/run/systemd/system").is_dir():
        return None
    command = ["systemctl", "show", "--no-pager", f"--property={','.join(_PROPERTIES)}", "--", *units]
    try:
        run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=SYSTEMCTL_S)
    except (OSError, subprocess.SubprocessError):
        return None
    return parse(run.stdout)


def parse(text: str) -> list[Properties]:
    """Return each unit's properties from what `systemctl show` prints: a block for each unit, `Name=value` a line."""
    blocks = (block.splitlines() for block in text.strip().split("\n\n"))
    return [dict(line.partition("=")[::2] for line in block if "=" in line) for block in blocks]


def unit_of(pid: int, proc: Path = Path("/proc")) -> str:
    """Return the system unit that a process runs in, empty for none or a process that is gone."""
    try:
        cgroup = (proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    match = _UNIT.search(cgroup)
    return match[1] if match is not None else ""


def examine_units(show: Systemctl, in_use: Iterable[str]) -> tuple[Finding, ...]:
    """Return what is wrong with the units of this node.

    Args:
        show: Asks systemd.
        in_use: Units whose processes have a GPU open now.
    """
    ours = (BOOT_CAP, AGENT)
    workloads = dict.fromkeys([*WORKLOADS, *(unit for unit in in_use if unit and unit not in ours)])
    shown = show([*ours, *workloads])
    if shown is None:
        words = "systemd does not answer: whether work waits for the boot cap is unknown"
        return (Finding(Level.NOTE, Area.UNITS, "no_systemd", "systemd", words, "run doctor on the node itself"),)
    units = {unit.get("Id", ""): unit for unit in shown}
    found = [*_boot_cap(units.get(BOOT_CAP, {})), *_agent(units.get(AGENT, {}))]
    for name in workloads:
        found.extend(_workload(name, units.get(name, {})))
    return tuple(found)


def _boot_cap(unit: Properties) -> Iterable[Finding]:
    if unit.get("LoadState") != "loaded":
        words = "it is not installed: after a boot every GPU may draw its default cap before anything holds it"
        do = f"install it from the package's systemd folder, then: systemctl enable {BOOT_CAP}"
        yield Finding(Level.PROBLEM, Area.UNITS, "boot_cap_missing", BOOT_CAP, words, do)
        return
    if unit.get("UnitFileState") not in ("enabled", "static", "enabled-runtime"):
        words = "it is not enabled: it will not run at the next boot"
        yield Finding(Level.PROBLEM, Area.UNITS, "boot_cap_disabled", BOOT_CAP, words, f"systemctl enable {BOOT_CAP}")
    if unit.get("ActiveState") == "failed":
        words = "it failed: work that requires it does not start"
        do = f"journalctl -u {BOOT_CAP}, then: systemctl start {BOOT_CAP}"
        yield Finding(Level.PROBLEM, Area.UNITS, "boot_cap_failed", BOOT_CAP, words, do)


def _agent(unit: Properties) -> Iterable[Finding]:
    if unit.get("LoadState") != "loaded":
        words = "it is not installed: nobody holds this node's caps after a boot"
        yield Finding(Level.PROBLEM, Area.UNITS, "agent_missing", AGENT, words, "install it from the systemd folder")
    elif unit.get("UnitFileState") not in ("enabled", "static", "enabled-runtime"):
        words = "it is not enabled: nobody holds this node's caps after a boot"
        yield Finding(Level.PROBLEM, Area.UNITS, "agent_disabled", AGENT, words, f"systemctl enable {AGENT}")


def _workload(name: str, unit: Properties) -> Iterable[Finding]:
    if unit.get("LoadState") != "loaded":
        return
    required, after = (BOOT_CAP in unit.get(key, "").split() for key in ("Requires", "After"))
    if required and after:
        return
    words = "it starts work on GPUs and does not wait for the boot cap"
    do = f"add a drop-in with Requires={BOOT_CAP} and After={BOOT_CAP}: systemctl edit {name}"
    yield Finding(Level.PROBLEM, Area.UNITS, "no_drop_in", name, words, do)
