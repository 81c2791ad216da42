"""An agent's shell on virtual time: the real `LeaseKeeper` between a lossy stream, slow drivers and a disk."""

from __future__ import annotations

from collections.abc import Callable

from rackpower_agent.lease.events import (
    Action,
    BatchReceived,
    CapRead,
    Event,
    FormerWriterGone,
    Journalled,
    ReadCap,
    Reported,
    ReportSoon,
    SaveJournal,
    Tell,
    Tick,
    Welcomed,
    WriteCap,
    WriteLate,
    WriteReturned,
)
from rackpower_agent.lease.keeper import LeaseKeeper
from rackpower_agent.lease.memory import JournalImage, Memory
from rackpower_common.model.identity import GpuId, NodeName
from rackpower_common.model.messages import (
    PROTOCOL_VERSION,
    AgentMessage,
    ControllerGoodbye,
    GpuReport,
    GrantBatch,
    Hello,
    Report,
    Welcome,
)
from rackpower_sim.world.hardware import Node
from rackpower_sim.world.link import Network, Stream
from rackpower_sim.world.scheduler import Scheduler

WRITE_S = (0.005, 0.2)
"""How long a driver takes to set a cap."""

SLOW_WRITE_S = (2.5, 6.0)
"""How long it takes now and then."""

SLOW_WRITE_SHARE = 0.01
"""How often that is."""

WRITE_DEADLINE_S = 2.0
"""When the agent's worker calls a write late."""

SAVE_S = (0.001, 0.05)
"""How long the disk takes."""

READ_S = (0.001, 0.02)
"""How long the driver takes to tell its cap."""

POLL_S = 0.5
"""How often caps are read back."""

LOAD_S = 5.0
"""How long a server takes at least from the start of its unit to its first work."""

FORMER_WRITER_S = 7.0
"""How long a killed process may still be inside a driver call."""


class AgentShell:
    """One node's agent. `dial` gives a stream to a controller that serves now, or None."""

    def __init__(self, node: Node, network: Network, time: Scheduler, dial: Callable[[str], Stream | None]) -> None:
        self.node = node
        self.network = network
        self.time = time
        self.dial = dial
        self.disk: JournalImage | None = None
        self.alive = False
        self.life = 0
        self.keeper: LeaseKeeper | None = None
        self.stream: Stream | None = None
        self.sequence = 0
        self.heard_s = 0.0
        self.killed_s = float("-inf")

    def start(self) -> None:
        """Start the process: from the journal, before READY."""
        if self.alive:
            return
        self.alive = True
        self.life += 1
        devices = [true.device for true in self.node.gpus.values()]
        self.keeper = LeaseKeeper(devices, self._memory(), self.node.boot_id, self.time.now_s)
        self._carry_out(self.keeper.start(self.time.now_s))
        self._every(POLL_S, self._poll)
        self._every(1.0, self._report)
        self.time.after(0.2, self._guard(self._reconnect))

    def _memory(self) -> Memory:
        return Memory(self.disk, former_writer_alive=self.time.now_s - self.killed_s < FORMER_WRITER_S)

    def kill(self) -> None:
        """Kill the process: what was in memory is gone, driver calls under way still take effect."""
        self.killed_s = self.time.now_s
        self.alive = False
        self.life += 1
        self.keeper = None
        self._hang_up()

    def _guard(self, action: Callable[[], None]) -> Callable[[], None]:
        life = self.life
        return lambda: action() if self.alive and self.life == life else None

    def _every(self, period_s: float, action: Callable[[], None]) -> None:
        def again() -> None:
            action()
            self.time.after(period_s, self._guard(again))

        self.time.after(self.time.between(0.0, period_s), self._guard(again))

    def _handle(self, event: Event) -> None:
        if self.keeper is not None:
            self._carry_out(self.keeper.handle(event, self.time.now_s))
            if self.keeper.ready() and not self.node.may_work:
                self.time.after(LOAD_S, self._work_from(self.node.boots))

    def _work_from(self, boots: int) -> Callable[[], None]:
        def begin() -> None:
            if self.node.boots == boots:
                self.node.may_work = True

        return begin

    def _carry_out(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            match action:
                case WriteCap():
                    self._write(action)
                case ReadCap():
                    self._read(action.gpu)
                case SaveJournal():
                    self._save(action)
                case Tell():
                    self._send(action.error)
                case ReportSoon():
                    self.time.after(0.01, self._guard(self._report))
                case _:
                    pass

    def _write(self, action: WriteCap) -> None:
        slow = self.time.random.random() < SLOW_WRITE_SHARE
        took_s = self.time.between(*(SLOW_WRITE_S if slow else WRITE_S))
        boot = self.node.boots
        effect_s = self.time.between(0.0, took_s)

        def take_effect() -> None:
            if self.node.boots == boot:
                self.node.write(action.gpu, action.cap_w)

        self.time.after(effect_s, take_effect)
        if took_s > WRITE_DEADLINE_S:
            self.time.after(WRITE_DEADLINE_S, self._guard(lambda: self._handle(WriteLate(action.gpu, action.number))))
        self.time.after(took_s, self._guard(lambda: self._handle(WriteReturned(action.gpu, action.number))))

    def _read(self, gpu: GpuId) -> None:
        started_s = self.time.now_s

        def answer() -> None:
            true = self.node.gpus[gpu]
            self._handle(CapRead(gpu, true.requested_w, true.enforced_w, started_s))

        self.time.after(self.time.between(*READ_S), self._guard(answer))

    def _save(self, action: SaveJournal) -> None:
        def saved() -> None:
            self.disk = action.image
            self._handle(Journalled(action.revision))

        self.time.after(self.time.between(*SAVE_S), self._guard(saved))

    def _poll(self) -> None:
        self._handle(Tick())
        for gpu in self.node.gpus:
            self._read(gpu)
        if self.stream is None or not self.stream.open_for_agent or self.time.now_s - self.heard_s > 5.0:
            self._reconnect()

    def former_writer_gone(self) -> None:
        """Tell the keeper that the process before it has left the kernel."""
        self._handle(FormerWriterGone())

    def _reconnect(self) -> None:
        self._hang_up()
        stream = self.dial(self.node.name)
        if stream is None or self.keeper is None:
            return
        self.stream = stream
        self.sequence = 0
        self.heard_s = self.time.now_s
        life = self.life
        stream.to_agent = lambda message: self._received(message) if self.life == life else None
        keeper, now_s = self.keeper, self.time.now_s
        hello = Hello(
            protocol_version=PROTOCOL_VERSION,
            node=NodeName(self.node.name),
            agent_version="world",
            boot_id=self.node.boot_id,
            agent_instance=f"{self.node.name}-{self.life}",
            devices=tuple(true.device for true in self.node.gpus.values()),
            devices_complete=True,
            holdings=keeper.holdings(now_s),
            highest_term=keeper.highest_term,
            journal_read=keeper.journal_read,
        )
        self._send(hello)

    def _hang_up(self) -> None:
        if self.stream is not None:
            self.stream.open_for_agent = False
        self.stream = None

    def _received(self, message: object) -> None:
        self.heard_s = self.time.now_s
        match message:
            case Welcome():
                self._handle(Welcomed(message.term))
            case GrantBatch():
                self._handle(BatchReceived(message))
            case ControllerGoodbye():
                self._hang_up()
            case _:
                pass

    def _send(self, message: AgentMessage) -> None:
        if self.stream is not None:
            self.network.to_controller(self.stream, message)

    def _report(self) -> None:
        if self.keeper is None or self.stream is None:
            return
        self.sequence += 1
        now_s = self.time.now_s
        lines = tuple(
            GpuReport(self.keeper.holding(gpu, now_s), self.node.reading(gpu), limit_reason=self.node.limit_reason(gpu))
            for gpu in self.node.gpus
        )
        self._send(Report(self.sequence, lines, self.keeper.highest_term))
        self._handle(Reported())
