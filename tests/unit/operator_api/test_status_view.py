from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf import text_format

from rackpower.v1 import operator_pb2
from rackpower_common.model.device import CapControl, Health
from rackpower_common.model.identity import DomainName, NodeName
from rackpower_common.model.policy import Policy
from rackpower_controller.core.decision import Decision, Severity
from rackpower_controller.core.facts import MeterRead, StoreHealth
from rackpower_controller.core.planning import Plan
from rackpower_controller.durations import Durations
from rackpower_controller.operator_api.base import Notice, StatusSource
from rackpower_controller.operator_api.nameplate import gpus_at_nameplate
from rackpower_controller.operator_api.status_view import status_view
from support.books import Books, gpu_id, line, report
from support.golden import GOLDEN, check_golden
from support.policies import loaded


def rack(*live: str, policy: Policy | None = None) -> Books:
    """Return the books of a rack with some of its four nodes reporting and admitted."""
    books = Books(policy or loaded().policy)
    books.take_term()
    for stream, node in enumerate(live, start=1):
        books.connect(node, stream)
        books.report(node, stream)
    books.admit(*live)
    return books


def source(books: Books, **changes: object) -> StatusSource:
    """Return what a status is drawn from."""
    made = StatusSource(
        now_s=books.now_s,
        unix_s=1_700_000_000.0,
        state=books.state,
        policy=books.policy,
        plan=None,
        decision=None,
        decide=Durations(),
        plans=Durations(),
        sentence="No cap changed.",
        controller_version="0.1.0",
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def view(books: Books, **changes: object) -> operator_pb2.Status:
    """Return the status."""
    return status_view(source(books, **changes))


def reasons(status: operator_pb2.Status) -> set[str]:
    """Return the stable words of what needs attention."""
    return {item.reason for item in status.attention}


ALL = ("gpu-01", "gpu-02", "gpu-03", "gpu-04")


def test_a_rack_in_order_is_drawn_as_the_golden_says() -> None:
    """Every field of a quiet rack of two live nodes, one silent and one never heard."""
    books = rack("gpu-01", "gpu-02", "gpu-03")
    books.now_s += 10
    for stream, node in enumerate(("gpu-01", "gpu-02"), start=1):
        books.report(node, stream, report(node, sequence=2))
    check_golden(GOLDEN / "status" / "mixed.txtpb", text_format.MessageToString(view(books)))


def test_a_rack_with_nothing_to_say_needs_no_attention() -> None:
    """Four live nodes and a policy: no attention, everything measured, all GPUs run."""
    status = view(rack(*ALL))
    assert list(status.attention) == []
    assert (status.totals.gpus_running, status.totals.gpus) == (32, 32)
    assert status.totals.measured_milliwatts == 1000 * (4 * (8 * 390 + 2800) + 1200)
    assert status.totals.tokens_per_second == pytest.approx(3200)
    assert status.totals.tokens_per_watt == pytest.approx(3200 / (4 * (8 * 390 + 2800) + 1200))


def test_unknown_draw_is_absent_and_never_zero() -> None:
    """One GPU without a reading makes node, domain and total unknown; its own draw is absent."""
    books = rack(*ALL)
    silent = replace(line(gpu_id("gpu-02", 3)), power=replace(line(gpu_id("gpu-02", 3)).power, average_w=None))
    said = report("gpu-02", sequence=2)
    lines = tuple(silent if one.gpu == silent.gpu else one for one in said.gpus)
    books.report("gpu-02", 2, replace(said, gpus=lines))
    status = view(books)
    node = next(node for node in status.nodes if node.name == "gpu-02")
    gpu = next(gpu for gpu in status.gpus if gpu.gpu_uuid == "GPU-gpu-02-3")
    assert not node.HasField("power_milliwatts")
    assert not gpu.HasField("power_milliwatts")
    assert not status.domains[0].HasField("measured_milliwatts")
    assert not status.totals.HasField("measured_milliwatts")
    assert not status.totals.HasField("tokens_per_watt")


def test_a_node_meter_speaks_for_its_node() -> None:
    """With a meter the node's draw is the meter's."""
    books = rack(*ALL)
    books.report("gpu-01", 1, replace(report("gpu-01", sequence=2), node_power_w=5000, node_power_age_s=0.2))
    node = view(books).nodes[0]
    assert node.power_milliwatts == 5_000_000


def test_a_fresh_domain_meter_speaks_for_its_domain() -> None:
    """A meter's reading stands for the domain also when a node below is unknown, and not when it is old."""
    books = rack("gpu-01")
    books.absorb([MeterRead(DomainName("rack-1"), 30_000, 0.0, books.now_s)])
    assert view(books).domains[0].measured_milliwatts == 30_000_000
    books.now_s += 10
    assert not view(books).domains[0].HasField("measured_milliwatts")


def test_readings_of_a_silent_node_are_not_shown_as_of_now() -> None:
    """A silent node keeps its exposure and loses its draw, temperature and tokens."""
    books = rack(*ALL)
    books.now_s += 10
    status = view(books)
    gpu = status.gpus[0]
    assert status.nodes[0].state == operator_pb2.NODE_STATE_SILENT
    assert gpu.exposure_milliwatts == 400_000
    assert not gpu.HasField("power_milliwatts")
    assert not gpu.HasField("core_celsius")
    assert not gpu.HasField("tokens_per_second")
    assert status.totals.gpus_running == 0
    assert "node_silent" in reasons(status)


def test_ledger_limit_and_deficit_add_up() -> None:
    """The deficit is what the ledger shown stands above the limit less the headroom shown."""
    domain = view(rack(*ALL, policy=tight_policy())).domains[0]
    over = domain.ledger_milliwatts - (domain.limit_milliwatts - domain.headroom_milliwatts)
    assert domain.deficit_milliwatts == over > 0


def tight_policy() -> Policy:
    """Return a policy whose limit lies below what the four nodes hold."""
    policy = loaded().policy
    return replace(policy, domains=tuple(replace(domain, limit_w=22_000) for domain in policy.domains))


def test_a_deficit_and_an_unmeetable_one_are_told_apart() -> None:
    """A deficit is a warning that caps are lowered, an unmeetable one an error that names what to power off."""
    books = rack(*ALL, policy=tight_policy())
    assert reasons(view(books)) == {"deficit"}
    decision = Decision(1, books.now_s, {}, {}, {}, (), "x.", unmeetable={DomainName("rack-1"): 800})
    status = view(books, decision=decision)
    assert reasons(status) == {"unmeetable"}
    assert "power off nodes, in this order: gpu-01" in status.attention[0].message
    assert status.attention[0].severity == operator_pb2.SEVERITY_ERROR


def test_a_waiting_node_says_what_it_waits_for() -> None:
    """The decision's reason is the node's detail and attention."""
    books = rack("gpu-01", "gpu-02", "gpu-03")
    books.connect("gpu-04", 4)
    books.report("gpu-04", 4)
    why = "its boot reserve of 4400 W does not fit rack-1"
    status = view(books, decision=Decision(3, books.now_s, {}, {}, {}, (), "x.", waiting={NodeName("gpu-04"): why}))
    assert status.nodes[3].state == operator_pb2.NODE_STATE_WAITING
    assert status.nodes[3].detail == why
    assert "node_waiting" in reasons(status)


def test_strangers_and_name_clashes_are_named() -> None:
    """A node that the policy does not know and a second claimant of a name are shown with their peers."""
    books = rack(*ALL)
    books.connect("gpu-77", 9, peer="10.9.9.9:1")
    books.absorb([])
    status = view(books)
    stranger = next(node for node in status.nodes if node.name == "gpu-77")
    assert stranger.state == operator_pb2.NODE_STATE_UNKNOWN
    assert list(stranger.peers) == ["10.9.9.9:1"]
    assert reasons(status) == {"node_unknown"}


@pytest.mark.parametrize(
    ("health", "reason", "running"),
    [(Health.LOST, "gpu_lost", 31), (Health.QUARANTINED, "gpu_quarantined", 31), (Health.DEGRADED, "gpu_degraded", 32)],
)
def test_sick_gpus_need_attention(health: Health, reason: str, running: int) -> None:
    """A lost or hung GPU is not running; a degraded one is."""
    books = rack(*ALL)
    said = report("gpu-02", sequence=2)
    lines = (replace(said.gpus[0], health=health, health_detail="Xid 79"), *said.gpus[1:])
    books.report("gpu-02", 2, replace(said, gpus=lines))
    status = view(books)
    assert reasons(status) == {reason}
    assert "Xid 79" in status.attention[0].message
    assert status.totals.gpus_running == running


def test_alike_troubles_share_a_line() -> None:
    """Eight GPUs of one node that cannot be capped make one line, not eight."""
    books = rack(*ALL)
    uncapped = {
        gpu: replace(book, device=replace(book.device, cap_control=CapControl.NO_PERMISSION))
        for gpu, book in books.state.gpus.items()
        if book.node == "gpu-03"
    }
    books.state = replace(books.state, gpus={**books.state.gpus, **uncapped})
    status = view(books)
    assert [item.reason for item in status.attention if item.reason == "gpu_uncapped"] == ["gpu_uncapped"]
    assert "8 GPUs" in next(item.message for item in status.attention if item.reason == "gpu_uncapped")


def test_no_policy_no_term_and_a_broken_store_are_told() -> None:
    """Before anything is in force the status says what is missing."""
    books = Books(loaded().policy)
    books.absorb([StoreHealth("connection refused", books.now_s)])
    status = view(books, policy=None, store_detail="connection refused")
    assert reasons(status) == {"no_policy", "no_term", "store_down"}
    assert status.store == "connection refused"
    assert status.planner == "none"
    assert len(status.domains) == 0


def test_notices_of_the_shell_come_with_ours_worst_first() -> None:
    """A bad policy file is shown, errors before warnings."""
    books = rack(*ALL)
    books.now_s += 10
    status = view(books, notices=(Notice(Severity.ERROR, "policy_bad", "policy.yaml:3: no"),))
    assert [item.severity for item in status.attention] == [operator_pb2.SEVERITY_ERROR, operator_pb2.SEVERITY_WARNING]
    assert status.attention[0].reason == "policy_bad"


def test_the_plan_shows_as_targets_and_why() -> None:
    """Targets come from the plan, its source is named, and each GPU says why."""
    books = rack(*ALL)
    targets = dict.fromkeys(books.state.gpus, 400)
    plan = Plan(books.policy.revision, tuple(sorted(targets)), (), targets, "lp", 1.0, 0.001)
    status = view(books, plan=plan)
    assert status.planner == "lp"
    assert {gpu.target_cap_milliwatts for gpu in status.gpus} == {400_000}
    assert all(gpu.why for gpu in status.gpus)


def test_nameplate_counts_whole_gpus_with_overheads() -> None:
    """60 kW less the rack's 1.2 kW and 2.8 kW a node holds all 32 H100; a third of it fewer."""
    policy = loaded().policy
    assert gpus_at_nameplate(policy) == 32
    small = replace(policy, domains=tuple(replace(domain, limit_w=20_000) for domain in policy.domains))
    (rack_domain,), node = small.domains, small.nodes[0]
    room_w = rack_domain.ceiling_w - rack_domain.overhead_w
    caps_w = {one.name: one.default_cap_w for one in small.classes}[node.gpus[0].gpu_class]
    count = gpus_at_nameplate(small)
    nodes = -(-count // 8)
    assert nodes * node.overhead_w + count * caps_w <= room_w
    assert nodes * node.overhead_w + (count + 1) * caps_w > room_w


def test_same_source_same_bytes() -> None:
    """A status is a pure function of its source."""
    books = rack(*ALL)
    one, two = view(books), view(books)
    assert one.SerializeToString(deterministic=True) == two.SerializeToString(deterministic=True)
