"""What the lease keeper remembers over a restart: the value that the journal puts on the disk."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rackpower_common.model.identity import GpuId, Term


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """A cap that was asked of the driver, or was about to be, and is not known to have returned."""

    cap_w: int
    issued_s: float


@dataclass(frozen=True, slots=True)
class GpuRecord:
    """One GPU in the journal.

    `seen_sequence` is the highest sequence ever taken, `sequence` that of the grant recorded. `deadline_s` is on
    the boot clock and never later than the real lease end. Caps in whole watts; None without a grant.
    """

    gpu: GpuId
    term: Term | None
    sequence: int
    seen_sequence: int
    applied_sequence: int
    cap_w: int | None
    fallback_w: int | None
    deadline_s: float | None
    writes: tuple[WriteRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class JournalImage:
    """All that a restart needs. Boot clock times are meaningless under another `boot_id`."""

    boot_id: str
    term: Term | None
    gpus: tuple[GpuRecord, ...]


class Recall(Enum):
    """What a starting agent remembers."""

    SAME_BOOT = "same_boot"
    REBOOTED = "rebooted"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Memory:
    """What was found at start.

    `image` is None when the journal was not there or not readable (`detail` says why). `former_writer_alive`
    says that the agent process that wrote it is still in the kernel, so that its driver calls may yet take effect.
    """

    image: JournalImage | None
    former_writer_alive: bool = False
    detail: str = ""

    def recall(self, boot_id: str) -> Recall:
        """Return what the memory is worth in this boot."""
        if self.image is None:
            return Recall.LOST
        return Recall.SAME_BOOT if self.image.boot_id == boot_id else Recall.REBOOTED
