"""Hypothesis strategies for all that agents and controllers say: values that a daemon may mean."""

from __future__ import annotations

from hypothesis import strategies as st

from rackpower_common.model.device import (
    CapControl,
    Device,
    Health,
    LimitReason,
    NoData,
    PowerReading,
    PowerScope,
    Temperatures,
    Vendor,
    Workload,
)
from rackpower_common.model.identity import GpuId, NodeName, Term
from rackpower_common.model.messages import (
    AgentGoodbye,
    AgentMessage,
    ControllerGoodbye,
    ControllerMessage,
    GoodbyeReason,
    GpuReport,
    Grant,
    GrantBatch,
    Hello,
    Holding,
    PendingWrite,
    Renewal,
    Report,
    Welcome,
    WriteError,
    WriteFailure,
)

PRINTABLE = st.characters(categories=("L", "N", "P", "S", "Zs")).filter(str.isprintable)
names = st.text(PRINTABLE, min_size=1, max_size=40)
words = st.text(PRINTABLE, max_size=60)
watts = st.integers(0, 100_000)
milliseconds_s = st.integers(0, 10_000_000).map(lambda ms: ms / 1000)
leases_s = st.integers(1, 10_000_000).map(lambda ms: ms / 1000)
counters = st.integers(0, 2**53)
terms = st.builds(Term, st.integers(1, 2**53), names)
gpu_ids = names.map(GpuId)
rates = st.floats(0, 1e9)
celsius = st.none() | st.integers(-50, 200)


@st.composite
def devices(draw: st.DrawFn, gpu: GpuId) -> Device:
    """Return one GPU; with caps or without."""
    low, high = sorted((draw(watts), draw(watts)))
    capped = draw(st.booleans())
    return Device(
        gpu=gpu,
        vendor=draw(st.sampled_from(Vendor)),
        model=draw(names),
        pci_address=draw(words),
        min_cap_w=low if capped else None,
        max_cap_w=high if capped else None,
        default_cap_w=draw(watts) if capped else None,
        cap_control=draw(st.sampled_from(CapControl)),
        cap_control_detail=draw(words),
        largest_draw_w=draw(st.none() | watts),
        serial=draw(words),
        partitions=tuple(draw(st.lists(words, max_size=3))),
        link_group=draw(words),
        driver_version=draw(words),
    )


@st.composite
def holdings(draw: st.DrawFn, gpu: GpuId) -> Holding:
    """Return what an agent holds for a GPU."""
    applied, accepted = sorted((draw(counters), draw(counters)))
    return Holding(
        gpu=gpu,
        term=draw(st.none() | terms),
        sequence=accepted,
        applied_sequence=applied,
        requested_w=draw(st.none() | watts),
        enforced_w=draw(st.none() | watts),
        highest_enforced_w=draw(st.none() | watts),
        enforced_age_s=draw(st.none() | milliseconds_s),
        fallback_w=draw(st.none() | watts),
        lease_remaining_s=draw(st.none() | milliseconds_s),
        pending_writes=tuple(draw(st.lists(st.builds(PendingWrite, watts, milliseconds_s), max_size=3))),
    )


@st.composite
def readings(draw: st.DrawFn) -> PowerReading:
    """Return a power reading, or why there is none."""
    average_w, instant_w = draw(st.none() | watts), draw(st.none() | watts)
    scope = draw(st.sampled_from(PowerScope))
    cause = draw(st.sampled_from(NoData)) if average_w is None else None
    if average_w is None and instant_w is None:
        return PowerReading(no_data=cause, scope=scope)
    return PowerReading(average_w, instant_w, draw(milliseconds_s), draw(milliseconds_s), cause, scope)


@st.composite
def lines(draw: st.DrawFn, gpu: GpuId) -> GpuReport:
    """Return a GPU's line of a report."""
    return GpuReport(
        holding=draw(holdings(gpu)),
        power=draw(readings()),
        energy_j=draw(st.none() | st.integers(0, 10**12).map(lambda mj: mj / 1000)),
        temperatures=Temperatures(*(draw(celsius) for _ in range(4))),
        utilisation_percent=draw(st.none() | st.integers(0, 100)),
        limit_reason=draw(st.sampled_from(LimitReason)),
        power_limited_share=draw(st.none() | st.integers(0, 1000).map(lambda permille: permille / 1000)),
        health=draw(st.sampled_from(Health)),
        health_detail=draw(words),
        override_w=draw(st.none() | watts),
        overrides=draw(st.integers(0, 2**32 - 1)),
    )


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Return a workload."""
    counts = st.none() | st.integers(0, 2**32 - 1)
    return Workload(
        name=draw(names),
        gpus=tuple(draw(st.lists(gpu_ids, unique=True, max_size=3))),
        generated_tokens_per_s=draw(st.none() | rates),
        prompt_tokens_per_s=draw(st.none() | rates),
        requests_running=draw(counts),
        requests_waiting=draw(counts),
        generated_tokens=draw(st.none() | counters),
        server=draw(words),
        source=draw(words),
    )


gpu_lists = st.lists(gpu_ids, unique=True, max_size=2)


@st.composite
def agent_messages(draw: st.DrawFn) -> AgentMessage:
    """Return anything that an agent says."""
    gpus = draw(gpu_lists)
    held = tuple(draw(holdings(gpu)) for gpu in gpus)
    match draw(st.sampled_from(("hello", "report", "write_error", "goodbye"))):
        case "hello":
            return Hello(
                protocol_version=draw(st.integers(0, 100)),
                node=NodeName(draw(names)),
                agent_version=draw(words),
                boot_id=draw(names),
                agent_instance=draw(names),
                devices=tuple(draw(devices(gpu)) for gpu in gpus),
                devices_complete=draw(st.booleans()),
                holdings=held,
                highest_term=draw(st.none() | terms),
                journal_read=draw(st.booleans()),
                features=tuple(draw(st.lists(words, max_size=3))),
            )
        case "report":
            return Report(
                sequence=draw(counters),
                gpus=tuple(draw(lines(gpu)) for gpu in gpus),
                highest_term=draw(st.none() | terms),
                node_power_w=draw(st.none() | watts),
                node_power_age_s=draw(st.none() | milliseconds_s),
                workloads=tuple(draw(st.lists(workloads(), max_size=2))),
            )
        case "write_error":
            return WriteError(
                gpu=draw(gpu_ids),
                term=draw(st.none() | terms),
                sequence=draw(counters),
                cap_w=draw(watts),
                reason=draw(st.sampled_from(WriteFailure)),
                detail=draw(words),
                enforced_w=draw(st.none() | watts),
            )
        case _:
            return AgentGoodbye(draw(words), held)


@st.composite
def controller_messages(draw: st.DrawFn) -> ControllerMessage:
    """Return anything that a controller says."""
    match draw(st.sampled_from(("welcome", "grants", "goodbye"))):
        case "welcome":
            features = tuple(draw(st.lists(words, max_size=3)))
            return Welcome(draw(terms), draw(leases_s), draw(words), draw(st.integers(0, 100)), features)
        case "grants":
            granted, renewed = draw(gpu_lists), draw(gpu_lists)
            return GrantBatch(
                draw(terms),
                tuple(Grant(gpu, draw(watts), draw(watts), draw(leases_s), draw(counters)) for gpu in granted),
                tuple(Renewal(gpu, draw(counters), draw(leases_s)) for gpu in renewed),
            )
        case _:
            reason = draw(st.sampled_from(GoodbyeReason))
            return ControllerGoodbye(reason, draw(words), draw(words), draw(milliseconds_s))
