"""What a GPU is and how it is doing, as its agent tells it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from rackpower_common.model.identity import GpuId


class Vendor(Enum):
    """Who made a GPU."""

    UNKNOWN = "unknown"
    NVIDIA = "nvidia"
    AMD = "amd"


class CapControl(Enum):
    """Whether the agent can hold a GPU's cap, and why not."""

    UNKNOWN = "unknown"
    OK = "ok"
    NOT_SUPPORTED = "not_supported"
    NO_PERMISSION = "no_permission"
    NOT_PERSISTENT = "not_persistent"
    VIRTUALISED = "virtualised"


class LimitReason(Enum):
    """What holds a GPU's clocks back now."""

    NONE = "none"
    IDLE = "idle"
    POWER = "power"
    THERMAL = "thermal"
    HARDWARE_BRAKE = "hardware_brake"
    SYNC_BOOST = "sync_boost"
    UNKNOWN = "unknown"


class Health(Enum):
    """How a device is."""

    UNKNOWN = "unknown"
    OK = "ok"
    DEGRADED = "degraded"
    QUARANTINED = "quarantined"
    LOST = "lost"


class NoData(Enum):
    """Why a reading is missing; a missing reading is never 0."""

    UNKNOWN = "unknown"
    NOT_SUPPORTED = "not_supported"
    READ_FAILED = "read_failed"
    STALE = "stale"
    IMPLAUSIBLE = "implausible"
    QUARANTINED = "quarantined"


class PowerScope(Enum):
    """What a power reading covers."""

    GPU = "gpu"
    MODULE = "module"


@dataclass(frozen=True, slots=True)
class Device:
    """One physical GPU; fixed while its agent runs.

    `min_cap_w`, `max_cap_w` and `default_cap_w` are absent for a GPU without caps;
    `largest_draw_w` is the most it may draw whatever happens, where known.
    """

    gpu: GpuId
    vendor: Vendor
    model: str
    pci_address: str
    min_cap_w: int | None
    max_cap_w: int | None
    default_cap_w: int | None
    cap_control: CapControl = CapControl.OK
    cap_control_detail: str = ""
    largest_draw_w: int | None = None
    serial: str = ""
    partitions: tuple[str, ...] = ()
    link_group: str = ""
    driver_version: str = ""

    @property
    def cappable(self) -> bool:
        """Whether a cap set by the agent can be trusted to stay."""
        return self.cap_control is CapControl.OK and self.min_cap_w is not None and self.max_cap_w is not None


@dataclass(frozen=True, slots=True)
class Temperatures:
    """Heat in °C; None is unknown."""

    core_c: int | None = None
    hotspot_c: int | None = None
    memory_c: int | None = None
    slowdown_c: int | None = None


@dataclass(frozen=True, slots=True)
class PowerReading:
    """Power of one GPU as its driver tells it, at `age_s` before the report was made.

    `average_w` covers `window_s` seconds that end at the reading. Watts are rounded up.
    """

    average_w: int | None = None
    instant_w: int | None = None
    window_s: float = 1.0
    age_s: float = 0.0
    no_data: NoData | None = None
    scope: PowerScope = PowerScope.GPU


@dataclass(frozen=True, slots=True)
class Workload:
    """A server or job on some of a node's GPUs; None is unknown, never 0."""

    name: str
    gpus: tuple[GpuId, ...]
    generated_tokens_per_s: float | None = None
    prompt_tokens_per_s: float | None = None
    requests_running: int | None = None
    requests_waiting: int | None = None
    generated_tokens: int | None = None
    server: str = ""
    source: str = ""
    labels: tuple[tuple[str, str], ...] = field(default=())
