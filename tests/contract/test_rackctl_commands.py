"""Every command of rackctl against an operator service with a memory: output byte for byte, exit codes, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from rackpower.v1 import operator_pb2
from support.ctl import Ctl, Ran
from support.golden import GOLDEN, check_golden
from support.operator_fake import FakeOperator, serving
from support.policies import SMALL
from support.statuses import NOON_UNIX_S, rack, troubled

FOLDER = GOLDEN / "rackctl"
WIDTHS = pytest.mark.parametrize("columns", [80, 200])


@dataclass
class Rig:
    """A fake controller and a rackctl that talks to it."""

    fake: FakeOperator
    address: str
    ctl: Ctl

    def __call__(self, *arguments: str, columns: int = 80) -> Ran:
        """Run rackctl against the fake."""
        return self.ctl("--controller", self.address, *arguments, columns=columns)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """Return a rackctl with a healthy rack behind a unix socket."""
    fake = FakeOperator()
    with serving(fake, f"unix:{tmp_path}/operator.sock") as address:
        yield Rig(fake, address, Ctl(monkeypatch, str(tmp_path)))


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    """Return a policy that may be used."""
    path = tmp_path / "policy.yaml"
    path.write_text(SMALL)
    return path


def event(number: int, severity: operator_pb2.Severity.ValueType, message: str) -> operator_pb2.Event:
    """Return an event of gpu-01."""
    return operator_pb2.Event(
        id=f"{number}-0",
        unix_seconds=NOON_UNIX_S + number,
        severity=severity,
        reason="override",
        message=message,
        node="gpu-01",
        gpu_uuid="GPU-1",
        domain="",
    )


@WIDTHS
@pytest.mark.parametrize("name", ["healthy", "troubled"])
def test_status_reads_well_on_narrow_and_wide_screens(rig: Rig, name: str, columns: int) -> None:
    """The status of a fine and of a troubled rack is what was agreed, fits the width, and has no colour when piped."""
    rig.fake.now = {"healthy": rack, "troubled": troubled}[name]()
    ran = rig("status", columns=columns)
    assert ran.code == (0 if name == "healthy" else 1)
    assert "\x1b" not in ran.out
    assert max(map(len, ran.out.splitlines())) <= columns
    check_golden(FOLDER / f"status-{name}-{columns}.txt", ran.out)


@pytest.mark.parametrize("name", ["healthy", "troubled"])
def test_status_json_is_stable(rig: Rig, name: str) -> None:
    """Scripts get the same fields as ever; unknown values are null."""
    rig.fake.now = {"healthy": rack, "troubled": troubled}[name]()
    ran = rig("status", "--json")
    assert ran.code == (0 if name == "healthy" else 1)
    check_golden(FOLDER / f"status-{name}.json", ran.out)


def test_what_is_only_good_to_know_needs_no_attention(rig: Rig) -> None:
    """An attention of severity info leaves the exit code 0."""
    rig.fake.now.attention.add(severity=operator_pb2.SEVERITY_INFO, reason="x", message="good to know")
    ran = rig("status")
    assert (ran.code, "good to know" in ran.out) == (0, True)


def test_attention_stands_above_the_tables(rig: Rig) -> None:
    """What needs a hand is read first, the worst of it before the rest."""
    rig.fake.now = troubled()
    lines = rig("status").out.splitlines()
    first = {word: next(i for i, line in enumerate(lines) if line.startswith(word)) for word in ("error:", "warning:")}
    assert first["error:"] < first["warning:"] < next(i for i, line in enumerate(lines) if line.startswith("DOMAIN"))


def test_an_empty_controller_says_what_to_do(rig: Rig) -> None:
    """Without a policy the status says so instead of showing empty tables."""
    rig.fake.now = operator_pb2.Status()
    ran = rig("status")
    assert "rackctl policy apply FILE" in ran.out


def test_names_from_afar_cannot_steer_the_terminal(rig: Rig) -> None:
    """Control characters and markup in names are shown, not obeyed."""
    rig.fake.now.nodes[0].name = "gpu\x1b[31m-[bold]01"
    out = rig("status", columns=200).out + rig("nodes", columns=200).out
    assert "\x1b" not in out
    assert "[bold]01" in out


@WIDTHS
def test_nodes(rig: Rig, columns: int) -> None:
    """Nodes alone, as agreed."""
    rig.fake.now = troubled()
    check_golden(FOLDER / f"nodes-{columns}.txt", rig("nodes", columns=columns).out)


def test_nodes_as_json_are_those_of_the_status(rig: Rig) -> None:
    """One shape for a node wherever it appears."""
    assert json.loads(rig("nodes", "--json").out) == json.loads(rig("status", "--json").out)["nodes"]


def test_gpu_and_explain(rig: Rig) -> None:
    """One GPU and why it has its cap, as agreed."""
    rig.fake.now = troubled()
    check_golden(FOLDER / "gpu.txt", rig("gpu", "gpu-01/3").out)
    check_golden(FOLDER / "explain.txt", rig("explain", "gpu-01/3").out)
    check_golden(FOLDER / "explain.json", rig("explain", "gpu-01/3", "--json").out)


def test_a_gpu_is_found_by_the_beginning_of_its_uuid(rig: Rig) -> None:
    """With or without `GPU-`; what fits several or none is a usage error that says so."""
    uuid = rig.fake.now.gpus[0].gpu_uuid
    assert json.loads(rig("gpu", uuid, "--json").out)["gpu_uuid"] == uuid
    assert json.loads(rig("gpu", uuid[4:13], "--json").out)["gpu_uuid"] == uuid
    assert rig("gpu", "GPU-").code == 2
    none = rig("gpu", "nothing")
    assert (none.code, "no GPU's UUID begins with 'nothing'" in none.err) == (2, True)
    assert rig("gpu", "gpu-01/9").code == 2


def test_events_are_filtered_and_counted_by_the_controller(rig: Rig) -> None:
    """Limit and severity are asked for, and events read as lines or as JSON lines."""
    rig.fake.past = [event(1, operator_pb2.SEVERITY_INFO, "a"), event(2, operator_pb2.SEVERITY_WARNING, "cap changed")]
    ran = rig("events", "--at-least", "warning", "--limit", "5")
    assert ran.out == "2026-09-21 14:13:22Z  warning  override: cap changed [gpu-01, GPU-1]\n"
    asked = rig.fake.asked[-1]
    assert isinstance(asked, operator_pb2.ListEventsRequest)
    assert (asked.limit, asked.at_least, asked.follow) == (5, operator_pb2.SEVERITY_WARNING, False)
    line = json.loads(rig("events", "--json", "--limit", "1").out)
    assert line["id"] == "2-0"
    assert line["domain"] is None


def test_events_to_come_are_followed(rig: Rig) -> None:
    """`--follow` goes on after the past events until the stream ends."""
    rig.fake.past = [event(1, operator_pb2.SEVERITY_INFO, "before")]
    rig.fake.to_come.put(event(2, operator_pb2.SEVERITY_ERROR, "after"))
    rig.fake.to_come.put(None)
    assert [json.loads(line)["message"] for line in rig("events", "-f", "--json").out.splitlines()] == [
        "before",
        "after",
    ]


def test_apply_checks_here_first_and_names_its_author(rig: Rig, policy_file: Path) -> None:
    """A policy goes to the controller with who applies it and which revision was expected."""
    ran = rig("policy", "apply", str(policy_file))
    assert ran.code == 0
    assert ran.out.splitlines()[-1] == "policy 0123456789ab is in force"
    (request,) = rig.fake.applied
    assert request.files[0].content == SMALL.encode()
    assert "@" in request.author


def test_apply_expects_a_revision(rig: Rig, policy_file: Path) -> None:
    """A policy that moved meanwhile is not overwritten."""
    rig("policy", "apply", str(policy_file))
    ran = rig("policy", "apply", str(policy_file), "--expect", "ffffffffffff")
    assert (ran.code, len(rig.fake.applied)) == (1, 1)
    assert "policy 0123456789ab is in force, look at it first" in ran.err


def test_a_broken_policy_never_reaches_the_controller(rig: Rig, tmp_path: Path) -> None:
    """What is wrong here is not sent."""
    path = tmp_path / "broken.yaml"
    path.write_text(SMALL.replace("60 kW", "60"))
    ran = rig("policy", "apply", str(path))
    assert (ran.code, rig.fake.asked) == (1, [])
    assert f"{path}:3:31: error" in ran.out
    assert ran.out.endswith("nothing was changed\n")


def test_the_controllers_refusal_is_shown_with_its_place(rig: Rig, policy_file: Path) -> None:
    """Problems that only the controller can see are shown like ours, and change nothing."""
    rig.fake.problems = [
        operator_pb2.PolicyProblem(
            file=str(policy_file),
            line=3,
            column=31,
            message="does not fit",
            hint="raise it",
            severity=operator_pb2.SEVERITY_ERROR,
        )
    ]
    ran = rig("policy", "apply", str(policy_file), "--json")
    document = json.loads(ran.out)
    assert (ran.code, document["applied"], document["ok"]) == (1, False, False)
    assert document["problems"][0]["line"] == 3


def test_show_prints_a_lone_file_as_it_is(rig: Rig, policy_file: Path) -> None:
    """What was applied can be saved again, byte for byte; an unknown revision is a usage error."""
    rig("policy", "apply", str(policy_file))
    assert rig("policy", "show").out == SMALL
    assert json.loads(rig("policy", "show", "0123456789ab", "--json").out)["files"][0]["content"] == SMALL
    missing = rig("policy", "show", "ffff")
    assert (missing.code, "no policy of revision 'ffff' is known" in missing.err) == (2, True)


def test_diff_shows_what_would_change(rig: Rig, policy_file: Path) -> None:
    """A changed limit is one line less and one more; the same policy is no difference."""
    rig("policy", "apply", str(policy_file))
    assert "no difference" in rig("policy", "diff", str(policy_file)).out
    policy_file.write_text(SMALL.replace("60 kW", "50 kW"))
    out = rig("policy", "diff", str(policy_file)).out
    assert "-  rack-1: {kind: rack, limit: 60 kW, overhead: 1200 W}" in out
    assert "+  rack-1: {kind: rack, limit: 50 kW, overhead: 1200 W}" in out


@pytest.mark.parametrize(
    ("refusal", "code", "words"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, 3, "does not let us in: only operators"),
        (grpc.StatusCode.UNIMPLEMENTED, 3, "does not know this question"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 3, "did not answer in time"),
        (grpc.StatusCode.UNAVAILABLE, 3, "only operators"),
        (grpc.StatusCode.INTERNAL, 1, "only operators"),
    ],
)
def test_a_refusal_is_a_sentence_and_an_exit_code(rig: Rig, refusal: grpc.StatusCode, code: int, words: str) -> None:
    """Whatever the controller answers, no traceback reaches the operator."""
    rig.fake.refuse = (refusal, "only operators")
    ran = rig("status")
    assert (ran.code, ran.out) == (code, "")
    assert words in ran.err
    assert "Traceback" not in ran.err
