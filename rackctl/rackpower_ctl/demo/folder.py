"""The demo's folder: policy, certificates, settings of every daemon, and the commands that start them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rackpower_common.address import UNIX_PATH_LIMIT
from rackpower_common.roles import Role
from rackpower_ctl.demo.guardian import Store
from rackpower_ctl.errors import CtlError, UsageError
from rackpower_ctl.pki_files import Authority, Issued
from rackpower_sim.rack import boot_id_path
from rackpower_sim.scenario import Scenario
from rackpower_sim.shared_state import node_path

SERVER: Final = "controller"
OPERATOR: Final = "operator"
LOOPBACK: Final = "127.0.0.1"
CERTIFICATE_DAYS: Final = 30
STORE_PID_FILE: Final = "valkey.pid"


@dataclass(frozen=True, slots=True)
class Folder:
    """Where things lie; `agents_port` is where agents dial."""

    path: Path
    agents_port: int

    @property
    def policy(self) -> Path:
        """Return the policy file, which may be edited while the demo runs."""
        return self.path / "policy.yaml"

    @property
    def rack(self) -> Path:
        """Return the folder of the simulated hardware's shared state."""
        return self.path / "rack"

    @property
    def scenario(self) -> Path:
        """Return the file that says what the hardware is made of."""
        return self.path / "scenario.json"

    @property
    def logs(self) -> Path:
        """Return the folder of the logs."""
        return self.path / "logs"

    @property
    def operator_socket(self) -> Path:
        """Return the controller's socket for operators."""
        return self.path / "operator.sock"

    @property
    def controller_settings(self) -> Path:
        """Return the controller's settings."""
        return self.path / "controller.yaml"

    @property
    def store(self) -> Store:
        """Return the embedded store's server, which outlives a killed controller."""
        folder = self.path / "store"
        return Store(str(folder / STORE_PID_FILE), str(folder))

    def agent_settings(self, node: str) -> Path:
        """Return the settings of a node's agent."""
        return self.path / "agents" / f"{node}.yaml"

    def controller_command(self) -> list[str]:
        """Return what starts the controller, also after a kill -9."""
        return [program("rackpower-controller"), "--config", str(self.controller_settings)]

    def agent_command(self, node: str) -> list[str]:
        """Return what starts a node's agent."""
        return [program("rackpower-agent"), "--config", str(self.agent_settings(node))]

    def rack_command(self) -> list[str]:
        """Return what starts the simulated hardware."""
        module = ["-m", "rackpower_sim.rack", "--follow-parent"]
        return [sys.executable, *module, "--scenario", str(self.scenario), "--folder", str(self.rack)]

    def rackctl_command(self, *words: str) -> str:
        """Return how a person talks to the controller."""
        return shlex.join([program("rackctl"), "--controller", f"unix:{self.operator_socket}", *words])


def program(name: str) -> str:
    """Return one of our programs beside the interpreter that runs us; its bare name where the PATH finds the same."""
    beside = Path(sys.executable).with_name(name)
    if not beside.exists() or shutil.which(name) == str(beside):
        return name
    return str(beside)


def make_folder(wanted: Path | None) -> Folder:
    """Return a new folder for one demo.

    Args:
        wanted: An empty or new folder; None for a temporary one.

    Raises:
        UsageError: The folder has something in it, or a path so long that no socket fits into it.
        CtlError: It cannot be made.
    """
    try:
        if wanted is None:
            path = Path(tempfile.mkdtemp(prefix="rackpower-demo-"))
        else:
            path = wanted.absolute()
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise UsageError(f"{path} is not empty", "give a new folder with --dir")
    except OSError as error:
        raise CtlError(f"the demo's folder cannot be made: {error.strerror}: {error.filename}") from error
    folder = Folder(path, free_port())
    if len(os.fsencode(folder.operator_socket)) > UNIX_PATH_LIMIT:
        raise UsageError(f"the path of {path} is too long for a socket in it", "give a shorter one with --dir")
    return folder


def free_port() -> int:
    """Return a port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port


def fill(folder: Folder, policy: bytes, scenario: Scenario, curves: Path | None) -> None:
    """Write everything that the daemons read.

    Raises:
        CtlError: Something cannot be written.
    """
    try:
        folder.policy.write_bytes(policy)
        folder.scenario.write_text(scenario.to_json(), encoding="utf-8")
        authority = Authority.create(folder.path / "pki", "rackpower-demo", CERTIFICATE_DAYS)
        server = authority.issue(Role.SERVER, SERVER, (LOOPBACK, "localhost"), days=CERTIFICATE_DAYS)
        authority.issue(Role.OPERATOR, OPERATOR, days=CERTIFICATE_DAYS)
        _write_settings(folder.controller_settings, controller_settings(folder, server, curves))
        for node in scenario.nodes:
            issued = authority.issue(Role.AGENT, node.name, days=CERTIFICATE_DAYS)
            _write_settings(folder.agent_settings(node.name), agent_settings(folder, node.name, issued))
    except OSError as error:
        raise CtlError(f"the demo's folder cannot be filled: {error.strerror}: {error.filename}") from error


def controller_settings(folder: Folder, issued: Issued, curves: Path | None) -> dict[str, object]:
    """Return the controller's settings."""
    settings: dict[str, object] = {
        "policy": [str(folder.policy)],
        "store": f"embedded:{folder.store.folder}",
        "agents": f"{LOOPBACK}:{folder.agents_port}",
        "operators": [f"unix:{folder.operator_socket}"],
        "metrics": "",
        "tls": _tls(issued),
    }
    return settings if curves is None else settings | {"curves": str(curves.absolute())}


def agent_settings(folder: Folder, node: str, issued: Issued) -> dict[str, object]:
    """Return the settings of a node's agent."""
    options = {"path": str(node_path(folder.rack, node))}
    return {
        "node": node,
        "controllers": [f"{LOOPBACK}:{folder.agents_port}"],
        "state_dir": str(folder.path / "agents" / node),
        "boot_id_file": str(boot_id_path(folder.rack, node)),
        "devices": {"sim": options},
        "workloads": {"sim": options},
        "meter": {"sim": options},
        "metrics": "",
        "tls": _tls(issued),
    }


def _tls(issued: Issued) -> dict[str, str]:
    return {"ca": str(issued.ca), "cert": str(issued.cert), "key": str(issued.key)}


def _write_settings(path: Path, settings: Mapping[str, object]) -> None:
    """Write settings as JSON, which is YAML, so that no path needs quotes of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
