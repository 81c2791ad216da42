"""The thread of one GPU: a driver call that hangs is told, gets no company, and is welcome back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rackpower_agent.devices.worker import DEADLINE_S, SAMPLES_PER_DETAIL, DeviceWorker
from rackpower_agent.lease.events import (
    CapRead,
    CapReadFailed,
    DeviceBack,
    DeviceHung,
    WriteLate,
    WriteReturned,
)
from rackpower_common.model.device import PowerReading
from rackpower_common.model.messages import WriteFailure
from support.gpu_fake import PATIENCE_S, FakeGpu, HandClock, Heard, refused
from support.lease_node import device


@contextmanager
def sampling(worker: DeviceWorker) -> Iterator[None]:
    """Read a worker's sensors on another thread, which ends before the block does."""
    thread = threading.Thread(target=worker.sample)
    thread.start()
    try:
        yield
    finally:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@contextmanager
def working(gpu: FakeGpu, clock: HandClock, heard: Heard) -> Iterator[DeviceWorker]:
    """Run a worker; whatever is held is let go at the end."""
    worker = DeviceWorker(gpu, clock, heard)
    worker.start()
    try:
        yield worker
    finally:
        gpu.writing.open()
        gpu.sampling.open()
        worker.stop()
        worker._thread.join(PATIENCE_S)
        assert not worker._thread.is_alive()


def test_a_write_returns_and_the_read_back_shows_it() -> None:
    """The driver took it: its number comes back, and a read tells what stands."""
    gpu, heard = FakeGpu(), Heard()
    with working(gpu, HandClock(), heard) as worker:
        worker.write(500, 7)
        assert heard.wait_for(WriteReturned) == [WriteReturned(worker.gpu, 7)]
        worker.read()
        assert heard.wait_for(WriteReturned, CapRead)[-1] == CapRead(worker.gpu, 500, 500, 100.0)


def test_a_refused_write_carries_the_drivers_reason_and_words() -> None:
    """A refusal is an event, not an exception."""
    gpu, heard = FakeGpu(write_fails=refused()), Heard()
    with working(gpu, HandClock(), heard) as worker:
        worker.write(500, 1)
        (returned,) = heard.wait_for(WriteReturned)
        assert returned == WriteReturned(worker.gpu, 1, WriteFailure.REFUSED, "the driver says no")


def test_whatever_a_vendors_library_raises_the_thread_goes_on() -> None:
    """An unknown error is told with its kind; the next call is made all the same."""
    gpu, heard = FakeGpu(fails=ZeroDivisionError("vendor bug"), write_fails=ZeroDivisionError("vendor bug")), Heard()
    with working(gpu, HandClock(), heard) as worker:
        worker.read()
        (failed,) = heard.wait_for(CapReadFailed)
        assert isinstance(failed, CapReadFailed)
        assert failed.detail == "ZeroDivisionError: vendor bug"
        worker.write(500, 1)
        assert heard.wait_for(CapReadFailed, WriteReturned)[-1] == WriteReturned(
            worker.gpu, 1, WriteFailure.UNKNOWN, "ZeroDivisionError: vendor bug"
        )
        gpu.fails = None
        worker.read()
        heard.wait_for(WriteReturned, CapRead)


def test_a_hung_write_is_late_once_then_returns_and_the_device_is_back() -> None:
    """Late and hung are told once, in this order; when the call returns, so are its end and the device's return."""
    gpu, heard, clock = FakeGpu(), Heard(), HandClock()
    gpu.writing.close()
    with working(gpu, clock, heard) as worker:
        worker.write(500, 3)
        gpu.writing.wait_for_a_call()
        clock.at_s += DEADLINE_S
        assert (worker.check(clock.now_s()), worker.hung) == ([], False)
        clock.at_s += 0.1
        assert worker.check(clock.now_s()) == [WriteLate(worker.gpu, 3), DeviceHung(worker.gpu)]
        assert (worker.check(clock.now_s() + 60), worker.hung) == ([], True)
        gpu.writing.open()
        assert heard.wait_for(WriteReturned, DeviceBack) == [WriteReturned(worker.gpu, 3), DeviceBack(worker.gpu)]
        assert not worker.hung


def test_a_hung_device_takes_no_second_write_until_the_first_returns() -> None:
    """Whatever is asked for waits behind the call that hangs; the driver never sees two at a time."""
    gpu, heard = FakeGpu(), Heard()
    gpu.writing.close()
    with working(gpu, HandClock(), heard) as worker:
        worker.write(500, 1)
        gpu.writing.wait_for_a_call()
        worker.write(300, 2)
        worker.read()
        assert gpu.begun == [500]
        gpu.writing.open()
        heard.wait_for(WriteReturned, WriteReturned, CapRead)
        assert gpu.writes == [500, 300]


def test_a_hung_sample_hangs_the_device_without_a_late_write() -> None:
    """A sensor that hangs is no write: the device counts as hung, nothing as late."""
    gpu, heard, clock = FakeGpu(), Heard(), HandClock()
    gpu.sampling.close()
    with working(gpu, clock, heard) as worker, sampling(worker):
        gpu.sampling.wait_for_a_call()
        assert worker.sampling_since_s == clock.now_s()
        assert worker.check(clock.now_s() + DEADLINE_S + 1) == [DeviceHung(worker.gpu)]
        gpu.sampling.open()
        assert heard.wait_for(DeviceBack) == [DeviceBack(worker.gpu)]


def test_other_devices_go_on_while_one_hangs() -> None:
    """Each GPU has a thread of its own."""
    hung, fine, heard, others, clock = FakeGpu(device("GPU-0")), FakeGpu(device("GPU-1")), Heard(), Heard(), HandClock()
    hung.writing.close()
    with working(hung, clock, heard) as one, working(fine, clock, others) as other:
        one.write(500, 1)
        hung.writing.wait_for_a_call()
        other.write(400, 2)
        assert others.wait_for(WriteReturned) == [WriteReturned(other.gpu, 2)]
        assert (hung.writes, fine.writes) == ([], [400])
        assert other.check(clock.now_s() + 60) == []


def test_writes_come_before_reads_and_reads_do_not_pile_up() -> None:
    """While a call is held, ten wishes to read are one, and a write that came after them is made first."""
    gpu, heard = FakeGpu(), Heard()
    gpu.sampling.close()
    with working(gpu, HandClock(), heard) as worker, sampling(worker):
        gpu.sampling.wait_for_a_call()
        for _ in range(10):
            worker.read()
        worker.write(500, 1)
        gpu.sampling.open()
        heard.wait_for(WriteReturned, CapRead)
        assert gpu.cap_reads == 1


def test_a_read_tells_when_it_began_not_when_it_ended() -> None:
    """Else a reading from before a write could pass for its read-back."""
    gpu, heard, clock = FakeGpu(), Heard(), HandClock(100.0)
    with working(gpu, clock, heard) as worker:
        worker.read()
        (read,) = heard.wait_for(CapRead)
        assert isinstance(read, CapRead)
        assert read.started_s == 100.0


def test_the_highest_instant_power_lasts_until_it_is_taken() -> None:
    """Ten samples a second, one report: the report tells the highest of them, once."""
    gpu = FakeGpu(power=PowerReading(average_w=400, instant_w=900))
    with working(gpu, HandClock(), Heard()) as worker:
        worker.sample()
        gpu.power = PowerReading(average_w=400, instant_w=100)
        worker.sample()
        assert worker.peek().highest_instant_w == 900
        assert worker.take().highest_instant_w == 900
        assert worker.take().highest_instant_w is None
        worker.sample()
        assert worker.take().highest_instant_w == 100


def test_power_is_read_at_every_turn_and_the_rest_at_every_tenth() -> None:
    """Energy, heat and what limits a GPU cost driver calls and change slowly."""
    gpu = FakeGpu()
    worker = DeviceWorker(gpu, HandClock(), Heard())
    for _ in range(2 * SAMPLES_PER_DETAIL):
        worker.sample()
    assert (gpu.samples, gpu.power_reads) == (2, 2 * SAMPLES_PER_DETAIL)


def test_a_failed_sample_keeps_the_last_one_with_its_time_and_says_why() -> None:
    """Old values stay old: they are not made new by a failure."""
    gpu, clock = FakeGpu(), HandClock(10.0)
    worker = DeviceWorker(gpu, clock, Heard())
    worker.sample()
    clock.at_s, gpu.fails = 11.0, refused("sensor gone")
    worker.sample()
    now = worker.peek()
    assert now.sample is not None
    assert (now.at_s, now.error, now.errors, now.samples) == (10.0, "sensor gone", 1, 2)


def test_slow_sensors_of_alike_gpus_are_not_read_in_the_same_round() -> None:
    """After the first round each GPU has its own turn for them: no round waits for all."""
    gpus = [FakeGpu(device(f"GPU-{place}")) for place in range(8)]
    workers = [DeviceWorker(gpu, HandClock(), Heard(), place) for place, gpu in enumerate(gpus)]
    counts = []
    for _ in range(SAMPLES_PER_DETAIL + 1):
        before = sum(gpu.samples for gpu in gpus)
        for worker in workers:
            worker.sample()
        counts.append(sum(gpu.samples for gpu in gpus) - before)
    assert counts[0] == 8
    assert max(counts[1:]) == 1


def test_sensors_are_passed_over_while_another_call_is_under_way() -> None:
    """A driver sees one call at a time: whoever samples does not wait."""
    gpu, heard = FakeGpu(), Heard()
    gpu.writing.close()
    with working(gpu, HandClock(), heard) as worker:
        worker.write(500, 1)
        gpu.writing.wait_for_a_call()
        worker.sample()
        assert (gpu.power_reads, worker.sampling_since_s) == (0, None)
        gpu.writing.open()
        heard.wait_for(WriteReturned)


def test_a_thread_that_was_told_to_stop_makes_the_writes_that_wait_and_ends() -> None:
    """A write that was asked for before is made: its number was promised."""
    gpu, heard = FakeGpu(), Heard()
    gpu.sampling.close()
    worker = DeviceWorker(gpu, HandClock(), heard)
    worker.start()
    with sampling(worker):
        gpu.sampling.wait_for_a_call()
        worker.write(300, 1)
        worker.stop()
        gpu.sampling.open()
        worker._thread.join(PATIENCE_S)
    assert not worker._thread.is_alive()
    assert gpu.writes == [300]
