"""Files to a compiled policy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rackpower_common.model.policy import Feed, Objective, Timing
from rackpower_common.policy import PolicyError, Severity, load, load_files
from support.policies import NODES, RACK, SMALL, loaded


def errors(*files: tuple[str, bytes]) -> list[str]:
    """Return the messages of a policy that is refused."""
    with pytest.raises(PolicyError) as error:
        load_files(files)
    return [problem.message for problem in error.value.problems]


def test_policy_compiles_to_whole_watts() -> None:
    """Limits, headroom, overheads and losses come out as the core wants them."""
    policy = loaded(
        SMALL, ("overhead: 1200 W", "overhead: 1200.2 W, headroom: 2.5%, psu_efficiency: 98%"), ("60 kW", "60.0009 kW")
    ).policy
    (rack,) = policy.domains
    assert (rack.limit_w, rack.headroom_w, rack.overhead_w) == (60_000, 1_500, 1_201)
    assert rack.loss == pytest.approx(1 / 0.98)
    assert [node.name for node in policy.nodes] == ["gpu-01", "gpu-02", "gpu-03", "gpu-04"]
    node = policy.nodes[0]
    assert (node.overhead_w, node.boot_overhead_w, node.priority, node.loss) == (2_800, 2_800, 50, 1.0)
    assert node.feeds == (Feed(rack.name, 1.0),)
    assert [gpu_class.name for gpu_class in policy.classes] == ["h100"]
    assert policy.objective is Objective.TOKENS
    assert policy.timing == Timing()
    assert policy.fallback_auto


def test_headroom_in_watts_is_kept() -> None:
    """Headroom may be a share of the limit or watts."""
    assert loaded(SMALL, ("overhead: 1200 W", "headroom: 2 kW")).policy.domains[0].headroom_w == 2_000


def test_parents_come_before_children() -> None:
    """Domains are in tree order whatever the order of the file, siblings as written."""
    text = RACK.replace("rack-1: {", "rack-1: {parent: row-a, ")
    text += "  pdu-9: {parent: rack-1, limit: 30 kW}\n  row-a: {limit: 90 kW}\n  pdu-1: {parent: rack-1, limit: 9 kW}\n"
    policy = loaded(text + NODES).policy
    assert [domain.name for domain in policy.domains] == ["row-a", "rack-1", "pdu-9", "pdu-1"]


def test_domain_without_a_node_is_a_warning() -> None:
    """A domain that feeds nobody is told, and the policy may be used."""
    problems = loaded(RACK + "  rack-2: {limit: 40 kW}\n" + NODES).problems
    assert [(problem.severity, problem.line, problem.message) for problem in problems] == [
        (Severity.WARNING, 4, "domain `rack-2` feeds no node")
    ]


def test_headroom_below_the_tracking_error_is_a_warning() -> None:
    """Headroom that a steady draw can eat is told."""
    (problem,) = loaded(SMALL, ("overhead: 1200 W", "headroom: 1%")).problems
    assert problem.severity is Severity.WARNING
    assert "less than the tracking error of 2 %" in problem.message


def test_two_classes_for_one_model_are_a_warning() -> None:
    """Patterns that may match the same model are told with both."""
    own = (
        "classes:\n  mine:\n    models: ['*h100*']\n    min_cap: 200 W\n    max_cap: 600 W\n    idle: 90 W\n"
        "    curve: {natural_draw: 500 W, b: 1.5, c: 2, peak_tokens_per_second: 100}\n"
    )
    (problem,) = loaded(SMALL + own).problems
    assert problem.severity is Severity.WARNING
    assert "`mine`" in problem.message
    assert "`h100`" in problem.message


def test_built_in_class_is_changed_field_by_field() -> None:
    """What a policy says of a built-in class replaces that field only; a lower maximum pulls the default down."""
    text = SMALL + "fallback: 300 W\nclasses:\n  h100: {max_cap: 500 W, curve: {b: 2.5}, fallback: auto}\n"
    (h100,) = loaded(text).policy.classes
    assert (h100.min_cap_w, h100.max_cap_w, h100.default_cap_w, h100.largest_draw_w) == (200, 500, 500, 500)
    assert (h100.curve.b, h100.curve.c, h100.curve.natural_draw_w) == (2.5, 2.0, 620.0)
    assert h100.fallback_w is None


def test_fallback_in_watts_goes_to_every_class_without_its_own() -> None:
    """A policy's fallback is each class's, and then none is left to compute."""
    policy = loaded(SMALL + "fallback: 300 W\n").policy
    assert policy.classes[0].fallback_w == 300
    assert not policy.fallback_auto


def test_shares_may_be_fractions() -> None:
    """Three thirds carry a whole node."""
    domains = "".join(f"  feed-{name}: {{limit: 60 kW}}\n" for name in "abc")
    feeds = ", ".join(f"{{domain: feed-{name}, share: 1/3}}" for name in "abc")
    policy = loaded(f"version: 1\ndomains:\n{domains}{NODES.replace('rack-1', f'[{feeds}]')}").policy
    assert [feed.share for feed in policy.nodes[0].feeds] == [1 / 3] * 3


def test_sections_of_a_folder_merge(tmp_path: Path) -> None:
    """A folder is its YAML files by name; other files and hidden ones are left alone."""
    (tmp_path / "20-nodes.yml").write_text("version: 1\ntiming: {tick: 500ms}\n" + NODES)
    (tmp_path / "10-rack.yaml").write_text(RACK + "timing: {settle: 4s}\n")
    (tmp_path / "README.md").write_text("not a policy")
    (tmp_path / ".hidden.yaml").write_text("not a policy")
    found = load([tmp_path])
    assert [Path(name).name for name, _ in found.files] == ["10-rack.yaml", "20-nodes.yml"]
    assert (found.policy.timing.tick_s, found.policy.timing.settle_s) == (0.5, 4.0)
    assert len(found.policy.nodes) == 4


def test_setting_in_two_files_names_both_places() -> None:
    """A key at the top, and a time, may be in one file only."""
    first = ("a.yaml", (RACK + "dead_band: 5 W\ntiming: {tick: 1s}\n").encode())
    second = ("b.yaml", ("version: 1\ndead_band: 6 W\ntiming: {tick: 2s}\n" + NODES).encode())
    assert errors(first, second) == [
        "`dead_band` is already in a.yaml:4:1",
        "`timing: tick` is already in a.yaml:5:10",
    ]


def test_broken_file_does_not_hide_the_others_errors() -> None:
    """Errors of all files are told at once, without false ones about what the broken file may have held."""
    broken = ("a.yaml", b"version: 1\ndomains: {rack-1: [\n")
    other = ("b.yaml", b"version: 1\nobjectiv: x\n" + NODES.encode())
    assert errors(broken, other) == [
        "this is not closed where it should be",
        "unknown key `objectiv` at the top of a policy",
    ]


def test_missing_file_is_told(tmp_path: Path) -> None:
    """A file that is not there, and a folder without policies, are errors with their names."""
    with pytest.raises(PolicyError) as error:
        load([tmp_path / "none.yaml", tmp_path])
    assert {problem.message for problem in error.value.problems} == {
        "the file cannot be read: No such file or directory",
        "the folder holds no policy file",
    }


def test_no_file_at_all_is_told() -> None:
    """An empty list is an error, not an empty policy."""
    assert errors() == ["no policy file is given"]


def test_too_large_a_file_is_refused() -> None:
    """A file above one mebibyte is refused before it is parsed."""
    assert errors(("a.yaml", b"#" * (1024 * 1024 + 1)))[0].startswith("the file has 1,048,577 bytes")


def test_many_problems_are_cut_off() -> None:
    """A file with thousands of errors gives a hundred and the number of the others."""
    keys = "".join(f"k{number}: 1\n" for number in range(500))
    found = errors(("a.yaml", (SMALL + keys).encode()))
    assert len(found) == 101
    assert found[-1] == "400 more problems are not shown"


def test_revision_is_a_digest_of_the_content() -> None:
    """The same bytes give the same revision under any name; another byte gives another."""
    one = load_files([("a.yaml", SMALL.encode())]).policy
    assert load_files([("b.yaml", SMALL.encode())]).policy == one
    assert load_files([("a.yaml", SMALL.encode() + b"\n")]).policy.revision != one.revision
    assert re.fullmatch(r"[0-9a-f]{12}", one.revision)


def test_byte_order_mark_is_accepted() -> None:
    """A file saved as UTF-8 with a byte order mark is fine."""
    assert load_files([("a.yaml", b"\xef\xbb\xbf" + SMALL.encode())]).policy.nodes


def test_places_lead_back_to_the_file() -> None:
    """What was compiled can be found in its file again."""
    places = loaded().places
    assert str(places["domains", "rack-1", "limit"]) == "policy.yaml:3:31"
    assert str(places["nodes", "gpu-03"]) == "policy.yaml:5:3"


def test_alias_repeats_a_value() -> None:
    """Anchors and aliases work where they stay small."""
    text = SMALL.replace("overhead: 2800 W", "overhead: &oh 2800 W\n    boot_overhead: *oh")
    assert loaded(text).policy.nodes[0].boot_overhead_w == 2_800
