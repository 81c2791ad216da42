"""The agent's `sim` device backend, token source and meter against simulated hardware that runs in real time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from rackpower_agent.devices.base import BackendUnavailable, DeviceError, Gpu
from rackpower_common.model.device import LimitReason
from rackpower_common.model.messages import WriteFailure
from rackpower_sim import inference, meters
from rackpower_sim.devices import SimulatedBackend
from rackpower_sim.machine import Machine
from rackpower_sim.node_layout import SampleMode, Slot, WriteMode
from rackpower_sim.physics_facts import SENSOR_WINDOW_S, STEP_S, TRACKING_LIMIT
from rackpower_sim.rack import Rack, boot_id_path, run
from rackpower_sim.scenario import Scenario
from rackpower_sim.shared_state import STALE_S, NodeFile, boot_clock_s, node_path
from support.sim_racks import saturated, small_rack
from support.waiting import async_wait_until, wait_until


@dataclass
class Running:
    """A rack that steps in a thread, and its first node: as agents and as tests see it."""

    scenario: Scenario
    folder: Path
    backend: SimulatedBackend
    gpus: tuple[Gpu, ...]
    node: NodeFile
    stop: threading.Event

    @property
    def options(self) -> dict[str, str]:
        """Return the options of the node's sources."""
        return {"path": str(self.node.path)}


def average_w(gpu: Gpu) -> int:
    """Return what a GPU's power sensor tells."""
    reading_w = gpu.read_power().average_w
    assert reading_w is not None
    return reading_w


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """Return a running rack of two nodes with two B200 or H100 each, under full load."""
    scenario = saturated(small_rack(2, 2))
    rack = Rack(Machine(scenario), tmp_path, boot_clock_s())
    stop = threading.Event()
    thread = threading.Thread(target=run, args=(rack, stop, False))
    thread.start()
    path = node_path(tmp_path, "node-2")  # H100
    backend, node = SimulatedBackend(), NodeFile.open(path)
    try:
        gpus = backend.open({"path": str(path)}).gpus
        wait_until(lambda: node.node().step > SENSOR_WINDOW_S / STEP_S, within_s=10, what="a full sensor window")
        yield Running(scenario, tmp_path, backend, gpus, node, stop)
    finally:
        backend.close()
        stop.set()
        thread.join()
        node.close()
        rack.close()


def test_devices_are_listed_with_their_bounds(running: Running) -> None:
    """Class, range and a UUID each, in a stable order."""
    devices = [gpu.device for gpu in running.gpus]
    truth = running.scenario.truth("h100")
    assert [device.gpu for device in devices] == [gpu.uuid for gpu in running.node.static.gpus]
    for device in devices:
        assert (device.model, device.vendor) == (truth.model, truth.vendor)
        assert (device.min_cap_w, device.max_cap_w, device.default_cap_w) == (200, 700, 700)


def test_a_cap_is_in_force_when_the_write_returns_and_the_draw_follows(running: Running) -> None:
    """Read back at once; settled within four seconds, a window later on the sensor."""
    gpu = running.gpus[0]
    assert gpu.read_cap().enforced_w == 700
    gpu.write_cap(300)
    cap = gpu.read_cap()
    assert (cap.requested_w, cap.enforced_w) == (300, 300)
    assert average_w(gpu) > 500  # one window is not over yet
    highest_w = 300 * (1 + TRACKING_LIMIT) + 1
    wait_until(lambda: average_w(gpu) <= highest_w, within_s=5.5, what="the draw below the cap")
    sample = gpu.sample()
    assert sample.power.window_s == SENSOR_WINDOW_S
    assert 0 <= sample.power.age_s < 1
    assert sample.limit_reason is LimitReason.POWER
    assert sample.utilisation_percent == 100
    assert sample.energy_j is not None
    before_j = sample.energy_j

    def rise_j() -> float:
        return (gpu.sample().energy_j or 0.0) - before_j

    wait_until(lambda: rise_j() > 0, within_s=5, what="energy")
    assert running.gpus[1].read_cap().enforced_w == 700


@pytest.mark.parametrize(
    ("mode", "reason"),
    [(WriteMode.REFUSE, WriteFailure.REFUSED), (WriteMode.NO_PERMISSION, WriteFailure.NO_PERMISSION)],
)
def test_a_write_that_fails_changes_nothing(running: Running, mode: WriteMode, reason: WriteFailure) -> None:
    """And says why; the next one works again."""
    gpu = running.gpus[0]
    running.node.fail_writes(0, mode)
    with pytest.raises(DeviceError) as caught:
        gpu.write_cap(300)
    assert caught.value.reason is reason
    assert gpu.read_cap().enforced_w == 700
    running.node.fail_writes(0, WriteMode.OK)
    gpu.write_cap(300)
    assert gpu.read_cap().enforced_w == 300


@pytest.mark.parametrize("cap_w", [199, 701])
def test_a_cap_out_of_range_is_refused(running: Running, cap_w: int) -> None:
    """As drivers do."""
    with pytest.raises(DeviceError, match="refused"):
        running.gpus[0].write_cap(cap_w)
    assert running.gpus[0].read_cap().enforced_w == 700


def test_a_clamped_write_returns_and_reads_back_higher(running: Running) -> None:
    """The lie that read-back is there for."""
    running.node.fail_writes(0, WriteMode.CLAMP, clamp_w=450)
    running.gpus[0].write_cap(300)
    cap = running.gpus[0].read_cap()
    assert (cap.requested_w, cap.enforced_w) == (300, 450)


@pytest.mark.parametrize(("mode", "meanwhile_w"), [(WriteMode.HANG, 700), (WriteMode.HANG_APPLIED, 300)])
def test_a_hanging_write_may_take_effect_early_or_late(running: Running, mode: WriteMode, meanwhile_w: int) -> None:
    """It returns when the fault is lifted, and only then; its GPU alone hangs."""
    running.node.fail_writes(0, mode)
    with ThreadPoolExecutor(1) as pool:
        write = pool.submit(running.gpus[0].write_cap, 300)
        running.gpus[1].write_cap(400)
        wait_until(lambda: running.node.gpu(0).enforced_w == meanwhile_w, within_s=5, what="the cap meanwhile")
        step = running.node.node().step
        wait_until(lambda: running.node.node().step > step + 5, within_s=5, what="steps")
        assert running.node.gpu(0).enforced_w == meanwhile_w
        assert not write.done()
        running.node.fail_writes(0, WriteMode.OK)
        write.result(timeout=5)
    assert running.gpus[0].read_cap().enforced_w == 300


def test_closing_ends_a_hanging_write(running: Running) -> None:
    """A worker thread never stays behind."""
    running.node.fail_writes(0, WriteMode.HANG)
    with ThreadPoolExecutor(1) as pool:
        write = pool.submit(running.gpus[0].write_cap, 300)
        wait_until(lambda: running.node.slot(0, Slot.REQUEST) == 1, within_s=5, what="the request")
        running.backend._closed.set()
        assert isinstance(write.exception(timeout=5), DeviceError)


def test_readings_fail_when_asked_to(running: Running) -> None:
    """Both kinds, and the other GPU does not."""
    running.node.fail_samples(0, SampleMode.FAIL)
    for read in (running.gpus[0].sample, running.gpus[0].read_power):
        with pytest.raises(DeviceError, match="reading the sensors failed"):
            read()
    assert average_w(running.gpus[1]) > 0


def test_an_override_from_outside_is_read_back(running: Running) -> None:
    """Somebody's own cap, and a BMC's."""
    running.gpus[0].write_cap(300)
    running.node.override(0, 600)
    wait_until(lambda: running.gpus[0].read_cap().enforced_w == 600, within_s=5, what="the override")
    running.node.limit_out_of_band(0, 250)
    wait_until(lambda: running.gpus[0].read_cap().enforced_w == 250, within_s=5, what="the BMC's limit")
    assert running.gpus[0].read_cap().requested_w == 600


def test_a_reboot_is_dark_and_comes_back_at_the_default(running: Running) -> None:
    """Calls fail while it lasts; then the default cap is in force under a new boot id."""
    running.gpus[0].write_cap(300)
    boot_id = boot_id_path(running.folder, "node-2")
    before = boot_id.read_text()
    running.node.reboot(down_s=1.0)
    wait_until(lambda: not running.node.node().powered, within_s=5, what="darkness")
    with pytest.raises(DeviceError, match="dark") as caught:
        running.gpus[0].sample()
    assert caught.value.reason is WriteFailure.LOST
    wait_until(lambda: running.node.node().powered, within_s=5, what="power")
    assert running.gpus[0].read_cap().enforced_w == 700
    assert boot_id.read_text() != before


def test_hardware_that_stopped_is_lost_not_idle(running: Running) -> None:
    """A stale reading is no reading."""
    running.stop.set()

    def failure() -> str:
        try:
            running.gpus[0].sample()
        except DeviceError as error:
            return error.message
        return ""

    wait_until(lambda: "stopped" in failure(), within_s=STALE_S + 3, what="a failure")


def test_an_option_or_file_that_is_missing_is_told(tmp_path: Path) -> None:
    """The agent says so and tries again."""
    with pytest.raises(BackendUnavailable, match="option `path`"):
        SimulatedBackend().open({})
    with pytest.raises(BackendUnavailable, match="no simulated node here"):
        SimulatedBackend().open({"path": str(tmp_path / "none.node")})


@pytest.mark.anyio
async def test_workloads_tell_rates_and_queues(running: Running) -> None:
    """Tokens per second from the counts of the last seconds; unknown at the first reading, never 0."""
    source = inference.source()
    await source.open(running.options)
    first = await source.read()
    assert [workload.generated_tokens_per_s for workload in first] == [None, None]
    step = running.node.node().step
    await async_wait_until(lambda: running.node.node().step > step + 30, within_s=10, what="a second and a half")
    workloads = await source.read()
    assert [workload.gpus for workload in workloads] == [(gpu.device.gpu,) for gpu in running.gpus]
    peak = running.scenario.truth("h100").peak_tokens_per_s
    for workload in workloads:
        assert workload.generated_tokens_per_s == pytest.approx(peak, rel=0.1)
        assert workload.requests_running == 1
        assert workload.requests_waiting is not None
        assert workload.requests_waiting > 0
    running.node.reboot(down_s=30.0)
    await async_wait_until(lambda: not running.node.node().powered, within_s=5, what="darkness")
    assert await source.read() == ()


@pytest.mark.anyio
async def test_the_meter_reads_the_whole_node(running: Running) -> None:
    """Above its GPUs' draw: overhead and losses count; a simulator that stopped has no reading."""
    meter = meters.meter()
    await meter.open(running.options)
    reading = await meter.read()
    assert reading is not None
    node = running.node.node()
    assert reading.power_w > node.gpu_draw_w + 900
    assert reading.age_s < 1
    running.stop.set()
    last = node.time_s + STALE_S
    await async_wait_until(lambda: boot_clock_s() > last + 1, within_s=10, what="a stale file")
    assert await meter.read() is None
