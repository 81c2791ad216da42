"""One agent process: what it is put together from, and how it starts, runs and ends."""

from __future__ import annotations

import asyncio
import signal
import uuid
from contextlib import suppress
from random import Random
from typing import Final

import structlog

from rackpower_agent.background import Background
from rackpower_agent.devices.base import BackendUnavailable
from rackpower_agent.devices.registry import METERS, WORKLOADS, load_plugin
from rackpower_agent.devices.sampler import Sampler
from rackpower_agent.devices.worker import DeviceWorker
from rackpower_agent.dialling import Dialler
from rackpower_agent.facts import Facts
from rackpower_agent.hardware import Backends, Hardware, read_boot_id
from rackpower_agent.holder import LeaseHolder
from rackpower_agent.journal import Journal
from rackpower_agent.lease.events import Event
from rackpower_agent.lease.memory import Memory
from rackpower_agent.link.base import Link
from rackpower_agent.link.grpc_link import GrpcLink
from rackpower_agent.metrics import AgentCollector
from rackpower_agent.reporting import build_hello, build_report
from rackpower_agent.settings import AgentSettings
from rackpower_common.clock import BootClock
from rackpower_common.metrics import serve_metrics
from rackpower_common.model.identity import NodeName
from rackpower_common.model.messages import Hello, Report
from rackpower_common.systemd import Notifier
from rackpower_common.tasks import run_until, unless

DEVICES_RETRY_S: Final = 5.0
"""How often a driver that is not there is looked for again."""

STATUS_S: Final = 1.0
"""How often, at most, the watchdog is fed and the status line told."""

SAFE_WITHIN_S: Final = 10.0
"""Metrics wait so long for the first caps: a port in use must keep no cap up, a hung driver must not hide itself."""

log = structlog.get_logger("rackpower.agent")


class Process:
    """An agent process.

    Args:
        settings: What to run.
        version: Ours.

    Raises:
        PluginError: The settings name a backend, source or meter that is not installed.
    """

    def __init__(self, settings: AgentSettings, version: str) -> None:
        self._settings = settings
        self._version = version
        self._clock = BootClock()
        self._notifier = Notifier()
        self._stop = asyncio.Event()
        self._broken: Exception | None = None
        self._instance = uuid.uuid4().hex
        self._backends = Backends(settings.devices)
        self._facts = Facts(
            self._clock,
            {name: (load_plugin(WORKLOADS, name), options) for name, options in settings.workloads.items()},
            next(((load_plugin(METERS, name), options) for name, options in settings.meter.items()), None),
        )

    async def run(self) -> int:
        """Run until a signal; return the exit code.

        Raises:
            RackpowerError: The agent cannot start, or a fact of the safety argument does not hold.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        tls = self._settings.tls.files() if self._settings.tls is not None else None
        if tls is not None:
            tls.check()
        boot_id = read_boot_id(self._settings.boot_id_file)
        journal = Journal(self._settings.state_dir)
        memory = journal.open()
        try:
            if memory.detail:
                log.warning("no memory of terms and leases", reason=memory.detail)
            hardware = await unless(self._stop, self._listed())
            if hardware is not None:
                await self._hold(hardware, journal, memory, boot_id, GrpcLink(tls))
        finally:
            journal.close()
        if self._broken is not None:
            raise self._broken
        log.info("stopped; every cap stays as it is")
        return 0

    async def _listed(self) -> Hardware:
        """List the GPUs, waiting for drivers that are not there yet; a driver that hangs holds up no signal.

        Raises:
            HardwareError: The node's hardware cannot be held as it is set up.
        """
        asker, told = Background("list-gpus"), ""
        while True:
            try:
                hardware = await asker.call(self._backends.open)
            except BackendUnavailable as error:
                if str(error) != told:
                    log.warning("the devices are not there yet, trying again", reason=str(error))
                    told = str(error)
                self._notifier.status(f"waiting for the devices: {error}")
                await asyncio.sleep(DEVICES_RETRY_S)
                continue
            asker.stop()
            if not hardware.complete:
                log.warning("not every GPU could be listed", reason=hardware.detail)
            return hardware

    async def _hold(self, hardware: Hardware, journal: Journal, memory: Memory, boot_id: str, link: Link) -> None:
        """Hold the leases of the listed GPUs until a signal."""
        loop = asyncio.get_running_loop()

        def post(event: Event) -> None:
            with suppress(RuntimeError):  # the loop has ended: nobody is left to be told
                loop.call_soon_threadsafe(handle, event)

        workers = {
            gpu.device.gpu: DeviceWorker(gpu, self._clock, post, place) for place, gpu in enumerate(hardware.gpus)
        }
        sampler = Sampler(workers.values(), self._clock)
        holder = LeaseHolder(workers, journal, memory, boot_id, self._clock, sampler)
        handle = holder.handle
        dialler = self._dialler(hardware, holder, boot_id, link)
        node, health = self._settings.node, self._facts.health
        standing = dialler.standing
        collector = AgentCollector(node, workers, holder.keeper, standing, lambda: dict(health), self._clock)
        holder.start()

        async def farewell() -> None:
            self._notifier.stopping("saying goodbye, every cap stays")
            await dialler.say_goodbye("the agent stops")

        jobs = (self._keep(holder), dialler.run(), self._facts.run(), self._tell_systemd(holder, dialler, collector))
        try:
            await run_until(self._stop, jobs, farewell)
        finally:
            await holder.close()
            await link.close()

    async def _keep(self, holder: LeaseHolder) -> None:
        """Keep the leases; a fact that does not hold ends the agent in order, after the caps were lowered."""
        try:
            await holder.run()
        except Exception as broken:  # noqa: BLE001 - comes out of `run` after the farewell
            self._broken = broken
            self._stop.set()

    def _dialler(self, hardware: Hardware, holder: LeaseHolder, boot_id: str, link: Link) -> Dialler:
        def hello() -> Hello:
            return build_hello(
                holder.keeper,
                hardware.devices,
                complete=hardware.complete,
                node=NodeName(self._settings.node),
                version=self._version,
                boot_id=boot_id,
                instance=self._instance,
                now_s=self._clock.now_s(),
            )

        def report(sequence: int) -> Report:
            now_s = self._clock.now_s()
            workloads, meter = self._facts.workloads(now_s), self._facts.node_power(now_s)
            return build_report(holder.keeper, holder.take_samples(), holder.hung, workloads, meter, sequence, now_s)

        jitter = Random()  # noqa: S311 - no secret
        return Dialler(link, self._settings.controllers, holder, hello, report, self._clock, jitter)

    async def _tell_systemd(self, holder: LeaseHolder, dialler: Dialler, collector: AgentCollector) -> None:
        """READY once every GPU stands at a safe cap; alive while the leases are kept, and only then.

        Raises:
            MetricsError: The port is in use; the caps were lowered first.
        """
        ready, served, told = False, False, ""
        serve_at_s = self._clock.now_s() + SAFE_WITHIN_S
        while True:
            await holder.kept.wait()
            holder.kept.clear()
            if not served and (holder.keeper.ready() or self._clock.now_s() >= serve_at_s):
                serve_metrics(self._settings.metrics, collector)
                served = True
            standing = dialler.standing
            where = f"term {standing.term} at {standing.peer}" if standing.peer else f"no controller: {standing.detail}"
            if not ready and holder.keeper.ready():
                ready, told = True, where
                self._notifier.ready(where)
                log.info("ready: every GPU stands at a safe cap")
            self._notifier.alive()
            status = where if ready else f"not every GPU is at a safe cap yet; {where}"
            if status != told:
                self._notifier.status(status)
                told = status
            await asyncio.sleep(min(STATUS_S, self._notifier.feed_period_s or STATUS_S))
