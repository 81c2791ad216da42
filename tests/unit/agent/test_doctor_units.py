"""The doctor at the units: work that can start before the boot cap is found, by name and by the processes on GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from rackpower_agent.doctor.finding import Level
from rackpower_agent.doctor.units import AGENT, BOOT_CAP, WORKLOADS, Properties, examine_units, parse, unit_of

HELD = {"LoadState": "loaded", "UnitFileState": "enabled", "Requires": f"sysinit.target {BOOT_CAP}", "After": BOOT_CAP}


class Units:
    """A systemd that knows some units."""

    def __init__(self, **units: Properties) -> None:
        self.units: dict[str, Properties] = {
            BOOT_CAP: {"LoadState": "loaded", "UnitFileState": "enabled", "ActiveState": "active"},
            AGENT: {"LoadState": "loaded", "UnitFileState": "enabled", "ActiveState": "active"},
        }
        self.units |= {f"{name}.service": unit for name, unit in units.items()}

    def __call__(self, asked: Iterable[str]) -> list[Properties] | None:
        """Show units; those that are not there are shown as such, as systemd does."""
        return [{"Id": name, **self.units.get(name, {"LoadState": "not-found"})} for name in asked]


def problems(show: Units, in_use: Iterable[str] = ()) -> list[tuple[str, str]]:
    """Return code and subject of every problem."""
    found = examine_units(show, in_use)
    assert all(one.do for one in found)
    return [(one.code, one.subject) for one in found if one.level is Level.PROBLEM]


def test_a_node_set_up_as_documented_has_no_trouble() -> None:
    """Boot cap and agent enabled, every workload unit with its drop-in, the others not installed."""
    assert problems(Units(docker=HELD, slurmd=HELD)) == []


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("missing", ["Requires", "After"])
def test_a_workload_unit_without_the_drop_in_is_named(name: str, missing: str) -> None:
    """Both lines are needed: `After=` alone starts work after a failed boot cap, `Requires=` alone beside it."""
    show = Units(**{name.removesuffix(".service"): {**HELD, missing: "sysinit.target"}})
    assert problems(show) == [("no_drop_in", name)]


def test_a_unit_is_found_by_its_process_on_a_gpu() -> None:
    """Whatever it is called: vLLM under a unit of one's own."""
    show = Units(vllm={"LoadState": "loaded", "Requires": "", "After": ""})
    assert problems(show, ["vllm.service", ""]) == [("no_drop_in", "vllm.service")]


def test_the_agent_itself_needs_no_drop_in() -> None:
    """It has GPUs open like any other."""
    assert problems(Units(), [AGENT, BOOT_CAP]) == []


@pytest.mark.parametrize(
    ("unit", "change", "code"),
    [
        (BOOT_CAP, {"LoadState": "not-found"}, "boot_cap_missing"),
        (BOOT_CAP, {"UnitFileState": "disabled"}, "boot_cap_disabled"),
        (BOOT_CAP, {"ActiveState": "failed"}, "boot_cap_failed"),
        (AGENT, {"LoadState": "not-found"}, "agent_missing"),
        (AGENT, {"UnitFileState": "disabled"}, "agent_disabled"),
    ],
)
def test_our_own_units_are_looked_at_too(unit: str, change: Properties, code: str) -> None:
    """Without them a reboot brings every GPU up at its default cap."""
    show = Units()
    show.units[unit] = {**show.units[unit], **change}
    assert problems(show) == [(code, unit)]


def test_without_systemd_nothing_is_claimed() -> None:
    """A note: the doctor may run in a container."""
    (note,) = examine_units(lambda _: None, ())
    assert note.level is Level.NOTE


def test_what_systemctl_prints_is_read_unit_by_unit() -> None:
    """Values may hold `=` and be empty."""
    text = "Id=a.service\nRequires=\nAfter=b.target c=d\n\nId=b.service\nRequires=x\n"
    assert parse(text) == [
        {"Id": "a.service", "Requires": "", "After": "b.target c=d"},
        {"Id": "b.service", "Requires": "x"},
    ]


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/vllm.service\n", "vllm.service"),
        ("0::/system.slice/system-vllm.slice/vllm@1.service/sub\n", "vllm@1.service"),
        ("0::/user.slice/user-0.slice/session-1.scope\n", ""),
        ("0::/\n", ""),
    ],
)
def test_the_unit_of_a_process_is_read_from_its_cgroup(tmp_path: Path, cgroup: str, unit: str) -> None:
    """Template instances and sub-groups included; a shell's process has none."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(cgroup)
    assert unit_of(7, tmp_path) == unit
    assert unit_of(8, tmp_path) == ""
