"""A GPU and a lease holder's surroundings with a memory: calls can be told to hang, refuse or lie."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from rackpower_agent.devices.base import BackendUnavailable, CapReading, DeviceError, Gpu, GpuProcess, Listing, Sample
from rackpower_agent.lease.events import Event
from rackpower_common.model.device import Device, PowerReading
from rackpower_common.model.messages import WriteFailure
from support.lease_node import DEFAULT_W, device

PATIENCE_S = 10.0
"""Only a failing test waits so long."""


@dataclass
class HandClock:
    """A clock that the test moves."""

    at_s: float = 100.0

    def now_s(self) -> float:
        """Return the test's time."""
        return self.at_s

    def unix_s(self) -> float:
        """Return a time for people."""
        return 1_700_000_000.0 + self.at_s


class Gate:
    """Where a call can be held: `close` it, see that a call `came`, `open` it."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.came = threading.Event()

    def close(self) -> None:
        """Hold every call from now on."""
        self.came.clear()
        self._open.clear()

    def open(self) -> None:
        """Let all calls go."""
        self._open.set()

    def wait_for_a_call(self) -> None:
        """Return once a call is held."""
        assert self.came.wait(PATIENCE_S), "no call came"

    def __call__(self) -> None:
        """Pass, or stay while the gate is closed."""
        if not self._open.is_set():
            self.came.set()
            assert self._open.wait(PATIENCE_S), "nobody opened the gate"


@dataclass
class FakeGpu:
    """A GPU that remembers every call. `writes` are those that returned, `begun` those that came."""

    device: Device = field(default_factory=device)
    requested_w: int | None = DEFAULT_W
    enforced_w: int | None = DEFAULT_W
    power: PowerReading = PowerReading(average_w=400, instant_w=410)
    begun: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    samples: int = 0
    power_reads: int = 0
    cap_reads: int = 0
    fails: Exception | None = None
    write_fails: Exception | None = None
    writing: Gate = field(default_factory=Gate)
    sampling: Gate = field(default_factory=Gate)
    sampled: threading.Event = field(default_factory=threading.Event)

    def sample(self) -> Sample:
        """Read all."""
        self.samples += 1
        return Sample(power=self.read_power(), energy_j=float(self.samples))

    def read_power(self) -> PowerReading:
        """Read the power."""
        self.sampling()
        self.power_reads += 1
        self.sampled.set()
        if self.fails is not None:
            raise self.fails
        return self.power

    def read_cap(self) -> CapReading:
        """Read the caps."""
        self.cap_reads += 1
        if self.fails is not None:
            raise self.fails
        return CapReading(self.requested_w, self.enforced_w)

    def processes(self) -> tuple[GpuProcess, ...]:
        """Nobody."""
        return ()

    def write_cap(self, cap_w: int) -> None:
        """Take a cap."""
        self.begun.append(cap_w)
        self.writing()
        if self.write_fails is not None:
            raise self.write_fails
        self.requested_w = self.enforced_w = cap_w
        self.writes.append(cap_w)


class Heard:
    """Events that were posted, from any thread."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        """Take an event."""
        with self._news:
            self.events.append(event)
            self._news.notify_all()

    def wait_for(self, *kinds: type[Event]) -> list[Event]:
        """Return the events once the last of them are of these kinds, in this order."""

        def heard() -> bool:
            return [type(event) for event in self.events[-len(kinds) :]] == list(kinds)

        with self._news:
            assert self._news.wait_for(heard, PATIENCE_S), f"heard {self.events}"
            return list(self.events)


@dataclass
class FakeBackend:
    """A backend that lists what the test gave it, after `absent` calls without a driver."""

    gpus: tuple[Gpu, ...] = ()
    complete: bool = True
    absent: int = 0
    name: str = "fake"
    opened: int = 0
    closed: int = 0

    def open(self, options: Mapping[str, str]) -> Listing:
        """List the GPUs."""
        self.opened += 1
        if self.opened <= self.absent:
            raise BackendUnavailable("the driver is not loaded")
        return Listing(self.gpus, self.complete, "" if self.complete else "1 of 2 answered")

    def close(self) -> None:
        """Remember it."""
        self.closed += 1


def refused(words: str = "the driver says no") -> DeviceError:
    """Return a driver's refusal."""
    return DeviceError(words, WriteFailure.REFUSED)
