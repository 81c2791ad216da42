"""One controller process: what it is put together from, and how it starts, runs and ends."""

from __future__ import annotations

import asyncio
import gc
import signal
import time
from collections.abc import Iterable
from contextlib import suppress

import structlog

from rackpower_common.address import parse_address
from rackpower_common.clock import BootClock
from rackpower_common.metrics import serve_metrics
from rackpower_common.model.policy import Policy
from rackpower_common.policy import PolicyError
from rackpower_common.policy.report import format_problems
from rackpower_common.systemd import Notifier
from rackpower_common.tasks import Job, run_until, unless
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
from rackpower_controller.reign import Begun, Reign
from rackpower_controller.server import Server
from rackpower_controller.settings import ControllerSettings
from rackpower_controller.store.base import StoreError
from rackpower_controller.store.redis_store import open_store

STORE_RETRY_S = 2.0
"""How often a store that is down at the start is tried again."""

GOODBYE_S = 1.0
"""How long goodbyes get to leave."""

LEAVE_S = 3.0
"""How long the end may take."""

log = structlog.get_logger("rackpower.controller")


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
        self._reign = Reign(self._store, self._clock, settings.advertise or settings.agents, self._inbox.wake)
        self._policies = PolicyDesk(self._source, self._store, self._inbox, self._clock, self._reign.lasts)
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
            policy = await unless(self._stop, self._policy_to_show())
            if policy is not None:
                await self._serve(policy)
        finally:
            await self._store.close()
        log.info("stopped; every agent keeps its caps and leases")
        return 0

    def _hangup(self) -> None:
        self._notifier.reloading(time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000)
        self._source.reload()
        self._notifier.ready()

    async def _policy_to_show(self) -> Policy:
        """Return the files' policy; where it is wrong, the last good one that the store knows, once it answers.

        Raises:
            PolicyError: The files are wrong and there is no last good policy.
        """
        told = ""
        while True:
            try:
                return (await asyncio.to_thread(self._source.read)).policy
            except PolicyError as error:
                wrong = error
            if str(wrong) != told:
                log.error("the policy files are wrong", problems=format_problems(wrong.problems, ()))
                told = str(wrong)
            try:
                await self._store.ensure()
                stored = await self._policies.stored()
            except StoreError as error:
                log.warning("the last good policy may be in the store, trying again", reason=str(error))
                await asyncio.sleep(STORE_RETRY_S)
                continue
            if stored is None:
                raise wrong
            return stored.policy

    async def _serve(self, policy: Policy) -> None:
        controller = Controller(
            policy, self._inbox, self._reign, self._planner, self._events, self._clock, self._version
        )
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
            collector = ControllerCollector(desk.status, controller, self._events, self._planner)
            metrics = serve_metrics(self._settings.metrics, collector)
            if metrics is not None:
                log.info("serving metrics", address=f"{metrics.host}:{metrics.port}")
            agents, operators = str(server.agent_address), [str(one) for one in server.operator_addresses]
            log.info("listening", agents=agents, operators=operators, store=self._store.address, version=self._version)
            _spare_the_collector()
            self._notifier.ready("listening")
            await run_until(self._stop, self._jobs(controller, server))
        finally:
            self._notifier.stopping("saying goodbye")
            controller.leave()
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await server.stop(GOODBYE_S)
                    await self._reign.give_up()
                    await self._events.flush()

    def _jobs(self, controller: Controller, server: Server) -> Iterable[Job]:
        """Return what runs side by side; a bug in any part ends the whole, and systemd starts it again."""
        return (
            controller.run(),
            self._reign.run(self._begin),
            self._policies.run(),
            self._planner.run(),
            self._events.write(),
            self._after_ticks(controller, server),
        )

    async def _begin(self) -> Begun:
        """Begin a reign: history first, then the policy."""
        await self._events.recall()
        return await self._policies.begin()

    def _after_tick(self, ticked: Ticked) -> None:
        self._notifier.alive()
        self._notifier.status(ticked.decision.sentence)
        self._policies.arrived(ticked.policy.revision)
        self._events.add(self._policies.events())
        if self._ticked.full():
            self._ticked.get_nowait()
        self._ticked.put_nowait(ticked)

    async def _after_ticks(self, controller: Controller, server: Server) -> None:
        """Do after a tick what may wait for others: health, the policy's place in the store."""
        while True:
            ticked = await self._ticked.get()
            await server.set_serving(serving=controller.leads())
            if ticked.recorded:
                await self._policies.save(ticked.policy.revision)


def _spare_the_collector() -> None:
    """Leave what the start has made out of every later garbage collection.

    A full collection over the modules, message classes and solver bindings takes longer than a whole decision.
    """
    gc.collect()
    gc.freeze()
