"""Backends, sources and meters by the name of their entry point: nothing is loaded that the settings do not name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from rackpower_common.errors import RackpowerError

DEVICES: Final = "rackpower.devices"
WORKLOADS: Final = "rackpower.workloads"
METERS: Final = "rackpower.meters"

Options = Mapping[str, str]


class PluginError(RackpowerError):
    """A name in the settings that stands for nothing that is installed."""


def load_plugin(group: str, name: str) -> Any:
    """Return a new backend, source or meter.

    Args:
        group: One of `DEVICES`, `WORKLOADS`, `METERS`.
        name: The entry point's name.

    Raises:
        PluginError: Nothing of that name is installed, or it cannot be loaded.
    """
    installed = {point.name: point for point in entry_points(group=group)}
    point: EntryPoint | None = installed.get(name)
    kind = group.removeprefix("rackpower.")
    if point is None:
        raise PluginError(f"{kind}: {name!r} is not installed", f"installed: {', '.join(sorted(installed)) or 'none'}")
    try:
        return point.load()()
    except Exception as error:
        raise PluginError(f"{kind}: {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
