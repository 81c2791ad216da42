"""What the agent asks of a GPU, whoever made it.

A backend lists the node's GPUs; each GPU answers a few blocking calls. They are made on that GPU's own worker
thread and may hang: the deadline is the worker's business, not theirs. Whole watts; vendor units end here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rackpower_common.errors import RackpowerError
from rackpower_common.model.device import Device, Health, LimitReason, PowerReading, Temperatures
from rackpower_common.model.messages import WriteFailure


class DeviceError(RackpowerError):
    """A device call failed.

    Args:
        message: Which GPU and what the driver said.
        reason: The kind of failure.
        code: The vendor's own code, for the log.
    """

    def __init__(
        self, message: str, reason: WriteFailure = WriteFailure.UNKNOWN, code: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, hint)
        self.reason = reason
        self.code = code


class BackendUnavailable(RackpowerError):
    """A vendor's library or driver is not there; the agent says so and tries again.

    Args:
        message: What is missing.
        hint: What to do.
        absent: No GPU of that vendor is on the bus either, so that nothing is missing beside another vendor's GPUs.
    """

    def __init__(self, message: str, hint: str = "", *, absent: bool = False) -> None:
        super().__init__(message, hint)
        self.absent = absent


@dataclass(frozen=True, slots=True)
class CapReading:
    """The driver's cap now: the one last asked for in-band, and the one it enforces. None is unknown."""

    requested_w: int | None
    enforced_w: int | None


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of a GPU. `power.age_s` is how old the reading was when the call returned."""

    power: PowerReading
    energy_j: float | None = None
    temperatures: Temperatures = Temperatures()
    utilisation_percent: int | None = None
    limit_reason: LimitReason = LimitReason.UNKNOWN
    power_limited_share: float | None = None
    health: Health = Health.OK
    health_detail: str = ""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that has a GPU open; `pid` is the host's. `memory_bytes` is None where the driver does not say."""

    pid: int
    name: str = ""
    memory_bytes: int | None = None


class Gpu(Protocol):
    """One GPU. Every call may block and may raise `DeviceError`."""

    @property
    def device(self) -> Device:
        """Who it is; fixed since the backend listed it."""
        ...

    def sample(self) -> Sample:
        """Read power, energy, heat and what limits it: once a report."""
        ...

    def read_power(self) -> PowerReading:
        """Read power alone, as cheaply as the driver can: ten times a second."""
        ...

    def read_cap(self) -> CapReading:
        """Read the cap back from the driver."""
        ...

    def write_cap(self, cap_w: int) -> None:
        """Ask the driver for a cap. Returning means that the driver accepted it, not that it is in force."""
        ...

    def processes(self) -> tuple[GpuProcess, ...]:
        """Read who has the GPU open, partitions included; empty where the driver does not say."""
        ...


@dataclass(frozen=True, slots=True)
class Listing:
    """The GPUs of a node in a stable order, and whether the list is complete. `library` says who answered."""

    gpus: tuple[Gpu, ...]
    complete: bool
    detail: str = ""
    library: str = ""


class Backend(Protocol):
    """One vendor's library."""

    name: str

    def open(self, options: Mapping[str, str]) -> Listing:
        """Load the library and list the GPUs; called again after a driver reload.

        Raises:
            BackendUnavailable: The library or driver is not there.
        """
        ...

    def close(self) -> None:
        """Let go of the library; no call may be in flight."""
        ...
