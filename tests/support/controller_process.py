"""A real controller process, asked over its own sockets; agents are the product's link in the hands of the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rackpower.v1 import operator_pb2, operator_pb2_grpc
from rackpower_agent.link.base import Session
from rackpower_agent.link.grpc_link import GrpcLink
from rackpower_common.model.identity import Term
from rackpower_common.model.messages import ControllerMessage, GrantBatch, Welcome
from support.agent_process import Ear
from support.books import hello
from support.policies import SMALL
from support.shell import FakeAgent
from support.stores import free_port
from support.waiting import wait_until

PATIENCE_S: Final = 40.0
"""Only a failing test waits so long."""
CALL_S: Final = 10.0
CONTROLLER: Final = Path(sys.executable).with_name("rackpower-controller")


@dataclass
class Site:
    """A folder with a controller's settings, policy and store; ports are chosen anew for each site."""

    folder: Path
    agents: str
    metrics: str = ""
    store: str = ""

    @property
    def policy(self) -> Path:
        """Return the policy file."""
        return self.folder / "policy.yaml"

    @property
    def socket(self) -> Path:
        """Return the operators' socket."""
        return self.folder / "op.sock"

    @property
    def store_folder(self) -> Path:
        """Return the embedded store's folder."""
        return self.folder / "store"

    @property
    def store_pid(self) -> int | None:
        """Return the process id of the embedded store, None when its pid file is gone."""
        file = self.store_folder / "valkey.pid"
        return int(file.read_text()) if file.exists() else None

    def settings(self) -> Path:
        """Write the settings and return their file."""
        values = {
            "policy": [str(self.policy)],
            "store": self.store or f"embedded:{self.store_folder}",
            "agents": self.agents,
            "operators": [f"unix:{self.socket}"],
            "metrics": self.metrics,
            "log_format": "json",
        }
        path = self.folder / "controller.yaml"
        path.write_text(json.dumps(values))
        return path


def site(folder: Path, *, store: str = "", metrics: str = "") -> Site:
    """Return a site with the small policy; its folder is made."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Site(folder, f"127.0.0.1:{free_port()}", metrics, store)
    made.policy.write_text(SMALL)
    return made


@dataclass
class Controller:
    """One controller process; `ear` hears what it tells systemd."""

    site: Site
    process: subprocess.Popen[bytes]
    ear: Ear
    log: Path

    @property
    def said(self) -> str:
        """Return what it wrote."""
        return self.log.read_text()

    def status(self) -> operator_pb2.Status:
        """Ask for the status."""
        with self._channel() as channel:
            stub = operator_pb2_grpc.OperatorServiceStub(channel)
            return stub.GetStatus(operator_pb2.GetStatusRequest(), timeout=CALL_S).status

    def events(self) -> list[str]:
        """Ask for the reasons of past events."""
        with self._channel() as channel:
            stub = operator_pb2_grpc.OperatorServiceStub(channel)
            answers = stub.ListEvents(operator_pb2.ListEventsRequest(limit=1000), timeout=CALL_S)
            return [answer.event.reason for answer in answers]

    def apply(self, text: str, author: str = "ann") -> operator_pb2.ApplyPolicyResponse:
        """Apply a policy."""
        file = operator_pb2.PolicyFile(name="rack.yaml", content=text.encode())
        with self._channel() as channel:
            stub = operator_pb2_grpc.OperatorServiceStub(channel)
            return stub.ApplyPolicy(operator_pb2.ApplyPolicyRequest(files=[file], author=author), timeout=CALL_S)

    def policy(self) -> operator_pb2.PolicyRevision:
        """Ask for the policy in force."""
        with self._channel() as channel:
            stub = operator_pb2_grpc.OperatorServiceStub(channel)
            return stub.GetPolicy(operator_pb2.GetPolicyRequest(), timeout=CALL_S).policy

    def serving(self) -> bool:
        """Ask for its health."""
        with self._channel() as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=CALL_S)
            return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    @contextmanager
    def _channel(self) -> Iterator[grpc.Channel]:
        with grpc.insecure_channel(f"unix:{self.site.socket}") as channel:
            yield channel

    def listens(self) -> None:
        """Wait until it answers operators."""
        wait_until(lambda: self.ear.heard("READY=1") or self._ended(), within_s=PATIENCE_S, what="READY=1")

    def _ended(self) -> bool:
        code = self.process.poll()
        assert code is None, f"it ended with {code}:\n{self.said}"
        return False

    def leads(self) -> Term:
        """Wait until it has a term, and return it."""
        self.listens()
        status = self.until(lambda now: now.HasField("term"), "a term")
        return Term(status.term.number, status.term.instance)

    def until(self, fits: Callable[[operator_pb2.Status], bool], what: str) -> operator_pb2.Status:
        """Wait for a status that fits, and return it."""
        found: list[operator_pb2.Status] = []

        def look() -> bool:
            self._ended()
            found[:] = [self.status()]
            return fits(found[0])

        wait_until(look, within_s=PATIENCE_S, what=what)
        return found[0]

    def ticks(self, count: int = 2) -> None:
        """Let some ticks pass."""
        before = self.status().tick
        self.until(lambda now: now.tick >= before + count, "ticks")

    def limit_w(self) -> float:
        """Return the rack's limit in force."""
        return self.status().domains[0].limit_milliwatts / 1000

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def ends(self) -> int:
        """Wait for its end, and return its exit code."""
        return self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        """Kill it without a word."""
        self.process.kill()
        self.process.wait(PATIENCE_S)


@contextmanager
def controller(of: Site, *, watchdog_s: float = 8.0) -> Iterator[Controller]:
    """Start a controller; at the end it is told to stop, or killed, and its store with it."""
    ear_path = of.folder / "notify"
    ear_path.unlink(missing_ok=True)
    ear = Ear(ear_path)
    environment = os.environ | {"NOTIFY_SOCKET": str(ear_path), "WATCHDOG_USEC": str(round(watchdog_s * 1_000_000))}
    log = of.folder / "controller.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(CONTROLLER), "--config", str(of.settings())], env=environment, stdout=output, stderr=output
        )
    running = Controller(of, process, ear, log)
    try:
        yield running
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                running.kill()
        ear.close()


@contextmanager
def no_store_left(of: Site) -> Iterator[None]:
    """End the embedded store that a killed controller left behind."""
    try:
        yield
    finally:
        pid = of.store_pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)


def run_controller(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a controller command to its end."""
    return subprocess.run(
        [str(CONTROLLER), *arguments], check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )


@dataclass
class Dialled:
    """An agent's stream: what it hears, and what it holds."""

    session: Session
    agent: FakeAgent

    async def report(self) -> None:
        """Send a report."""
        await self.session.send(self.agent.report())

    async def hears(self, kind: type[ControllerMessage]) -> ControllerMessage:
        """Return the next message of a kind; grants on the way are taken and reported."""
        while True:
            message = await self.session.receive()
            if isinstance(message, Welcome):
                self.agent.term = message.term
            if isinstance(message, GrantBatch):
                self.agent.take(message)
            if isinstance(message, kind):
                return message
            await self.report()


@asynccontextmanager
async def dialled(of: Site, agent: FakeAgent) -> AsyncIterator[Dialled]:
    """Dial a controller as an agent and say hello."""
    link = GrpcLink(None)
    session = await link.connect(of.agents)
    try:
        said = hello(agent.name)
        held = tuple(replace(one, sequence=agent.sequences.get(one.gpu, 0)) for one in said.holdings)
        await session.send(replace(said, highest_term=agent.term, holdings=held))
        yield Dialled(session, agent)
    finally:
        await session.close()
        await link.close()
