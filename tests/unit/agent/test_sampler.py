"""One thread reads all sensors in turn; one reading that hangs does not keep the others from theirs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rackpower_agent.devices.sampler import STUCK_S, Sampler
from rackpower_agent.devices.worker import DeviceWorker
from support.gpu_fake import PATIENCE_S, FakeGpu, HandClock, Heard
from support.lease_node import device
from support.waiting import wait_until

OFTEN_S = 0.01


@contextmanager
def sampled(clock: HandClock, *gpus: FakeGpu) -> Iterator[tuple[Sampler, list[DeviceWorker]]]:
    """Sample GPUs; whatever hangs is let go at the end, and every thread ends."""
    wait_until(lambda: not threads(), within_s=PATIENCE_S, what="the end of other tests' threads")
    workers = [DeviceWorker(gpu, clock, Heard(), place) for place, gpu in enumerate(gpus)]
    sampler = Sampler(workers, clock, OFTEN_S)
    sampler.start()
    try:
        yield sampler, workers
    finally:
        sampler.stop()
        for gpu in gpus:
            gpu.sampling.open()
        wait_until(lambda: not threads(), within_s=PATIENCE_S, what="the threads' end")


def threads() -> list[threading.Thread]:
    """Return the sampler threads that live."""
    return [thread for thread in threading.enumerate() if thread.name == "sampler"]


def grows(gpu: FakeGpu) -> None:
    """Wait until a GPU's sensors are read once more."""
    before = gpu.power_reads
    wait_until(lambda: gpu.power_reads > before, within_s=PATIENCE_S, what="one more reading")


def test_every_gpu_is_read_again_and_again_by_one_thread() -> None:
    """However many there are."""
    gpus = [FakeGpu(device(f"GPU-{place}")) for place in range(3)]
    with sampled(HandClock(), *gpus):
        for gpu in gpus:
            grows(gpu)
        assert len(threads()) == 1


def test_a_reading_that_hangs_is_left_to_its_thread_and_another_goes_on() -> None:
    """Half a second later the others are read again; the stuck thread ends when its call returns."""
    clock, hung, fine = HandClock(), FakeGpu(device("GPU-0")), FakeGpu(device("GPU-1"))
    with sampled(clock, hung, fine) as (sampler, workers):
        grows(fine)
        hung.sampling.close()
        hung.sampling.wait_for_a_call()
        sampler.check(clock.now_s() + STUCK_S)
        assert len(threads()) == 1
        sampler.check(clock.now_s() + STUCK_S + 0.1)
        clock.at_s += 60.0
        grows(fine)
        for _ in range(5):
            grows(fine)
            sampler.check(clock.now_s())
        assert len(threads()) == 2
        assert workers[0].sampling_since_s == clock.now_s() - 60.0
        hung.sampling.open()
        grows(hung)
        wait_until(lambda: len(threads()) == 1, within_s=PATIENCE_S, what="the stuck thread's end")


def test_one_after_another_may_hang_and_the_last_is_still_read() -> None:
    """One thread for each that hangs, and one for the rest."""
    clock = HandClock()
    gpus = [FakeGpu(device(f"GPU-{place}")) for place in range(3)]
    with sampled(clock, *gpus) as (sampler, _):
        for hung in gpus[:2]:
            hung.sampling.close()
            hung.sampling.wait_for_a_call()
            sampler.check(clock.now_s() + STUCK_S + 0.1)
            grows(gpus[2])
        assert len(threads()) == 3


def test_a_sampler_that_was_stopped_is_not_started_anew() -> None:
    """Also when a reading hangs at the end."""
    clock, hung = HandClock(), FakeGpu()
    with sampled(clock, hung) as (sampler, _):
        hung.sampling.close()
        hung.sampling.wait_for_a_call()
        sampler.stop()
        sampler.check(clock.now_s() + 60.0)
        assert len(threads()) == 1
