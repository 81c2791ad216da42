"""One thread a GPU: vendor calls may block or hang there, and nobody else waits for them.

Caps are written and read when asked, writes first; sensors are read by the sampler's thread, between them. A GPU gets
one call at a time. One that passes its deadline makes it count as hung: no further call until that one returns.
"""

from __future__ import annotations

import heapq
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rackpower_agent.devices.base import DeviceError, Gpu, Sample
from rackpower_agent.lease.events import (
    CapRead,
    CapReadFailed,
    DeviceBack,
    DeviceHung,
    Event,
    WriteLate,
    WriteReturned,
)
from rackpower_common.clock import Clock
from rackpower_common.model.device import Device, PowerReading
from rackpower_common.model.identity import GpuId
from rackpower_common.model.messages import WriteFailure

DEADLINE_S: Final = 2.0
"""A call that has not returned after so long may never do."""

SAMPLES_PER_DETAIL: Final = 10
"""Energy, heat and what limits a GPU change slowly and cost driver calls: once a second."""

_WRITE, _READ, _STOP = 0, 1, 2


@dataclass(order=True, slots=True)
class _Job:
    """A call to make; the smaller urgency first, then in order."""

    urgency: int
    order: int
    cap_w: int = field(compare=False, default=0)
    number: int = field(compare=False, default=0)


class Sampled(NamedTuple):
    """What sensors showed last. A tuple, since one is made at every reading.

    `power` is the newest reading of the power, `sample` of all else, `at_s` and `sample_at_s` when the calls that
    brought them returned, `highest_instant_w` the highest since it was last taken away.
    """

    power: PowerReading | None
    sample: Sample | None
    at_s: float
    sample_at_s: float
    highest_instant_w: int | None
    error: str
    errors: int
    samples: int
    duration_s: float


_NOTHING: Final = Sampled(None, None, 0.0, 0.0, None, "not sampled yet", 0, 0, 0.0)


class DeviceWorker:
    """The thread of one GPU.

    Args:
        gpu: The GPU.
        clock: Time.
        post: Takes an event for the lease keeper; called from other threads, must be safe there.
        place: Which of the node's GPUs it is, so that not all read their slow sensors at the same time.
    """

    def __init__(self, gpu: Gpu, clock: Clock, post: Callable[[Event], None], place: int = 0) -> None:
        self._gpu = gpu
        self._clock = clock
        self._post = post
        self._place = place
        self._turn = threading.Lock()  # held while a call is made: the driver sees one at a time
        self._jobs: list[_Job] = []
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._order = 0
        self._call: tuple[float, _Job | None] | None = None
        self._told_late = False
        self._sampled = _NOTHING
        self._lock = threading.Lock()
        self._reading = False
        name = gpu.device.gpu[-8:]
        self._thread = threading.Thread(target=self._run, name=f"gpu-{name}", daemon=True)

    @property
    def gpu(self) -> GpuId:
        """Return the GPU's UUID."""
        return self._gpu.device.gpu

    @property
    def device(self) -> Device:
        """Return who the GPU is."""
        return self._gpu.device

    @property
    def hung(self) -> bool:
        """Whether a call has passed its deadline and not returned."""
        return self._told_late

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def write(self, cap_w: int, number: int) -> None:
        """Ask for a cap; `WriteReturned` follows, after a `WriteLate` if it takes too long."""
        self._put(_WRITE, cap_w, number)

    def read(self) -> None:
        """Read the caps back; `CapRead` or `CapReadFailed` follows. One read waits at most."""
        with self._lock:
            if self._reading:
                return
            self._reading = True
        self._put(_READ)

    def stop(self) -> None:
        """End the thread after the call in flight; never waits."""
        self._put(_STOP)

    def take(self) -> Sampled:
        """Return the newest sample; the highest instant power counts anew from here."""
        with self._lock:
            taken = self._sampled
            self._sampled = taken._replace(highest_instant_w=None)
        return taken

    @property
    def sampling_since_s(self) -> float | None:
        """Return when the reading of sensors that is under way began, None without one."""
        with self._lock:
            call = self._call
        return call[0] if call is not None and call[1] is None else None

    def sample(self) -> None:
        """Read the sensors now, on the caller's thread; not at all while another call is under way."""
        if self._turn.acquire(blocking=False):
            try:
                self._timed(None, self._sample)
            finally:
                self._turn.release()

    def peek(self) -> Sampled:
        """Return the newest sample and leave it as it is."""
        with self._lock:
            return self._sampled

    def check(self, now_s: float) -> list[Event]:
        """Return what to tell the keeper about a call that takes too long; to be called a few times a second."""
        with self._lock:
            call, told = self._call, self._told_late
            if call is None or told or now_s - call[0] <= DEADLINE_S:
                return []
            self._told_late = True
        job = call[1]
        late: list[Event] = [WriteLate(self.gpu, job.number)] if job is not None and job.urgency == _WRITE else []
        return [*late, DeviceHung(self.gpu)]

    def _put(self, urgency: int, cap_w: int = 0, number: int = 0) -> None:
        with self._lock:
            self._order += 1
            heapq.heappush(self._jobs, _Job(urgency, self._order, cap_w, number))
        self._wake.put(None)

    def _run(self) -> None:
        while True:
            self._wake.get()
            with self._turn:
                with self._lock:
                    job = heapq.heappop(self._jobs)
                if job.urgency == _STOP:
                    return
                if job.urgency == _WRITE:
                    self._timed(job, lambda _, job=job: self._write(job))  # type: ignore[misc]
                else:
                    self._timed(job, self._read)

    def _timed(self, job: _Job | None, call: Callable[[float], Event | None]) -> None:
        """Make a call, which is told when it began, and post what came of it."""
        began_s = self._clock.now_s()
        with self._lock:
            self._call = (began_s, job)
        event = call(began_s)
        with self._lock:
            self._call = None
            was_late, self._told_late = self._told_late, False
        if event is not None:
            self._post(event)
        if was_late:
            self._post(DeviceBack(self.gpu))

    def _write(self, job: _Job) -> Event:
        try:
            self._gpu.write_cap(job.cap_w)
        except DeviceError as error:
            return WriteReturned(self.gpu, job.number, error.reason, str(error))
        except Exception as error:  # noqa: BLE001 - a vendor library may raise anything
            return WriteReturned(self.gpu, job.number, WriteFailure.UNKNOWN, f"{type(error).__name__}: {error}")
        return WriteReturned(self.gpu, job.number)

    def _read(self, began_s: float) -> Event:
        with self._lock:
            self._reading = False
        try:
            caps = self._gpu.read_cap()
        except DeviceError as error:
            return CapReadFailed(self.gpu, error.reason, str(error))
        except Exception as error:  # noqa: BLE001 - a vendor library may raise anything
            return CapReadFailed(self.gpu, WriteFailure.UNKNOWN, f"{type(error).__name__}: {error}")
        return CapRead(self.gpu, caps.requested_w, caps.enforced_w, began_s)

    def _sample(self, began_s: float) -> None:
        """Read the power; with every tenth reading all else too."""
        old = self._sampled
        sample, power, words = old.sample, None, ""
        try:
            if sample is None or (old.samples + self._place) % SAMPLES_PER_DETAIL == 0:
                sample = self._gpu.sample()
                power = sample.power
            else:
                power = self._gpu.read_power()
        except DeviceError as error:
            words = str(error)
        except Exception as error:  # noqa: BLE001 - a vendor library may raise anything
            words = f"{type(error).__name__}: {error}"
        now_s = self._clock.now_s()
        instant_w = power.instant_w if power is not None else None
        with self._lock:
            old = self._sampled
            highest_w = old.highest_instant_w
            if instant_w is not None and (highest_w is None or instant_w > highest_w):
                highest_w = instant_w
            self._sampled = Sampled(
                power if power is not None else old.power,
                sample,
                now_s if power is not None else old.at_s,
                now_s if sample is not old.sample else old.sample_at_s,
                highest_w,
                words,
                old.errors + bool(words),
                old.samples + 1,
                now_s - began_s,
            )
