"""Names and ranges of names."""

from __future__ import annotations

import pytest

from rackpower_common.policy.names import InvalidNameError, expand, fold, nodes_named


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("gpu", ("gpu",)),
        ("gpu-[08-11]", ("gpu-08", "gpu-09", "gpu-10", "gpu-11")),
        ("gpu-[8-11]", ("gpu-8", "gpu-9", "gpu-10", "gpu-11")),
        ("n[1,3,5-6].example", ("n1.example", "n3.example", "n5.example", "n6.example")),
        ("r[1-2]-n[1-2]", ("r1-n1", "r1-n2", "r2-n1", "r2-n2")),
    ],
)
def test_range_stands_for_its_names(written: str, names: tuple[str, ...]) -> None:
    """A range gives every name in order, padded as its first number is."""
    assert expand(written) == names


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("gpu-[4-1]", "range `[4-1]` in `gpu-[4-1]` runs backwards"),
        ("gpu-[1-4", "`gpu-[1-4` has an unmatched bracket"),
        ("gpu-]1-4[", "`gpu-]1-4[` has an unmatched bracket"),
        ("gpu-[a-c]", "`a-c` in `gpu-[a-c]` is not a range"),
        ("gpu-[]", "`` in `gpu-[]` is not a range"),
        ("gpu-[1-999999999]", "`gpu-[1-999999999]` stands for more than 20,000 names"),
        ("g[1-200][1-200]", "`g[1-200][1-200]` stands for more than 20,000 names"),
        ("-gpu", "`-gpu` cannot be a name"),
        ("gpu 1", "`gpu 1` cannot be a name"),
        ("", "`` cannot be a name"),
        ("x" * 64, "`xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…` cannot be a name"),
    ],
)
def test_wrong_name_is_refused(written: str, message: str) -> None:
    """Backward, malformed and huge ranges and odd characters are refused."""
    with pytest.raises(InvalidNameError) as error:
        expand(written)
    assert error.value.message == message


def test_names_are_folded_for_messages() -> None:
    """Runs of numbered names are written as ranges, and every name is in them."""
    assert fold(["a-01", "a-02", "a-03", "b", "c7", "c9"]) == "`a-[01-03]`, `c[7,9]`, `b`"
    assert nodes_named(["a1"]) == "node `a1`"
    assert nodes_named(["a1", "a2"]) == "2 nodes `a[1-2]`"
