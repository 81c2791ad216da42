"""The node's GPUs as its backends list them, and the boot that they came up in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rackpower_agent.devices.base import Backend, BackendUnavailable, Gpu, Listing
from rackpower_agent.devices.registry import DEVICES, Options, load_plugin
from rackpower_common.errors import RackpowerError
from rackpower_common.model.device import Device
from rackpower_common.model.identity import GpuId
from rackpower_common.model.messages import GPUS_PER_NODE_LIMIT


class HardwareError(RackpowerError):
    """The node's hardware cannot be held as it is set up."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """The node's GPUs, whether the list is complete, and if not, why; `libraries` are who answered, with versions."""

    gpus: tuple[Gpu, ...]
    complete: bool
    detail: str = ""
    libraries: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[Device, ...]:
        """Return who the GPUs are."""
        return tuple(gpu.device for gpu in self.gpus)


class Backends:
    """The backends that the settings name.

    Args:
        wanted: Their options, by name.
        load: Makes a backend of a name; by default its entry point does.

    Raises:
        PluginError: One is not installed or cannot be loaded.
    """

    def __init__(self, wanted: Mapping[str, Options], load: Callable[[str], Backend] | None = None) -> None:
        self._wanted = wanted
        load = load or partial(load_plugin, DEVICES)
        self._backends = {name: load(name) for name in wanted}

    @property
    def names(self) -> tuple[str, ...]:
        """Return the backends' names."""
        return tuple(self._backends)

    def open(self) -> Hardware:
        """List the GPUs of every backend, in the order of the settings. Blocks as long as the drivers do.

        A vendor whose library is not there hides no other's GPUs; the list is then incomplete, unless none of its GPUs
        is on the bus.

        Raises:
            BackendUnavailable: No backend lists a GPU.
            HardwareError: There are too many GPUs, or one is listed twice.
        """
        listings: dict[str, Listing] = {}
        away: dict[str, BackendUnavailable] = {}
        for name, backend in self._backends.items():
            try:
                listings[name] = backend.open(self._wanted[name])
            except BackendUnavailable as error:
                away[name] = error
        gpus = tuple(gpu for listing in listings.values() for gpu in listing.gpus)
        if not gpus:
            raise self._nothing(listings, away)
        _check([gpu.device.gpu for gpu in gpus])
        missing = {
            name: one.detail or "not every GPU could be listed" for name, one in listings.items() if not one.complete
        }
        missing |= {name: str(error) for name, error in away.items() if not error.absent}
        return Hardware(
            gpus,
            complete=not missing,
            detail="; ".join(f"{name}: {words}" for name, words in missing.items()),
            libraries=tuple(listing.library for listing in listings.values() if listing.library),
        )

    def _nothing(self, listings: Mapping[str, Listing], away: Mapping[str, BackendUnavailable]) -> BackendUnavailable:
        if not away:
            return BackendUnavailable(f"no GPU is listed by {', '.join(self._backends)}")
        if len(away) == 1 and not listings:
            return next(iter(away.values()))
        words = [f"{name}: {error}" for name, error in away.items()] + [f"{name}: no GPU" for name in listings]
        return BackendUnavailable("; ".join(words))

    def close(self) -> None:
        """Let go of the libraries; no call may be in flight."""
        for backend in self._backends.values():
            backend.close()


def _check(ids: list[GpuId]) -> None:
    doubles = sorted({gpu for gpu in ids if ids.count(gpu) > 1})
    if doubles:
        raise HardwareError(f"GPU {doubles[0]} is listed twice", "name each GPU's backend once under devices:")
    if len(ids) > GPUS_PER_NODE_LIMIT:
        raise HardwareError(f"{len(ids)} GPUs are listed, an agent holds {GPUS_PER_NODE_LIMIT} at most")


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
