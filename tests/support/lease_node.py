"""A node in virtual time around the real lease keeper: drivers, a disk and a clock that the test moves.

Nothing completes by itself: writes, reads and saves stay under way until the test finishes them, so that every
order of events can be had.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rackpower_agent.lease.events import (
    Action,
    BatchReceived,
    CapRead,
    CapReadFailed,
    DeviceHung,
    Event,
    FormerWriterGone,
    JournalFailed,
    Journalled,
    Note,
    ReadCap,
    ReportSoon,
    SaveJournal,
    Tell,
    Tick,
    WriteCap,
    WriteLate,
    WriteReturned,
)
from rackpower_agent.lease.keeper import LeaseKeeper
from rackpower_agent.lease.memory import JournalImage, Memory
from rackpower_agent.lease.state import DEFAULT_LIMITS, Limits
from rackpower_common.model.device import Device, Vendor
from rackpower_common.model.identity import GpuId, Term
from rackpower_common.model.messages import Grant, GrantBatch, Holding, Renewal, WriteError, WriteFailure

MIN_W, MAX_W, DEFAULT_W = 200, 1000, 1000


def device(name: str = "GPU-0", /, **changes: object) -> Device:
    """Return a GPU of 200 to 1,000 W that comes up at 1,000 W."""
    base = Device(GpuId(name), Vendor.NVIDIA, "Test GPU", "0000:01:00.0", MIN_W, MAX_W, DEFAULT_W)
    return replace(base, **changes)  # type: ignore[arg-type]


def term(number: int = 1, instance: str = "a") -> Term:
    """Return a term."""
    return Term(number, instance)


def grant(sequence: int, cap_w: int, *, fallback_w: int = 300, lease_s: float = 15.0, gpu: str = "GPU-0") -> Grant:
    """Return a grant."""
    return Grant(GpuId(gpu), cap_w, fallback_w, lease_s, sequence)


@dataclass
class Driver:
    """The truth of one GPU: what was asked for, and the limit that a BMC sets above us; `history` is all it held."""

    requested_w: int = DEFAULT_W
    bmc_w: int = 10_000
    under_way: list[WriteCap] = field(default_factory=list)
    landed: list[int] = field(default_factory=list)
    history: list[int] = field(default_factory=lambda: [DEFAULT_W])

    def hold(self, cap_w: int) -> None:
        """Take a cap, whoever set it."""
        self.requested_w = cap_w
        self.history.append(cap_w)

    @property
    def enforced_w(self) -> int:
        """Return what the hardware enforces."""
        return min(self.requested_w, self.bmc_w)


@dataclass(frozen=True)
class Raise:
    """A write above what the driver held, with the disk and the time at which it was issued."""

    write: WriteCap
    disk: JournalImage | None
    at_s: float


class LeaseNode:
    """One node: `keeper` is the real one; drivers, disk and time belong to the test."""

    def __init__(self, *devices: Device, boot_id: str = "boot-1", limits: Limits = DEFAULT_LIMITS) -> None:
        self.devices = devices or (device(),)
        self.drivers = {each.gpu: Driver() for each in self.devices}
        self.boot_id = boot_id
        self.limits = limits
        self.now_s = 100.0
        self.disk: JournalImage | None = None
        self.disk_full = False
        self.saving: SaveJournal | None = None
        self.reads: list[tuple[GpuId, float]] = []
        self.told: list[WriteError] = []
        self.notes: list[Note] = []
        self.reports_asked = 0
        self.raises: list[Raise] = []
        self.keeper = self._new_keeper(Memory(None))

    def _new_keeper(self, memory: Memory) -> LeaseKeeper:
        return LeaseKeeper(self.devices, memory, self.boot_id, self.now_s, self.limits)

    def start(self) -> None:
        """Start the keeper: first reads and the first save are under way."""
        self._carry_out(self.keeper.start(self.now_s))

    def feed(self, event: Event) -> tuple[Action, ...]:
        """Give the keeper an event and put its actions under way."""
        actions = self.keeper.handle(event, self.now_s)
        self._carry_out(actions)
        return actions

    def _carry_out(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            match action:
                case WriteCap():
                    driver = self.drivers[action.gpu]
                    assert not driver.under_way, "a second write while one has not returned"
                    if action.cap_w > driver.requested_w:
                        self.raises.append(Raise(action, self.disk, self.now_s))
                    driver.under_way.append(action)
                case ReadCap():
                    self.reads.append((action.gpu, self.now_s))
                case SaveJournal():
                    assert self.saving is None, "a second save while one is under way"
                    self.saving = action
                case Tell():
                    self.told.append(action.error)
                case Note():
                    self.notes.append(action)
                case ReportSoon():
                    self.reports_asked += 1

    def finish_write(
        self, gpu: str = "GPU-0", failure: WriteFailure | None = None, *, lands: bool | None = None
    ) -> None:
        """Let the write under way return; it takes effect unless it failed, or as `lands` says."""
        driver = self.drivers[GpuId(gpu)]
        write = driver.under_way.pop(0)
        if lands if lands is not None else failure is None:
            driver.hold(write.cap_w)
            driver.landed.append(write.cap_w)
        self.feed(WriteReturned(write.gpu, write.number, failure, "" if failure is None else "driver says no"))

    def finish_read(self, *, fails: bool = False) -> None:
        """Let the oldest read under way return."""
        gpu, started_s = self.reads.pop(0)
        driver = self.drivers[gpu]
        if fails:
            self.feed(CapReadFailed(gpu, WriteFailure.UNKNOWN, "read failed"))
        else:
            self.feed(CapRead(gpu, driver.requested_w, driver.enforced_w, started_s))

    def finish_save(self) -> None:
        """Let the save under way reach the disk, or fail when it is full."""
        save = self.saving
        assert save is not None
        self.saving = None
        if self.disk_full:
            self.feed(JournalFailed(save.revision, "no space left on device"))
        else:
            self.disk = save.image
            self.feed(Journalled(save.revision))

    def settle(self) -> None:
        """Finish everything under way until nothing is."""
        for _ in range(200):
            if self.saving is not None:
                self.finish_save()
            elif self.reads:
                self.finish_read()
            elif busy := [gpu for gpu, driver in self.drivers.items() if driver.under_way]:
                self.finish_write(busy[0])
            else:
                return
        raise AssertionError("the keeper does not come to rest")

    def settle_reads(self) -> None:
        """Finish saves and reads, but leave writes under way."""
        while self.reads or self.saving is not None:
            if self.saving is not None:
                self.finish_save()
            else:
                self.finish_read()

    def poll(self) -> None:
        """Read every cap, as the shell does once a second, and settle."""
        self.reads.extend((gpu, self.now_s) for gpu in self.drivers)
        self.settle()

    def poll_without_writes(self) -> None:
        """Read every cap and save, but leave writes under way."""
        self.reads.extend((gpu, self.now_s) for gpu in self.drivers)
        self.settle_reads()

    def pass_time(self, duration_s: float) -> None:
        """Move the clock and tick."""
        self.now_s += duration_s
        self.feed(Tick())

    def send(self, *grants: Grant, renewals: tuple[Renewal, ...] = (), by: Term | None = None) -> None:
        """Deliver a batch."""
        self.feed(BatchReceived(GrantBatch(by or term(), grants, renewals)))

    def renew(self, sequence: int, lease_s: float = 15.0, *, by: Term | None = None, gpu: str = "GPU-0") -> None:
        """Deliver one renewal."""
        self.send(renewals=(Renewal(GpuId(gpu), sequence, lease_s),), by=by)

    def hang(self, gpu: str = "GPU-0") -> None:
        """Let the write under way pass its deadline."""
        write = self.drivers[GpuId(gpu)].under_way[0]
        self.feed(WriteLate(write.gpu, write.number))
        self.feed(DeviceHung(write.gpu))

    def holding(self, gpu: str = "GPU-0") -> Holding:
        """Return what the keeper says it holds."""
        return self.keeper.holding(GpuId(gpu), self.now_s)

    def cap_w(self, gpu: str = "GPU-0") -> int:
        """Return the driver's cap: the truth."""
        return self.drivers[GpuId(gpu)].requested_w

    def crash(self, *, journal_lost: bool = False, writer_alive: bool = False) -> None:
        """Kill the agent process and start another; writes under way land now, or later while the writer lives."""
        self.saving = None
        self.reads.clear()
        if not writer_alive:
            self.late_writes_land()
        memory = Memory(None if journal_lost else self.disk, former_writer_alive=writer_alive)
        self.keeper = self._new_keeper(memory)
        self.start()

    def late_writes_land(self) -> None:
        """Let the dead process's writes take effect."""
        for driver in self.drivers.values():
            for write in driver.under_way:
                driver.hold(write.cap_w)
            driver.under_way.clear()

    def writer_leaves(self) -> None:
        """Let the dead process's writes land and tell the keeper that it has left the kernel."""
        self.late_writes_land()
        self.feed(FormerWriterGone())

    def reboot(self) -> None:
        """Power-cycle the node: drivers come up at the default cap, under a new boot id."""
        self.boot_id += "+"
        self.now_s = 5.0
        for driver in self.drivers.values():
            driver.hold(DEFAULT_W)
            driver.under_way.clear()
        self.crash()
