"""What agent and controller say to each other, in whole watts and seconds.

Ages and durations are relative to the moment of sending; no wall clock appears.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rackpower_common.model.device import (
    Device,
    Health,
    LimitReason,
    PowerReading,
    Temperatures,
    Workload,
)
from rackpower_common.model.identity import GpuId, NodeName, Term

PROTOCOL_VERSION = 1
"""Version that this build speaks."""

OLDEST_PROTOCOL_VERSION = 1
"""Oldest version of an agent that a controller serves."""

MESSAGE_LIMIT_BYTES = 1 << 20
"""Largest message on the wire."""

GPUS_PER_NODE_LIMIT = 64
"""Most GPUs in one hello or report."""


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A driver call that has not returned and may still take effect."""

    cap_w: int
    age_s: float


@dataclass(frozen=True, slots=True)
class Holding:
    """What an agent holds for one GPU.

    `sequence` is the last grant accepted, `applied_sequence` the highest whose value was
    read back after its write returned and is journalled: the acknowledgement. `requested_w`
    and `enforced_w` are the driver's, read back; `highest_enforced_w` is the highest since
    the last report. `enforced_age_s` counts from the first read-back that showed
    `enforced_w`, after the write returned.
    """

    gpu: GpuId
    term: Term | None = None
    sequence: int = 0
    applied_sequence: int = 0
    requested_w: int | None = None
    enforced_w: int | None = None
    highest_enforced_w: int | None = None
    enforced_age_s: float | None = None
    fallback_w: int | None = None
    lease_remaining_s: float | None = None
    pending_writes: tuple[PendingWrite, ...] = ()


@dataclass(frozen=True, slots=True)
class Hello:
    """Opens a stream: who is calling and what it holds."""

    protocol_version: int
    node: NodeName
    agent_version: str
    boot_id: str
    agent_instance: str
    devices: tuple[Device, ...]
    devices_complete: bool
    holdings: tuple[Holding, ...]
    highest_term: Term | None
    journal_read: bool
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuReport:
    """One GPU at the time of a report."""

    holding: Holding
    power: PowerReading = PowerReading()
    energy_j: float | None = None
    temperatures: Temperatures = Temperatures()
    utilisation_percent: int | None = None
    limit_reason: LimitReason = LimitReason.UNKNOWN
    power_limited_share: float | None = None
    health: Health = Health.OK
    health_detail: str = ""
    override_w: int | None = None
    overrides: int = 0

    @property
    def gpu(self) -> GpuId:
        """Return the GPU's UUID."""
        return self.holding.gpu


@dataclass(frozen=True, slots=True)
class Report:
    """One node at one time; the newest replaces all before it."""

    sequence: int
    gpus: tuple[GpuReport, ...]
    highest_term: Term | None
    node_power_w: int | None = None
    node_power_age_s: float | None = None
    workloads: tuple[Workload, ...] = ()


class WriteFailure(Enum):
    """Why a grant was not applied; stable words."""

    REFUSED = "refused"
    TIMEOUT = "timeout"
    CLAMPED = "clamped"
    LOST = "lost"
    NO_PERMISSION = "no_permission"
    OLD_SEQUENCE = "old_sequence"
    OLD_TERM = "old_term"
    JOURNAL = "journal"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class WriteError:
    """A grant that could not be applied."""

    gpu: GpuId
    term: Term | None
    sequence: int
    cap_w: int
    reason: WriteFailure
    detail: str = ""
    enforced_w: int | None = None


@dataclass(frozen=True, slots=True)
class AgentGoodbye:
    """An agent's last message: the caps it leaves in force."""

    reason: str
    holdings: tuple[Holding, ...]


@dataclass(frozen=True, slots=True)
class Welcome:
    """Answers a hello."""

    term: Term
    report_period_s: float
    controller_version: str = ""
    protocol_version: int = PROTOCOL_VERSION
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Grant:
    """A cap with a time to live, counted from receipt, and what to fall back to."""

    gpu: GpuId
    cap_w: int
    fallback_w: int
    lease_s: float
    sequence: int


@dataclass(frozen=True, slots=True)
class Renewal:
    """A new time to live for the grant with this sequence."""

    gpu: GpuId
    sequence: int
    lease_s: float


@dataclass(frozen=True, slots=True)
class GrantBatch:
    """What one decision sends to one node."""

    term: Term
    grants: tuple[Grant, ...] = ()
    renewals: tuple[Renewal, ...] = ()


class GoodbyeReason(Enum):
    """Why a controller ends a stream; stable words."""

    NOT_LEADER = "not_leader"
    SHUTTING_DOWN = "shutting_down"
    FENCED = "fenced"
    NODE_UNKNOWN = "node_unknown"
    NODE_DUPLICATE = "node_duplicate"
    PROTOCOL_TOO_OLD = "protocol_too_old"
    TOO_MANY = "too_many"
    INVALID_HELLO = "invalid_hello"
    REPLACED = "replaced"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ControllerGoodbye:
    """The controller will not serve this stream any longer."""

    reason: GoodbyeReason
    detail: str = ""
    leader: str = ""
    retry_after_s: float = 5.0


AgentMessage = Hello | Report | WriteError | AgentGoodbye
ControllerMessage = Welcome | GrantBatch | ControllerGoodbye
