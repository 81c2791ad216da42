"""The lease keeper's state: one frozen value a GPU, replaced at every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rackpower_agent.lease.memory import GpuRecord, JournalImage, Recall, WriteRecord
from rackpower_common.model.device import Device
from rackpower_common.model.identity import GpuId, Term

NEVER_S = float("-inf")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the keeper, each with its reason.

    A lower that the driver refuses is tried `lower_tries` times, `retry_gap_s` apart; after that only while no
    lease is valid, every `slow_retry_s`: nobody else would lower it then. More than `corrections` overrides put
    right within `correction_window_s` means that another daemon owns the cap: stop fighting, report. A read-back
    that does not show the grant's cap `clamp_after_s` after the write returned is told as clamped. Longer leases
    than `lease_limit_s` are cut. A lease end is journalled anew when the one on the disk lags by more than
    `deadline_lag_share` of the lease. `start_read_failures` is how often reading may fail before the start goes on.
    A lower waits for the journal `journal_patience_s` at most: a disk must not hold up a shed.
    """

    lower_tries: int = 3
    retry_gap_s: float = 1.0
    slow_retry_s: float = 60.0
    corrections: int = 5
    correction_window_s: float = 600.0
    clamp_after_s: float = 2.0
    lease_limit_s: float = 3600.0
    journal_retry_s: float = 1.0
    journal_patience_s: float = 0.5
    deadline_lag_share: float = 1 / 3
    start_read_failures: int = 3


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class HeldGrant:
    """A grant taken in.

    `revision` is the journal revision that holds it, `journalled_deadline_s` the lease end on its way to the disk,
    never later than `deadline_s`.
    """

    term: Term
    sequence: int
    cap_w: int
    fallback_w: int
    lease_s: float
    deadline_s: float
    journalled_deadline_s: float
    revision: int
    expired: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """A driver call of ours that has not returned. `sequence` is the grant that it serves, 0 for none."""

    number: int
    cap_w: int
    issued_s: float
    sequence: int
    late: bool = False


@dataclass(frozen=True, slots=True)
class Intent:
    """A lower about to be written, decided at `since_s`; `revision` is the journal revision that tells of it."""

    cap_w: int
    revision: int
    since_s: float


@dataclass(frozen=True, slots=True)
class GpuLease:
    """One GPU.

    `grant` is in force; `incoming` is a raise that waits for the journal. `term` and `sequence` are of the last
    grant taken, remembered without it after a reboot. `ceiling_w` is the most that may stand in the driver;
    `raise_due` says that the grant's cap above what stands may be written once. `asked_w` is what we last wrote,
    `obeyed` whether a read-back has shown it, `expected_w` what the last read-back showed as requested. `intent`
    is a lower on its way to the journal, `write` is in flight, `unread` have returned and were not read back yet,
    `former` are a dead process's. `fresh` means no lease worth keeping at start, `placed` that the ceiling is set.
    """

    device: Device
    term: Term | None = None
    sequence: int = 0
    seen_sequence: int = 0
    confirmed_sequence: int = 0
    applied_sequence: int = 0
    grant: HeldGrant | None = None
    incoming: HeldGrant | None = None
    fresh: bool = True
    placed: bool = False
    ceiling_w: int | None = None
    raise_due: bool = False
    requested_w: int | None = None
    enforced_w: int | None = None
    enforced_since_s: float | None = None
    highest_w: int | None = None
    asked_w: int | None = None
    expected_w: int | None = None
    obeyed: bool = True
    intent: Intent | None = None
    write: Write | None = None
    returned_s: float = NEVER_S
    unread: tuple[WriteRecord, ...] = ()
    former: tuple[WriteRecord, ...] = ()
    hung: bool = False
    lower_tries: int = 0
    next_try_s: float = NEVER_S
    overridden: bool = False
    corrections: tuple[float, ...] = ()
    contested: bool = False
    overrides: int = 0
    override_w: int | None = None
    read_failures: int = 0
    clamp_due_s: float | None = None

    @property
    def gpu(self) -> GpuId:
        """Return the GPU's UUID."""
        return self.device.gpu

    @property
    def min_w(self) -> int:
        """Return the smallest cap that the driver takes, 0 for a GPU without caps."""
        return self.device.min_cap_w or 0

    @property
    def known(self) -> bool:
        """Whether the driver's cap was ever read."""
        return self.requested_w is not None or self.enforced_w is not None

    @property
    def in_force_w(self) -> int | None:
        """Return the lowest of what was read back: the cap that binds now; None when nothing was read."""
        values = [value for value in (self.requested_w, self.enforced_w) if value is not None]
        return min(values) if values else None

    @property
    def level_w(self) -> int | None:
        """Return the most that may stand now, returned writes included.

        An unknown request counts as our last one, else as the maximum.
        """
        requested_w = self.requested_w
        if requested_w is None:
            requested_w = self.asked_w if self.asked_w is not None else self.device.max_cap_w
        values = [value for value in (requested_w, self.enforced_w) if value is not None]
        values.extend(record.cap_w for record in self.unread)
        return max(values) if values else None

    @property
    def quiet(self) -> bool:
        """Whether no write is in flight or unread: what was read back is what stands."""
        return self.write is None and not self.unread and not self.former

    @property
    def floor_w(self) -> int | None:
        """Return the ceiling as the driver can take it: never below its minimum."""
        return None if self.ceiling_w is None else max(self.ceiling_w, self.min_w)

    @property
    def leased(self) -> bool:
        """Whether a lease is running."""
        return self.grant is not None and not self.grant.expired


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The node's leases. `saving` is the journal revision on its way to the disk, `saved` the last one there."""

    boot_id: str
    recall: Recall
    gpus: Mapping[GpuId, GpuLease] = field(default_factory=dict)
    strangers: tuple[GpuRecord, ...] = ()
    term: Term | None = None
    term_revision: int = 0
    journalled_term: Term | None = None
    revision: int = 0
    saving: int | None = None
    saved: int = 0
    journal_detail: str = ""
    journal_retry_s: float = NEVER_S
    former_writer_alive: bool = False
    next_number: int = 1
    limits: Limits = DEFAULT_LIMITS


def image_of(state: LeaseState) -> JournalImage:
    """Return what the journal must hold for this state; records of GPUs not seen in this run are kept."""
    records = tuple(_record(gpu) for gpu in state.gpus.values())
    return JournalImage(boot_id=state.boot_id, term=state.term, gpus=records + state.strangers)


def _record(gpu: GpuLease) -> GpuRecord:
    grant = gpu.incoming or gpu.grant
    writes = [*gpu.former, *gpu.unread]
    if gpu.write is not None:
        writes.append(WriteRecord(gpu.write.cap_w, gpu.write.issued_s))
    if gpu.intent is not None:
        writes.append(WriteRecord(gpu.intent.cap_w, gpu.intent.since_s))
    if grant is not None and (gpu.incoming is not None or gpu.raise_due):
        writes.append(WriteRecord(grant.cap_w, grant.deadline_s - grant.lease_s))
    return GpuRecord(
        gpu=gpu.gpu,
        term=grant.term if grant else gpu.term,
        sequence=grant.sequence if grant else gpu.sequence,
        seen_sequence=gpu.seen_sequence,
        applied_sequence=gpu.applied_sequence,
        cap_w=grant.cap_w if grant else None,
        fallback_w=grant.fallback_w if grant else None,
        deadline_s=grant.journalled_deadline_s if grant else None,
        writes=tuple(writes),
    )
