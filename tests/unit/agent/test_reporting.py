"""What an agent says, from what it holds and has measured: unknown is never 0, old is never new."""

from __future__ import annotations

from rackpower_agent.devices.base import Sample
from rackpower_agent.devices.worker import Sampled
from rackpower_agent.meters.base import MeterReading
from rackpower_agent.reporting import SENSORS_STALE_S, STALE_S, build_hello, build_report
from rackpower_common.model.device import Health, LimitReason, NoData, PowerReading, Temperatures, Workload
from rackpower_common.model.identity import GpuId, NodeName
from rackpower_common.model.messages import PROTOCOL_VERSION, GpuReport
from support.lease_node import LeaseNode, device, grant

GPU = GpuId("GPU-0")
SAMPLE = Sample(
    power=PowerReading(average_w=400, instant_w=410, window_s=1.0, age_s=0.25),
    energy_j=1234.5,
    temperatures=Temperatures(core_c=61),
    utilisation_percent=97,
    limit_reason=LimitReason.POWER,
    power_limited_share=0.8,
)


def node() -> LeaseNode:
    """Return a node with one GPU at a granted 500 W."""
    made = LeaseNode()
    made.start()
    made.settle()
    made.send(grant(1, 500))
    made.settle()
    return made


def sampled(made: LeaseNode, age_s: float = 0.0, sample: Sample | None = SAMPLE, error: str = "") -> Sampled:
    """Return a sample whose call returned `age_s` ago."""
    at_s, power = made.now_s - age_s, sample.power if sample is not None else None
    return Sampled(power, sample, at_s, at_s, 455, error, 0, 10, 0.001)


def line(made: LeaseNode, one: Sampled, *, hung: bool = False) -> GpuReport:
    """Return the report's line of the GPU."""
    gone = frozenset({GPU}) if hung else frozenset[GpuId]()
    (only,) = build_report(made.keeper, {GPU: one}, gone, (), None, 1, made.now_s).gpus
    return only


def test_a_reading_is_told_with_the_age_it_has_now_and_the_highest_instant() -> None:
    """The sensor's own delay and the time since the call add up; the highest of ten samples is told, not the last."""
    made = node()
    told = line(made, sampled(made, age_s=0.5))
    assert told.power == PowerReading(average_w=400, instant_w=455, window_s=1.0, age_s=0.75)
    assert (told.energy_j, told.temperatures.core_c, told.utilisation_percent) == (1234.5, 61, 97)
    assert (told.limit_reason, told.power_limited_share, told.health) == (LimitReason.POWER, 0.8, Health.OK)
    assert (told.holding.enforced_w, told.holding.applied_sequence) == (500, 1)


def test_a_sample_that_is_too_old_is_no_reading() -> None:
    """Stale where nothing said why, failed where something did; the caps are told all the same."""
    made = node()
    stale = line(made, sampled(made, age_s=STALE_S + 0.1))
    assert stale.power == PowerReading(no_data=NoData.STALE)
    assert (stale.energy_j, stale.health, stale.holding.enforced_w) == (None, Health.DEGRADED, 500)
    failed = line(made, sampled(made, age_s=STALE_S + 0.1, error="sensor gone"))
    assert (failed.power.no_data, failed.health_detail) == (NoData.READ_FAILED, "sensor gone")


def test_power_that_reads_well_makes_no_old_temperature_new() -> None:
    """Where only the power still reads, the rest is unknown and the GPU degraded."""
    made = node()
    one = sampled(made)._replace(sample_at_s=made.now_s - SENSORS_STALE_S - 1)
    told = line(made, one)
    assert (told.power.average_w, told.energy_j, told.temperatures) == (400, None, Temperatures())
    assert (told.health, told.limit_reason) == (Health.DEGRADED, LimitReason.UNKNOWN)
    assert told.health_detail == "its other sensors were last read 6 s ago"


def test_a_gpu_that_was_never_sampled_has_no_reading() -> None:
    """Not 0 W: nobody may take it for idle."""
    made = node()
    told = line(made, sampled(made, sample=None, error="not sampled yet"))
    assert told.power == PowerReading(no_data=NoData.READ_FAILED)


def test_a_hung_gpu_is_quarantined_however_fresh_its_last_sample() -> None:
    """A driver that does not return has no say about power."""
    made = node()
    told = line(made, sampled(made), hung=True)
    assert (told.power.no_data, told.health) == (NoData.QUARANTINED, Health.QUARANTINED)
    assert told.health_detail == "a driver call has not returned"


def test_trouble_with_a_cap_degrades_a_gpu_that_reads_well() -> None:
    """What is wrong with its cap is said where an operator looks."""
    made = node()
    made.send(grant(2, 300))
    made.settle_reads()
    made.hang()
    told = line(made, sampled(made))
    assert told.health is Health.DEGRADED
    assert told.health_detail == "the driver has not returned from setting 300 W"
    assert [write.cap_w for write in told.holding.pending_writes] == [300]


def test_node_power_and_workloads_are_told_when_known() -> None:
    """And left out when not."""
    made = node()
    work = (Workload("llm", (GPU,), generated_tokens_per_s=800.0),)
    full = build_report(made.keeper, {}, frozenset(), work, MeterReading(2400, 0.5), 7, made.now_s)
    assert (full.node_power_w, full.node_power_age_s, full.workloads, full.sequence) == (2400, 0.5, work, 7)
    bare = build_report(made.keeper, {}, frozenset(), (), None, 8, made.now_s)
    assert (bare.node_power_w, bare.node_power_age_s, bare.workloads) == (None, None, ())


def test_a_hello_tells_who_calls_and_what_it_holds() -> None:
    """Devices, boot, instance, highest term, and whether the journal was read."""
    made = node()
    hello = build_hello(
        made.keeper, [device()], complete=False, node=NodeName("gpu-01"), version="0.1", boot_id="boot-1",
        instance="i1", now_s=made.now_s,
    )  # fmt: skip
    assert (hello.protocol_version, hello.node, hello.boot_id) == (PROTOCOL_VERSION, "gpu-01", "boot-1")
    assert (hello.devices, hello.devices_complete, hello.agent_instance) == ((device(),), False, "i1")
    assert (hello.highest_term, hello.journal_read) == (made.keeper.highest_term, False)
    assert hello.holdings[0].fallback_w == 300
