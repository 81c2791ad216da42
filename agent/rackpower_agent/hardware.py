"""The node's GPUs as its backends list them, and the boot that they came up in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rackpower_agent.devices.base import Backend, BackendUnavailable, Gpu
from rackpower_agent.devices.registry import DEVICES, Options, load_plugin
from rackpower_common.errors import RackpowerError
from rackpower_common.model.device import Device
from rackpower_common.model.messages import GPUS_PER_NODE_LIMIT


class HardwareError(RackpowerError):
    """The node's hardware cannot be held as it is set up."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """The node's GPUs, whether the list is complete, and if not, why."""

    gpus: tuple[Gpu, ...]
    complete: bool
    detail: str = ""

    @property
    def devices(self) -> tuple[Device, ...]:
        """Return who the GPUs are."""
        return tuple(gpu.device for gpu in self.gpus)


class Backends:
    """The backends that the settings name.

    Args:
        wanted: Their options, by name.

    Raises:
        PluginError: One is not installed or cannot be loaded.
    """

    def __init__(self, wanted: Mapping[str, Options]) -> None:
        self._wanted = wanted
        self._backends: dict[str, Backend] = {name: load_plugin(DEVICES, name) for name in wanted}

    @property
    def names(self) -> tuple[str, ...]:
        """Return the backends' names."""
        return tuple(self._backends)

    def open(self) -> Hardware:
        """List the GPUs of every backend. Blocks as long as the drivers do.

        Raises:
            BackendUnavailable: A library or driver is not there.
            HardwareError: There are too many GPUs, or one is listed twice.
        """
        listings = {name: backend.open(self._wanted[name]) for name, backend in self._backends.items()}
        gpus = tuple(gpu for listing in listings.values() for gpu in listing.gpus)
        ids = [gpu.device.gpu for gpu in gpus]
        if not ids:
            raise BackendUnavailable(f"no GPU is listed by {', '.join(self._backends)}")
        doubles = sorted({gpu for gpu in ids if ids.count(gpu) > 1})
        if doubles:
            raise HardwareError(f"GPU {doubles[0]} is listed twice", "name each GPU's backend once under devices:")
        if len(ids) > GPUS_PER_NODE_LIMIT:
            raise HardwareError(f"{len(ids)} GPUs are listed, an agent holds {GPUS_PER_NODE_LIMIT} at most")
        missing = {name: listing.detail for name, listing in listings.items() if not listing.complete}
        detail = "; ".join(f"{name}: {words or 'not every GPU could be listed'}" for name, words in missing.items())
        return Hardware(gpus, complete=not missing, detail=detail)

    def close(self) -> None:
        """Let go of the libraries; no call may be in flight."""
        for backend in self._backends.values():
            backend.close()


def read_boot_id(path: Path) -> str:
    """Return this boot's id.

    Raises:
        HardwareError: It cannot be read: without it a reboot would go unnoticed.
    """
    try:
        boot_id = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise HardwareError(f"cannot read {path}: {error.strerror}", "set boot_id_file") from None
    if not boot_id:
        raise HardwareError(f"{path} holds no boot id", "set boot_id_file")
    return boot_id
