"""One agent process: what it is put together from, and how it starts, runs and ends."""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, start_http_server

from rackpower_agent.devices.base import Backend, BackendUnavailable, Gpu
from rackpower_agent.devices.registry import DEVICES, METERS, WORKLOADS, load_plugin
from rackpower_agent.devices.worker import DeviceWorker
from rackpower_agent.dialling import Dialler
from rackpower_agent.facts import Facts
from rackpower_agent.holder import LeaseHolder
from rackpower_agent.journal import Journal
from rackpower_agent.lease.events import Event
from rackpower_agent.link.grpc_link import GrpcLink
from rackpower_agent.metrics import AgentCollector
from rackpower_agent.reporting import build_hello, build_report
from rackpower_agent.settings import AgentSettings
from rackpower_common.address import parse_address
from rackpower_common.clock import BootClock
from rackpower_common.errors import RackpowerError
from rackpower_common.model.identity import GpuId, NodeName
from rackpower_common.model.messages import GPUS_PER_NODE_LIMIT, Hello, Report
from rackpower_common.systemd import Notifier

DEVICES_RETRY_S: Final = 5.0
"""How often a driver that is not there is looked for again."""

STATUS_S: Final = 1.0

log = structlog.get_logger("rackpower.agent")


class AgentError(RackpowerError):
    """The agent cannot start as it is set up."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """The node's GPUs, and whether the list is complete."""

    gpus: tuple[Gpu, ...]
    complete: bool


class Process:
    """An agent process.

    Args:
        settings: What to run.
        version: Ours.
    """

    def __init__(self, settings: AgentSettings, version: str) -> None:
        self._settings = settings
        self._version = version
        self._clock = BootClock()
        self._notifier = Notifier()
        self._stop = asyncio.Event()
        self._instance = uuid.uuid4().hex
        self._backends = {name: load_plugin(DEVICES, name) for name in settings.devices}

    async def run(self) -> int:
        """Run until a signal; return the exit code.

        Raises:
            RackpowerError: The agent cannot start, or a fact of the safety argument does not hold.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        if not self._settings.controllers:
            raise AgentError("no controller is named", "set controllers: [host:port]")
        if self._settings.tls is not None:
            self._settings.tls.files().check()
        boot_id = read_boot_id(self._settings.boot_id_file)
        journal = Journal(self._settings.state_dir)
        memory = journal.open()
        try:
            hardware = await self._hardware()
            if hardware is None:
                return 0
            if memory.detail:
                log.warning("no memory of terms and leases", reason=memory.detail)
            holders: list[LeaseHolder] = []

            def post(event: Event) -> None:
                loop.call_soon_threadsafe(lambda: holders[0].handle(event))

            workers = {gpu.device.gpu: DeviceWorker(gpu, self._clock, post) for gpu in hardware.gpus}
            holder = LeaseHolder(workers, journal, memory, boot_id, self._clock)
            holders.append(holder)
            await self._work(hardware, workers, holder, boot_id)
        finally:
            journal.close()
        log.info("stopped; every cap stays as it is")
        return 0

    async def _hardware(self) -> Hardware | None:
        """List the GPUs, waiting for drivers that are not there yet; None when told to stop meanwhile."""
        while True:
            try:
                return list_hardware(self._backends, self._settings)
            except BackendUnavailable as error:
                log.warning("the devices are not there yet, trying again", reason=str(error))
                self._notifier.status(f"waiting for the devices: {error}")
            self._notifier.alive()
            try:
                async with asyncio.timeout(DEVICES_RETRY_S):
                    await self._stop.wait()
                return None
            except TimeoutError:
                continue

    async def _work(
        self, hardware: Hardware, workers: dict[GpuId, DeviceWorker], holder: LeaseHolder, boot_id: str
    ) -> None:
        settings = self._settings
        facts = Facts(
            self._clock,
            {name: (load_plugin(WORKLOADS, name), options) for name, options in settings.workloads.items()},
            next(((load_plugin(METERS, name), options) for name, options in settings.meter.items()), None),
        )

        def hello() -> Hello:
            return build_hello(
                holder.keeper,
                [gpu.device for gpu in hardware.gpus],
                complete=hardware.complete,
                node=NodeName(settings.node),
                version=self._version,
                boot_id=boot_id,
                instance=self._instance,
                now_s=self._clock.now_s(),
            )

        def report(sequence: int) -> Report:
            now_s = self._clock.now_s()
            return build_report(
                holder.keeper,
                holder.take_samples(),
                holder.hung,
                facts.workloads(now_s),
                facts.node_power(now_s),
                sequence,
                now_s,
            )

        link = GrpcLink(settings.tls.files() if settings.tls is not None else None)
        dialler = Dialler(link, settings.controllers, holder, hello, report, self._clock, Random())  # noqa: S311
        standing = dialler.standing
        self._serve_metrics(
            AgentCollector(settings.node, workers, holder.keeper, standing, lambda: facts.health, self._clock)
        )
        for worker in workers.values():
            worker.start()
        holder.start()
        tasks: tuple[Coroutine[object, object, object], ...] = (
            holder.run(),
            dialler.run(),
            facts.run(),
            self._tell_systemd(holder, dialler),
            self._stop.wait(),
        )
        running = [asyncio.ensure_future(task) for task in tasks]
        try:
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._notifier.stopping("saying goodbye, every cap stays")
            await dialler.say_goodbye("the agent stops")
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await holder.close()
            await link.close()

    async def _tell_systemd(self, holder: LeaseHolder, dialler: Dialler) -> None:
        """READY once every GPU stands at a safe cap; alive while the leases are kept."""
        ready = False
        while True:
            await holder.changed.wait()
            holder.changed.clear()
            standing = dialler.standing
            where = f"term {standing.term} at {standing.peer}" if standing.peer else f"no controller: {standing.detail}"
            if not ready and holder.keeper.ready():
                ready = True
                self._notifier.ready(where)
                log.info("ready: every GPU stands at a safe cap")
            self._notifier.alive()
            self._notifier.status(where if ready else f"not every GPU is at a safe cap yet; {where}")
            await asyncio.sleep(STATUS_S)

    def _serve_metrics(self, collector: AgentCollector) -> None:
        if not self._settings.metrics:
            return
        address = parse_address(self._settings.metrics)
        registry = CollectorRegistry()
        registry.register(collector)
        try:
            start_http_server(address.port, address.host, registry)
        except OSError as error:
            hint = "set metrics: to another address, or to '' for none"
            raise AgentError(f"cannot serve metrics on {address}: {error.strerror}", hint) from None


def list_hardware(backends: dict[str, Backend], settings: AgentSettings) -> Hardware:
    """List the GPUs of every backend.

    Raises:
        BackendUnavailable: A library or driver is not there.
        AgentError: There are none, too many, or one twice.
    """
    listings = {name: backend.open(settings.devices[name]) for name, backend in backends.items()}
    gpus = tuple(gpu for listing in listings.values() for gpu in listing.gpus)
    ids = [gpu.device.gpu for gpu in gpus]
    if not ids:
        raise BackendUnavailable(f"no GPU is listed by {', '.join(backends)}")
    if len(ids) > GPUS_PER_NODE_LIMIT or len(set(ids)) != len(ids):
        raise AgentError(f"{len(ids)} GPUs are listed, the most is {GPUS_PER_NODE_LIMIT}, each once")
    return Hardware(gpus, all(listing.complete for listing in listings.values()))


def read_boot_id(path: Path) -> str:
    """Return this boot's id.

    Raises:
        AgentError: It cannot be read: without it a reboot would go unnoticed.
    """
    try:
        boot_id = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise AgentError(f"cannot read {path}: {error.strerror}") from None
    if not boot_id:
        raise AgentError(f"{path} holds no boot id")
    return boot_id
