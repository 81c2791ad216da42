"""Backends by the name of their entry point: nothing is loaded that the settings do not name."""

from __future__ import annotations

import pytest

from rackpower_agent.devices.registry import DEVICES, METERS, WORKLOADS, PluginError, load_plugin


@pytest.mark.parametrize("group", [DEVICES, WORKLOADS, METERS])
def test_what_is_installed_is_made_anew_at_every_call(group: str) -> None:
    """The simulator's entry points are there; two calls share nothing."""
    first, second = load_plugin(group, "sim"), load_plugin(group, "sim")
    assert first is not second
    assert first.name == "sim"


def test_a_name_that_stands_for_nothing_is_told_with_those_that_do() -> None:
    """A typo is answered with what there is."""
    with pytest.raises(PluginError) as refused:
        load_plugin(METERS, "impi")
    assert str(refused.value) == "meters: 'impi' is not installed (installed: sim)"
