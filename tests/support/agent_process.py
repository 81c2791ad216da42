"""A real agent process on simulated hardware in another process, and a controller that the test plays."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from rackpower_common.model.identity import GpuId, Term
from rackpower_common.model.messages import Grant, GrantBatch, Welcome
from rackpower_controller.core.facts import Fact, NodeConnected, NodeReported
from rackpower_sim.classes import H100
from rackpower_sim.node_layout import NodeState
from rackpower_sim.rack import boot_id_path
from rackpower_sim.scenario import DomainSpec, FeedSpec, GpuGroup, NodeSpec, Scenario
from rackpower_sim.shared_state import NodeFile, node_path
from support.edge import Edge
from support.waiting import async_wait_until, wait_until

PATIENCE_S: Final = 40.0
"""Only a failing test waits so long."""

NODE: Final = "gpu-01"
GPUS: Final = 2
AGENT: Final = Path(sys.executable).with_name("rackpower-agent")
F = TypeVar("F", bound=Fact)


class Ear:
    """A notification socket as systemd's: remembers every datagram."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._heard: list[str] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while (datagram := self._socket.recv(65536)) != b"END":
            self._heard.append(datagram.decode())

    def heard(self, word: str) -> list[str]:
        """Return the lines that begin with a word, in order."""
        return [line for text in list(self._heard) for line in text.splitlines() if line.startswith(word)]

    def forget(self) -> None:
        """Begin anew."""
        self._heard.clear()

    def close(self) -> None:
        """End the thread."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"END", str(self.path))
        self._thread.join(5.0)
        self._socket.close()


@dataclass
class Hardware:
    """One node's hardware, and how an agent is set up for it."""

    folder: Path
    node: NodeFile
    process: subprocess.Popen[bytes]

    @property
    def caps_w(self) -> list[int]:
        """Return the caps in force: the truth."""
        return [gpu.enforced_w for gpu in self.node.gpus()]

    @property
    def gpu(self) -> GpuId:
        """Return the first GPU's UUID."""
        return GpuId(self.node.static.gpus[0].uuid)

    @property
    def model(self) -> str:
        """Return the model of its GPUs."""
        return self.node.static.gpus[0].model

    @property
    def min_w(self) -> int:
        """Return the smallest cap of its GPUs."""
        return self.node.static.gpus[0].min_cap_w

    @property
    def default_w(self) -> int:
        """Return the cap that drivers come up with."""
        return self.node.static.gpus[0].default_cap_w

    def settings(self, **changes: object) -> Path:
        """Write settings for an agent and return their file; a value of None leaves a setting out."""
        options = {"sim": {"path": str(self.node.path)}}
        values = {
            "node": NODE,
            "controllers": ["127.0.0.1:1"],
            "devices": options,
            "workloads": options,
            "meter": options,
            "state_dir": str(self.folder / "state"),
            "boot_id_file": str(boot_id_path(self.folder / "rack", NODE)),
            "metrics": "",
        } | changes
        path = self.folder / "agent.yaml"
        path.write_text(json.dumps({name: value for name, value in values.items() if value is not None}))
        return path

    def reboot(self) -> None:
        """Power-cycle the node and wait until it is up again, at its default caps."""
        boots = self.node.node().boots
        self.node.reboot()

        def up() -> NodeState | None:
            state = self.node.node()
            return state if state.boots > boots and state.powered else None

        wait_until(up, within_s=PATIENCE_S, what="the node to boot")


@contextmanager
def hardware(folder: Path) -> Iterator[Hardware]:
    """Simulate one node with two GPUs in a process of its own."""
    scenario = Scenario(
        name="test-rack",
        seed=1,
        domains=(DomainSpec("rack", None, "rack", 10_000, 100),),
        nodes=(NodeSpec(NODE, (GpuGroup(H100.name, GPUS),), (FeedSpec("rack"),), 400),),
        classes=(H100,),
    )
    (folder / "scenario.json").write_text(scenario.to_json())
    command = [sys.executable, "-m", "rackpower_sim.rack", "--follow-parent"]
    with (folder / "rack.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--scenario", str(folder / "scenario.json"), "--folder", str(folder / "rack")], stderr=log
        )
    path = node_path(folder / "rack", NODE)
    try:
        wait_until(lambda: path.exists() and boot_id_path(path.parent, NODE).exists(), within_s=PATIENCE_S, what="rack")
        node = NodeFile.open(path)
        wait_until(lambda: node.node().step, within_s=PATIENCE_S, what="the hardware to move")
        yield Hardware(folder, node, process)
    finally:
        process.terminate()
        process.wait(10.0)


@dataclass
class Agent:
    """One agent process; `ear` hears what it tells systemd."""

    process: subprocess.Popen[bytes]
    ear: Ear
    log: Path

    @property
    def said(self) -> str:
        """Return what it wrote."""
        return self.log.read_text()

    async def ready(self) -> None:
        """Wait for READY=1."""
        await async_wait_until(lambda: self.ear.heard("READY=1"), within_s=PATIENCE_S, what="READY=1")

    def kill(self) -> None:
        """Kill it without a word."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    async def stop(self) -> int:
        """Tell it to end, and return its exit code; the event loop runs on, for it says goodbye."""
        self.process.send_signal(signal.SIGTERM)
        await async_wait_until(lambda: self.process.poll() is not None, within_s=PATIENCE_S, what="the agent's end")
        return self.process.returncode


@contextmanager
def agent(settings: Path, *arguments: str, watchdog_s: float | None = None) -> Iterator[Agent]:
    """Start an agent; it is killed at the end if it still runs."""
    folder = settings.parent
    ear_path = folder / "notify"
    ear_path.unlink(missing_ok=True)
    ear = Ear(ear_path)
    environment = os.environ | {"NOTIFY_SOCKET": str(ear_path)}
    if watchdog_s is not None:
        environment["WATCHDOG_USEC"] = str(round(watchdog_s * 1_000_000))
    log = folder / "agent.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(AGENT), "--config", str(settings), *arguments], env=environment, stdout=output, stderr=output
        )
    try:
        yield Agent(process, ear, log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE_S)
        ear.close()


def run_agent(settings: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an agent command to its end."""
    command = [str(AGENT), "--config", str(settings), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)


@dataclass
class Controller:
    """A controller that the test plays, behind the real servers."""

    edge: Edge
    term: Term = Term(1, "c0ffee")
    facts: list[Fact] = field(default_factory=list)

    async def fact(self, kind: type[F], fits: Callable[[F], bool] = lambda fact: True) -> F:
        """Return the first fact of a kind that fits and has not been returned before; those before it are forgotten."""
        matches: list[F] = []

        def found() -> list[F]:
            self.facts.extend(self.edge.inbox.drain())
            while self.facts:
                fact = self.facts.pop(0)
                if isinstance(fact, kind) and fits(fact):
                    matches.append(fact)
                    break
            return matches

        return (await async_wait_until(found, within_s=PATIENCE_S, what=kind.__name__))[0]

    async def welcome(self) -> NodeConnected:
        """Take the agent's hello and welcome it."""
        connected = await self.fact(NodeConnected)
        self.edge.nodes.send(connected.stream, Welcome(self.term, 0.2))
        return connected

    def send(
        self, connected: NodeConnected, cap_w: int, sequence: int, *, lease_s: float = 15.0, fallback_w: int = 0
    ) -> None:
        """Grant every GPU a cap; the fallback is the cap unless it is told."""
        gpus = [device.gpu for device in connected.hello.devices]
        fallback_w = fallback_w or cap_w
        batch = GrantBatch(self.term, tuple(Grant(gpu, cap_w, fallback_w, lease_s, sequence) for gpu in gpus))
        self.edge.nodes.send(connected.stream, batch)

    async def grant(
        self, connected: NodeConnected, cap_w: int, sequence: int, *, lease_s: float = 15.0, fallback_w: int = 0
    ) -> NodeReported:
        """Grant every GPU a cap, and return the report that acknowledges it."""
        self.send(connected, cap_w, sequence, lease_s=lease_s, fallback_w=fallback_w)

        def acknowledged(said: NodeReported) -> bool:
            return all(line.holding.applied_sequence == sequence for line in said.report.gpus)

        return await self.fact(NodeReported, acknowledged)
