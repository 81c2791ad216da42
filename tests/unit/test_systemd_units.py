"""The shipped units: systemd reads them without a word, they fit the settings' defaults, and hold what must hold."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from rackpower_agent.boot_cap import DEADLINE_S, SETTLE_S
from rackpower_agent.settings import DEFAULT_FILE as AGENT_FILE
from rackpower_agent.settings import AgentSettings
from rackpower_common.model.policy import Timing
from rackpower_controller.settings import DEFAULT_FILE as CONTROLLER_FILE
from rackpower_controller.settings import ControllerSettings
from support.tree import ROOT

UNITS: Final = ROOT / "systemd"
BOOT_CAP: Final = "rackpower-boot-cap.service"
DAEMONS: Final = ("rackpower-agent.service", "rackpower-controller.service")
WORKLOADS: Final = ("slurmd", "kubelet", "docker", "containerd")
# Of 100: what `systemd-analyze security` gives a service that may do nothing but serve is about 10.
CONTROLLER_EXPOSURE: Final = 15
AGENT_EXPOSURE: Final = 40


class _Unit(configparser.RawConfigParser):
    """A unit file; of a repeated key the last value."""

    def optionxform(self, optionstr: str) -> str:
        """Keep the case of keys."""
        return optionstr


def unit(name: str) -> dict[str, dict[str, str]]:
    """Return a unit's sections."""
    parser = _Unit(strict=False, interpolation=None)
    parser.read(UNITS / name, encoding="utf-8")
    return {section: dict(parser[section]) for section in parser.sections()}


def seconds(text: str) -> float:
    """Return a time like `8s`."""
    match = re.fullmatch(r"(\d+)s?", text)
    assert match is not None, text
    return float(match[1])


def systemd(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze on units rendered into a folder."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here: install systemd")
    return subprocess.run(
        ["systemd-analyze", "--man=no", "--no-pager", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=50,
        env=os.environ | {"SYSTEMD_UNIT_PATH": f"{folder}:", "SYSTEMD_COLORS": "0"},
    )


@pytest.fixture
def rendered(tmp_path: Path) -> Path:
    """Return a folder with units and drop-ins, their commands bent to one that exists, and workloads to drop into."""
    for path in UNITS.rglob("*"):
        if path.suffix in {".service", ".conf"} and "sysusers.d" not in path.parts:
            target = tmp_path / path.relative_to(UNITS)
            target.parent.mkdir(exist_ok=True)
            target.write_text(re.sub(r"/opt/rackpower/bin/[a-z-]+", "/bin/true", path.read_text()))
    for name in WORKLOADS:
        (tmp_path / f"{name}.service").write_text(f"[Unit]\nDescription={name}\n[Service]\nExecStart=/bin/true\n")
    return tmp_path


@pytest.mark.parametrize("name", [BOOT_CAP, *DAEMONS, *(f"{name}.service" for name in WORKLOADS)])
def test_systemd_reads_every_unit_without_a_word(rendered: Path, name: str) -> None:
    """`systemd-analyze verify` has nothing to say: no unknown key, no wrong value, no missing command."""
    run = systemd(rendered, "verify", str(rendered / name))
    assert (run.returncode, run.stdout + run.stderr) == (0, "")


def test_a_typo_in_a_unit_is_noticed(rendered: Path) -> None:
    """The check above can fail: a misspelt key is told."""
    path = rendered / BOOT_CAP
    path.write_text(path.read_text().replace("RemainAfterExit=", "RemainsAfterExit="))
    assert "RemainsAfterExit" in systemd(rendered, "verify", str(path)).stderr


@pytest.mark.parametrize(
    ("name", "threshold"),
    [("rackpower-controller.service", CONTROLLER_EXPOSURE), ("rackpower-agent.service", AGENT_EXPOSURE)],
)
def test_exposure_stays_below_a_line(rendered: Path, name: str, threshold: int) -> None:
    """`systemd-analyze security` rates the daemons no worse than they were."""
    run = systemd(rendered, "security", "--offline=yes", f"--threshold={threshold}", str(rendered / name))
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr


@pytest.mark.parametrize("name", WORKLOADS)
def test_work_waits_for_the_boot_cap_and_not_for_the_agent(name: str) -> None:
    """Workload units require the boot cap and start after it; the agent may restart without touching them."""
    (drop_in,) = (UNITS / f"{name}.service.d").iterdir()
    section = unit(str(drop_in.relative_to(UNITS)))["Unit"]
    assert section == {"Requires": BOOT_CAP, "After": BOOT_CAP}


def test_the_boot_cap_holds_from_before_work_until_shutdown() -> None:
    """It is a oneshot that remains, needs no network, comes before all work, and cannot be stopped by a slip."""
    sections = unit(BOOT_CAP)
    assert sections["Service"]["Type"] == "oneshot"
    assert sections["Service"]["RemainAfterExit"] == "yes"
    assert sections["Service"]["ExecStart"].split()[1] == "boot-cap"
    assert "network" not in str(sections["Unit"]).lower()
    assert {f"{name}.service" for name in WORKLOADS} <= set(sections["Unit"]["Before"].split())
    assert sections["Unit"]["RefuseManualStop"] == "yes"
    waits_s = seconds(sections["Service"]["ExecStart"].split()[-1])
    assert waits_s + DEADLINE_S + SETTLE_S < seconds(sections["Service"]["TimeoutStartSec"])


@pytest.mark.parametrize("name", [BOOT_CAP, "rackpower-agent.service"])
def test_whoever_sets_caps_can_reach_every_gpu(name: str) -> None:
    """Nothing that shuts devices or /sys is set: ProtectClock= and DeviceAllow= would, silently."""
    service = unit(name)["Service"]
    shut = {"PrivateDevices", "ProtectClock", "DeviceAllow", "DevicePolicy", "ProtectKernelTunables", "User"}
    assert not shut & set(service)


@pytest.mark.parametrize("name", DAEMONS)
def test_watchdog_and_restart_fit_tick_and_lease(name: str) -> None:
    """3 ticks ≤ watchdog < lease, and a restart comes back well inside the lease; wrong settings are left to people."""
    sections, times = unit(name), Timing()
    service = sections["Service"]
    assert service["Type"] == "notify"
    assert 3 * times.tick_s <= seconds(service["WatchdogSec"]) == times.watchdog_s < times.lease_s
    assert seconds(service["RestartSec"]) * 3 < times.lease_s
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("always", "2")
    assert sections["Unit"]["StartLimitIntervalSec"] == "0"


def test_the_agent_outlives_a_failed_boot_cap() -> None:
    """It wants the boot cap and starts after it; it does not require it, for it is the one that lowers and tells."""
    section = unit("rackpower-agent.service")["Unit"]
    assert BOOT_CAP in section["Wants"].split()
    assert BOOT_CAP in section["After"].split()
    assert "Requires" not in section


def test_folders_are_those_of_the_settings_defaults() -> None:
    """StateDirectory, RuntimeDirectory and ConfigurationDirectory make the folders that the daemons use by default."""
    agent, controller = unit(DAEMONS[0])["Service"], unit(DAEMONS[1])["Service"]
    fields = AgentSettings.model_fields, ControllerSettings.model_fields
    assert str(fields[0]["state_dir"].default) == f"/var/lib/{agent['StateDirectory']}"
    assert fields[1]["store"].default == f"embedded:/var/lib/{controller['StateDirectory']}/store"
    assert fields[1]["operators"].default == (f"unix:/run/{controller['RuntimeDirectory']}/operator.sock",)
    assert str(AGENT_FILE.parent) == f"/etc/{agent['ConfigurationDirectory']}"
    assert str(CONTROLLER_FILE.parent) == f"/etc/{controller['ConfigurationDirectory']}"


def test_the_controllers_user_is_made_by_the_shipped_sysusers_file() -> None:
    """The unit's user is the one that sysusers.d makes."""
    lines = (UNITS / "sysusers.d" / "rackpower.conf").read_text().splitlines()
    users = [line.split()[1] for line in lines if line.startswith("u ")]
    assert users == [unit("rackpower-controller.service")["Service"]["User"]]
