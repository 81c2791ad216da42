"""One controller process: what it is put together from, and how it starts, runs and ends."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import suppress

import structlog
from prometheus_client import CollectorRegistry, start_http_server

from rackpower_common.address import parse_address
from rackpower_common.clock import BootClock
from rackpower_common.errors import RackpowerError
from rackpower_common.model.policy import Policy
from rackpower_common.policy import PolicyError
from rackpower_common.systemd import Notifier
from rackpower_common.tasks import run_until
from rackpower_controller.controller import Controller, Ticked
from rackpower_controller.desk import ControllerDesk
from rackpower_controller.events_log import EventLog
from rackpower_controller.inbox import Inbox
from rackpower_controller.metrics import ControllerCollector
from rackpower_controller.nodes import Nodes
from rackpower_controller.operator_api.service import OperatorService
from rackpower_controller.planner.lp import LpPlanner
from rackpower_controller.planner_runner import PlannerRunner
from rackpower_controller.policy_desk import PolicyDesk
from rackpower_controller.policy_source import PolicySource
from rackpower_controller.reign import Reign
from rackpower_controller.server import Server
from rackpower_controller.settings import ControllerSettings
from rackpower_controller.store.base import StoreError
from rackpower_controller.store.redis_store import open_store

STORE_RETRY_S = 2.0
"""How often a store that is down at the start is tried again."""

BAD_FILES_PATIENCE_S = 5.0
"""How long wrong policy files wait for the store, which may know the last good policy."""

GOODBYE_S = 1.0
"""How long goodbyes get to leave."""

LEAVE_S = 3.0
"""How long the end may take."""

log = structlog.get_logger("rackpower.controller")


class MetricsError(RackpowerError):
    """The metrics' address cannot be listened on."""


class Process:
    """A controller process.

    Args:
        settings: What to run.
        version: Ours.
    """

    def __init__(self, settings: ControllerSettings, version: str) -> None:
        self._settings = settings
        self._version = version
        self._clock = BootClock()
        self._notifier = Notifier()
        self._inbox = Inbox()
        self._store = open_store(settings.store)
        self._events = EventLog(self._store, self._clock)
        self._source = PolicySource(settings.policy, settings.curves)
        self._policies = PolicyDesk(self._source, self._store, self._inbox, self._clock)
        self._reign = Reign(self._store, self._clock, settings.advertise or settings.agents)
        self._planner = PlannerRunner(LpPlanner(), self._clock, lambda event: self._events.add([event]))
        self._ticked: asyncio.Queue[Ticked] = asyncio.Queue(1)
        self._stop = asyncio.Event()

    async def run(self) -> int:
        """Run until a signal; return the exit code.

        Raises:
            PolicyError: The policy files are wrong and there is no last good policy.
            RackpowerError: An address, certificate or setting cannot be used.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._hangup)
        try:
            self._source.open()
            policy = await self._policy_to_show()
            controller = Controller(
                policy, self._inbox, self._reign, self._planner, self._events, self._clock, self._version
            )
            await self._serve(controller)
        finally:
            await self._store.close()
        log.info("stopped; every agent keeps its caps and leases")
        return 0

    def _hangup(self) -> None:
        self._notifier.reloading(time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000)
        self._source.reload()
        self._notifier.ready()

    async def _policy_to_show(self) -> Policy:
        """Return the files' policy; where it is wrong, the last good one if the store soon tells one."""
        try:
            return (await asyncio.to_thread(self._source.read)).policy
        except PolicyError:
            with suppress(StoreError, TimeoutError):
                async with asyncio.timeout(BAD_FILES_PATIENCE_S):
                    await self._store.ensure()
            return await self._policies.begin()

    async def _serve(self, controller: Controller) -> None:
        nodes = Nodes(self._inbox, self._clock, controller)
        controller.serve(nodes)
        desk = ControllerDesk(
            controller, self._policies, self._events, self._planner, self._reign, self._clock, self._version
        )
        controller.listen(self._after_tick)
        server = Server(
            nodes,
            OperatorService(desk),
            agent_listen=parse_address(self._settings.agents),
            operator_listen=[parse_address(address) for address in self._settings.operators],
            tls=self._settings.tls.files() if self._settings.tls is not None else None,
        )
        await server.start()
        try:
            self._serve_metrics(controller, desk)
            agents, operators = str(server.agent_address), [str(address) for address in server.operator_addresses]
            log.info("listening", agents=agents, operators=operators, store=self._store.address, version=self._version)
            self._notifier.ready("listening")
            await self._work(controller, server)
        finally:
            self._notifier.stopping("saying goodbye")
            controller.leave()
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await server.stop(GOODBYE_S)
                    await self._reign.give_up()
                    await self._events.flush()

    def _serve_metrics(self, controller: Controller, desk: ControllerDesk) -> None:
        if not self._settings.metrics:
            return
        address = parse_address(self._settings.metrics)
        registry = CollectorRegistry()
        registry.register(ControllerCollector(desk.status, self._events, self._planner, controller.recorded))
        try:
            start_http_server(address.port, address.host, registry)
        except OSError as error:
            hint = "set metrics: to another address, or to '' for none"
            raise MetricsError(f"cannot serve metrics on {address}: {error.strerror}", hint) from None

    async def _work(self, controller: Controller, server: Server) -> None:
        """Do everything side by side until a signal; a bug in any part ends the whole, systemd starts it again."""
        tasks = (
            self._reign_and_decide(controller),
            self._planner.run(),
            self._events.write(),
            self._after_ticks(controller, server),
        )
        await run_until(self._stop, tasks)

    async def _reign_and_decide(self, controller: Controller) -> None:
        """Wait for the store, begin under the policy that it knows, then decide for ever and follow the files."""
        while True:
            self._notifier.alive()
            try:
                await self._store.ensure()
                break
            except StoreError as error:
                log.warning("the store is not there yet, trying again", reason=str(error), store=self._store.address)
                self._notifier.status(f"waiting for the store: {error}")
                self._reign.detail = str(error)
                await asyncio.sleep(STORE_RETRY_S)
        policy = await self._policies.begin()
        controller.begin(policy, await self._reign.recall(self._clock.now_s()))
        await self._events.recall()
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.run())
            group.create_task(self._policies.run())

    def _after_tick(self, ticked: Ticked) -> None:
        self._policies.arrived()
        self._events.add(self._policies.events())
        if self._ticked.full():
            self._ticked.get_nowait()
        self._ticked.put_nowait(ticked)

    async def _after_ticks(self, controller: Controller, server: Server) -> None:
        """Do after a tick what may wait for others: health, systemd, the policy's place in the store."""
        while True:
            ticked = await self._ticked.get()
            self._notifier.alive()
            self._notifier.status(ticked.decision.sentence)
            await server.set_serving(serving=controller.leads())
            if ticked.recorded:
                await self._policies.save(ticked.policy.revision)
