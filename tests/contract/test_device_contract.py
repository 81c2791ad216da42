"""What every backend of GPUs must do, whoever made them: one suite, run over each that can run here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rackpower_agent.devices.base import Backend, BackendUnavailable, DeviceError, Gpu
from rackpower_sim.devices import SimulatedBackend
from rackpower_sim.machine import Machine
from rackpower_sim.node_layout import SampleMode, WriteMode
from rackpower_sim.physics_facts import STEP_S
from rackpower_sim.rack import Rack
from rackpower_sim.shared_state import NodeFile, boot_clock_s, node_path
from support.sim_racks import small_rack
from support.waiting import wait_until

PATIENCE_S = 10.0


@dataclass
class Bench:
    """A backend with its options, and hands on its hardware."""

    backend: Backend
    options: dict[str, str]
    refuse: Callable[[int], None]
    fail_sensors: Callable[[int], None]
    override: Callable[[int, int], None]


@contextmanager
def simulated(folder: Path) -> Iterator[Bench]:
    """Run simulated hardware in a thread."""
    scenario = small_rack(nodes=1, gpus=3)
    rack = Rack(Machine(scenario, None), folder, boot_clock_s())
    stop = threading.Event()

    def move() -> None:
        while not stop.wait(STEP_S / 5):
            rack.advance(1)

    thread = threading.Thread(target=move)
    thread.start()
    path = node_path(folder, scenario.nodes[0].name)
    node = NodeFile.open(path)
    backend = SimulatedBackend()
    try:
        yield Bench(
            backend,
            {"path": str(path)},
            lambda index: node.fail_writes(index, WriteMode.REFUSE),
            lambda index: node.fail_samples(index, SampleMode.FAIL),
            node.override,
        )
    finally:
        backend.close()
        stop.set()
        thread.join(PATIENCE_S)
        rack.close()


@pytest.fixture(params=[simulated])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """Return a backend whose hardware runs."""
    with request.param(tmp_path) as running:
        yield running


def opened(bench: Bench) -> tuple[Gpu, ...]:
    """Return the GPUs of a complete listing."""
    listing = bench.backend.open(bench.options)
    assert listing.complete
    return listing.gpus


def test_devices_say_who_they_are_the_same_at_every_listing(bench: Bench) -> None:
    """UUIDs are there, apart, and in a stable order; bounds make sense."""
    devices = [gpu.device for gpu in opened(bench)]
    assert len({device.gpu for device in devices}) == len(devices) > 0
    for device in devices:
        assert device.gpu
        assert device.model
        assert device.pci_address
        assert device.cappable
        assert device.min_cap_w is not None
        assert device.max_cap_w is not None
        assert device.default_cap_w is not None
        assert 0 < device.min_cap_w <= device.default_cap_w <= device.max_cap_w
    assert [gpu.device for gpu in opened(bench)] == devices


def test_a_cap_that_was_accepted_is_read_back(bench: Bench) -> None:
    """Smallest, largest and one between: asked for and enforced are what was written, in whole watts."""
    for gpu in opened(bench):
        low_w, high_w = gpu.device.min_cap_w or 0, gpu.device.max_cap_w or 0
        for cap_w in (low_w, (low_w + high_w) // 2, high_w):
            gpu.write_cap(cap_w)
            found = gpu.read_cap()
            assert (found.requested_w, found.enforced_w) == (cap_w, cap_w)


def test_a_write_touches_its_own_gpu_only(bench: Bench) -> None:
    """Indices are never mixed up."""
    gpus = opened(bench)
    caps_w = [(gpu.device.min_cap_w or 0) + index for index, gpu in enumerate(gpus)]
    for gpu, cap_w in zip(reversed(gpus), reversed(caps_w), strict=True):
        gpu.write_cap(cap_w)
    assert [gpu.read_cap().enforced_w for gpu in gpus] == caps_w


def test_a_cap_outside_the_bounds_is_refused_and_changes_nothing(bench: Bench) -> None:
    """A device error with a reason, not a clamp that nobody hears of."""
    gpu = opened(bench)[0]
    gpu.write_cap(gpu.device.min_cap_w or 0)
    for cap_w in ((gpu.device.min_cap_w or 0) - 1, (gpu.device.max_cap_w or 0) + 1):
        with pytest.raises(DeviceError):
            gpu.write_cap(cap_w)
        assert gpu.read_cap().requested_w == gpu.device.min_cap_w


def test_a_refusal_is_a_device_error_that_names_the_gpu(bench: Bench) -> None:
    """Whoever reads the log knows which one."""
    gpu = opened(bench)[0]
    bench.refuse(0)
    with pytest.raises(DeviceError, match=str(gpu.device.gpu)):
        gpu.write_cap(gpu.device.min_cap_w or 0)


def test_power_and_sample_agree_and_have_ages(bench: Bench) -> None:
    """Whole watts within what the device can draw, a window and an age that are times."""
    for gpu in opened(bench):
        sample, power = gpu.sample(), gpu.read_power()
        for reading in (sample.power, power):
            assert reading.no_data is None
            assert isinstance(reading.average_w, int)
            assert 0 <= reading.average_w <= 2 * (gpu.device.max_cap_w or 0)
            assert reading.window_s >= 0
            assert 0 <= reading.age_s < PATIENCE_S
        assert power.window_s == sample.power.window_s


def test_energy_never_falls(bench: Bench) -> None:
    """A counter counts up."""
    gpu = opened(bench)[0]
    readings = [gpu.sample().energy_j for _ in range(5)]
    assert None not in readings
    assert readings == sorted(energy_j or 0.0 for energy_j in readings)


def test_a_sensor_that_fails_is_a_device_error_and_caps_go_on(bench: Bench) -> None:
    """Reading power and holding a cap are two things."""
    gpu = opened(bench)[0]
    bench.fail_sensors(0)
    with pytest.raises(DeviceError, match=str(gpu.device.gpu)):
        gpu.sample()
    with pytest.raises(DeviceError, match=str(gpu.device.gpu)):
        gpu.read_power()
    gpu.write_cap(gpu.device.min_cap_w or 0)
    assert gpu.read_cap().enforced_w == gpu.device.min_cap_w


def test_a_cap_changed_by_somebody_else_is_seen(bench: Bench) -> None:
    """Reading asks the driver, not our memory."""
    gpu = opened(bench)[0]
    gpu.write_cap(gpu.device.min_cap_w or 0)
    bench.override(0, gpu.device.max_cap_w or 0)
    most_w = gpu.device.max_cap_w
    wait_until(lambda: gpu.read_cap().enforced_w == most_w, within_s=PATIENCE_S, what="the other's cap")


def test_a_backend_whose_hardware_is_not_there_says_so(bench: Bench, tmp_path: Path) -> None:
    """The agent waits for it: unavailable, in words, not a crash."""
    with pytest.raises(BackendUnavailable, match=r".+"):
        bench.backend.open({key: str(tmp_path / "missing") for key in bench.options} or {})


def test_closing_twice_is_no_mistake_and_a_closed_backend_opens_again(bench: Bench) -> None:
    """A driver reload is a close and an open."""
    opened(bench)
    bench.backend.close()
    bench.backend.close()
    assert opened(bench)[0].read_cap().enforced_w is not None
