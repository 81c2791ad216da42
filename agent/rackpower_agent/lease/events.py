"""What the lease keeper is told, and what it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rackpower_agent.lease.memory import JournalImage
from rackpower_common.model.device import Device
from rackpower_common.model.identity import GpuId, Term
from rackpower_common.model.messages import GrantBatch, Report, WriteError, WriteFailure

# --- events -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Welcomed:
    """A controller opened its term on our stream."""

    term: Term


@dataclass(frozen=True, slots=True)
class BatchReceived:
    """Grants and renewals arrived; leases count from `now_s` of this step."""

    batch: GrantBatch


@dataclass(frozen=True, slots=True)
class CapRead:
    """The driver's caps were read.

    `started_s` is when the call began, so that a read is never taken for a read-back of a write that returned
    after it.
    """

    gpu: GpuId
    requested_w: int | None
    enforced_w: int | None
    started_s: float


@dataclass(frozen=True, slots=True)
class CapReadFailed:
    """Reading the caps failed."""

    gpu: GpuId
    reason: WriteFailure
    detail: str


@dataclass(frozen=True, slots=True)
class WriteReturned:
    """The write with this number returned; `failure` is None when the driver accepted it."""

    gpu: GpuId
    number: int
    failure: WriteFailure | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class WriteLate:
    """The write with this number passed its deadline and may still take effect."""

    gpu: GpuId
    number: int


@dataclass(frozen=True, slots=True)
class DeviceHung:
    """A call to the GPU passed its deadline: it takes no write until it is back."""

    gpu: GpuId


@dataclass(frozen=True, slots=True)
class DeviceBack:
    """The hung call returned."""

    gpu: GpuId


@dataclass(frozen=True, slots=True)
class FormerWriterGone:
    """The agent process before us has left the kernel: none of its driver calls can take effect any more."""


@dataclass(frozen=True, slots=True)
class DevicesListed:
    """The node's GPUs were listed (again): ranges may have changed, new ones start at their minimum."""

    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class Journalled:
    """The journal holds everything up to this revision, on the disk."""

    revision: int


@dataclass(frozen=True, slots=True)
class JournalFailed:
    """The save of this revision failed or was too late."""

    revision: int
    detail: str


@dataclass(frozen=True, slots=True)
class Reported:
    """A report left: what was counted since the last one, and told by it, starts anew.

    `told` is the report: what came up while it was leaving waits for the next one. None means that nothing can have.
    """

    told: Report | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed."""


@dataclass(frozen=True, slots=True)
class Closing:
    """The agent stops on purpose: the journal gets the exact lease ends."""


Event = (
    Welcomed
    | BatchReceived
    | CapRead
    | CapReadFailed
    | WriteReturned
    | WriteLate
    | DeviceHung
    | DeviceBack
    | FormerWriterGone
    | DevicesListed
    | Journalled
    | JournalFailed
    | Reported
    | Tick
    | Closing
)

# --- actions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteCap:
    """Ask the driver for this cap; answer with `WriteReturned` (and `WriteLate` when it is late)."""

    gpu: GpuId
    cap_w: int
    number: int


@dataclass(frozen=True, slots=True)
class ReadCap:
    """Read the caps; answer with `CapRead` or `CapReadFailed`."""

    gpu: GpuId


@dataclass(frozen=True, slots=True)
class SaveJournal:
    """Put this image on the disk; answer with `Journalled` or `JournalFailed`. One save is asked for at a time."""

    revision: int
    image: JournalImage


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the controller at once."""

    error: WriteError


@dataclass(frozen=True, slots=True)
class ReportSoon:
    """Something that the controller waits for has changed: do not wait for the next period."""


class Level(Enum):
    """How bad a note is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Note:
    """For the log: a stable word and a sentence."""

    level: Level
    word: str
    message: str
    gpu: GpuId | None = None


Action = WriteCap | ReadCap | SaveJournal | Tell | ReportSoon | Note
