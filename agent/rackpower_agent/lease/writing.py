"""When a cap is written: the one place that asks the driver for anything."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rackpower_agent.lease.events import Action, Level, Note, ReportSoon, Tell, WriteCap
from rackpower_agent.lease.state import GpuLease, Intent, Limits, Write
from rackpower_common.errors import invariant
from rackpower_common.model.identity import GpuId
from rackpower_common.model.messages import WriteError, WriteFailure


@dataclass(slots=True)
class Step:
    """One step in the making: what is the same for all GPUs, and what comes out.

    `dirty` asks for a journal save of the new state, `verify` for a read-back of GPUs that nothing is written to.
    """

    now_s: float
    limits: Limits
    saved: int
    revision: int
    next_number: int
    former_writer_alive: bool
    journal_fails: bool = False
    actions: list[Action] = field(default_factory=list)
    dirty: bool = False
    verify: list[GpuId] = field(default_factory=list)

    def next_revision(self) -> int:
        """Ask for a save and return the revision that it will carry."""
        self.dirty = True
        return self.revision + 1

    def tell(self, gpu: GpuLease, reason: WriteFailure, detail: str, cap_w: int, sequence: int) -> None:
        """Tell the controller that a grant could not be applied."""
        error = WriteError(gpu.gpu, gpu.term, sequence, cap_w, reason, detail, gpu.enforced_w)
        self.actions.append(Tell(error))
        self.report_soon()

    def note(self, level: Level, word: str, message: str, gpu: GpuId | None = None) -> None:
        """Leave a line for the log."""
        self.actions.append(Note(level, word, message, gpu))

    def report_soon(self) -> None:
        """Ask for a report before the next period, once a step."""
        if not any(isinstance(action, ReportSoon) for action in self.actions):
            self.actions.append(ReportSoon())


def reconcile(step: Step, gpu: GpuLease) -> GpuLease:
    """Write what is due: a lower whenever more stands than may stand, a granted raise once. Never two at a time."""
    if gpu.write is not None or gpu.former or gpu.hung or not gpu.device.cappable:
        return gpu
    if gpu.floor_w is None or (gpu.unread and not gpu.read_failures):
        return gpu
    level_w = gpu.level_w
    if level_w is None or level_w > gpu.floor_w:
        return _lower(step, gpu, gpu.floor_w)
    if gpu.intent is not None:
        gpu = replace(gpu, intent=None)
    if gpu.raise_due and gpu.quiet:
        return _raise(step, gpu)
    return gpu


def _lower(step: Step, gpu: GpuLease, cap_w: int) -> GpuLease:
    """Lower once the journal tells of it: a call that outlives this process must be known to the next one."""
    if gpu.contested and gpu.leased:
        return gpu
    if step.now_s < gpu.next_try_s:
        return gpu
    intent = gpu.intent
    if intent is None or intent.cap_w != cap_w:
        intent = Intent(cap_w, step.next_revision(), step.now_s)
        gpu = replace(gpu, intent=intent)
    patient = step.now_s < intent.since_s + step.limits.journal_patience_s and not step.journal_fails
    if step.saved < intent.revision and patient:
        return gpu
    if gpu.overridden and not gpu.lower_tries:
        gpu = _count_correction(step, gpu)
        if gpu.contested and gpu.leased:
            return gpu
    tries = gpu.lower_tries + 1
    spent = tries >= step.limits.lower_tries or gpu.contested
    gap_s = step.limits.slow_retry_s if spent else step.limits.retry_gap_s
    gpu = replace(gpu, lower_tries=tries, next_try_s=step.now_s + gap_s, raise_due=False, intent=None)
    if tries > step.limits.lower_tries and gpu.leased:
        return gpu
    return _issue(step, gpu, cap_w)


def _count_correction(step: Step, gpu: GpuLease) -> GpuLease:
    recent = tuple(at_s for at_s in gpu.corrections if step.now_s - at_s < step.limits.correction_window_s)
    if len(recent) >= step.limits.corrections:
        if not gpu.contested:
            minutes = step.limits.correction_window_s / 60
            step.note(
                Level.ERROR,
                "override_contested",
                f"GPU {gpu.gpu}: its cap was changed by somebody else and put right {len(recent)} times within "
                f"{minutes:g} minutes; giving up until the next grant: find the other power manager on this node",
                gpu.gpu,
            )
            step.report_soon()
        return replace(gpu, corrections=recent, contested=True)
    return replace(gpu, corrections=(*recent, step.now_s))


def _raise(step: Step, gpu: GpuLease) -> GpuLease:
    grant = gpu.grant
    if grant is None or grant.expired:
        return replace(gpu, raise_due=False)
    cap_w = min(grant.cap_w, gpu.device.max_cap_w or grant.cap_w)
    stands_w = gpu.requested_w if gpu.requested_w is not None else gpu.level_w
    if gpu.known and stands_w is not None and cap_w <= stands_w:
        return replace(gpu, raise_due=False)
    if step.saved < grant.revision:
        return gpu
    return _issue(step, replace(gpu, raise_due=False), cap_w)


def _issue(step: Step, gpu: GpuLease, cap_w: int) -> GpuLease:
    """Emit the write, and hold the safety argument where a cap is applied."""
    level_w = gpu.level_w
    if level_w is not None and cap_w > level_w:
        grant = gpu.grant
        invariant(
            grant is not None and not grant.expired and cap_w <= grant.cap_w and step.now_s < grant.deadline_s,
            4,
            f"GPU {gpu.gpu}: a raise from {level_w} W to {cap_w} W without a running lease for it",
        )
        invariant(
            grant is not None and step.saved >= grant.revision,
            5,
            f"GPU {gpu.gpu}: a raise to {cap_w} W before its grant is in the journal",
        )
    alone = gpu.write is None and not gpu.former and not gpu.hung
    invariant(alone, 6, f"GPU {gpu.gpu}: a second write while one has not returned")
    number = step.next_number
    step.next_number += 1
    step.actions.append(WriteCap(gpu.gpu, cap_w, number))
    sequence = gpu.grant.sequence if gpu.grant is not None else 0
    return replace(gpu, write=Write(number, cap_w, step.now_s, sequence))
