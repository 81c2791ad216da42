"""The lease keeper: `step(state, event, now_s)` gives the next state and what to do. No I/O, no clock.

The shell feeds it every event in the order in which it happened and carries every action out; the simulator
does the same on virtual time. `LeaseKeeper` holds the state for those who want an object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from rackpower_agent.lease import grants, readback, restart, views
from rackpower_agent.lease.events import (
    Action,
    BatchReceived,
    CapRead,
    CapReadFailed,
    Closing,
    DeviceBack,
    DeviceHung,
    DevicesListed,
    Event,
    FormerWriterGone,
    JournalFailed,
    Journalled,
    Level,
    ReadCap,
    Reported,
    SaveJournal,
    Tell,
    Tick,
    Welcomed,
    WriteLate,
    WriteReturned,
)
from rackpower_agent.lease.memory import Memory
from rackpower_agent.lease.state import DEFAULT_LIMITS, NEVER_S, GpuLease, LeaseState, Limits, image_of
from rackpower_agent.lease.writing import Step, reconcile
from rackpower_common.model.device import Device
from rackpower_common.model.identity import GpuId, Term
from rackpower_common.model.messages import GrantBatch, Holding, Report, WriteError, WriteFailure

GpuEvent = CapRead | CapReadFailed | WriteReturned | WriteLate | DeviceHung | DeviceBack


def step(state: LeaseState, event: Event, now_s: float) -> tuple[LeaseState, tuple[Action, ...]]:
    """Return the state after an event, and the actions to carry out in order.

    Args:
        state: The state before.
        event: What happened.
        now_s: Boot clock, seconds; never falls.

    Raises:
        InvariantError: A fact of the safety argument does not hold; the caller then writes `views.emergency_caps`.
    """
    work = Step(
        now_s=now_s,
        limits=state.limits,
        saved=state.saved,
        revision=state.revision,
        next_number=state.next_number,
        former_writer_alive=state.former_writer_alive,
        journal_fails=bool(state.journal_detail),
    )
    state = _ended_leases(work, state)
    match event:
        case Welcomed():
            state = _welcomed(work, state, event.term)
        case BatchReceived():
            state = _batch(work, state, event.batch)
        case CapRead() | CapReadFailed() | WriteReturned() | WriteLate() | DeviceHung() | DeviceBack():
            state = _gpu_event(work, state, event)
        case Journalled():
            state = _journalled(work, state, event)
        case JournalFailed():
            state = _journal_failed(work, state, event)
        case FormerWriterGone():
            state = _former_writer_gone(work, state)
        case DevicesListed():
            state = restart.admit(state, event.devices, now_s)
            work.actions.extend(ReadCap(device.gpu) for device in event.devices)
            work.dirty = True
        case Reported():
            state = _reported(state, event.told)
        case Closing():
            state = _each(state, _exact_deadline)
            work.dirty = True
        case Tick():
            state = _each(state, lambda gpu: readback.tell_clamped(work, gpu))
    return _finish(work, state)


def _each(state: LeaseState, change: Callable[[GpuLease], GpuLease]) -> LeaseState:
    changed = {}
    for name, gpu in state.gpus.items():
        new = change(gpu)
        if new is not gpu:
            changed[name] = new
    return replace(state, gpus={**state.gpus, **changed}) if changed else state


def _with(state: LeaseState, gpu: GpuLease) -> LeaseState:
    if state.gpus[gpu.gpu] is gpu:
        return state
    return replace(state, gpus={**state.gpus, gpu.gpu: gpu})


def _ended_leases(work: Step, state: LeaseState) -> LeaseState:
    return _each(state, lambda gpu: grants.end_lease(work, gpu))


def _welcomed(work: Step, state: LeaseState, term: Term) -> LeaseState:
    if grants.term_is_refused(state.term, term):
        work.note(Level.WARNING, "term_refused", f"term {term} is fenced: the highest seen is {state.term}")
        work.report_soon()
        return state
    if state.term == term:
        return state
    return replace(state, term=term, term_revision=work.next_revision())


def _batch(work: Step, state: LeaseState, batch: GrantBatch) -> LeaseState:
    if grants.term_is_refused(state.term, batch.term):
        for grant in batch.grants:
            gpu = state.gpus.get(grant.gpu)
            error = WriteError(
                grant.gpu,
                batch.term,
                grant.sequence,
                grant.cap_w,
                WriteFailure.OLD_TERM,
                f"the highest term seen is {state.term}",
                gpu.enforced_w if gpu is not None else None,
            )
            work.actions.append(Tell(error))
        work.report_soon()
        return state
    state = _welcomed(work, state, batch.term)
    for grant in batch.grants:
        gpu = state.gpus.get(grant.gpu)
        if gpu is None:
            detail = "this node has no such GPU"
            work.actions.append(
                Tell(WriteError(grant.gpu, batch.term, grant.sequence, grant.cap_w, WriteFailure.LOST, detail))
            )
            continue
        state = _with(state, grants.take_grant(work, gpu, batch.term, grant))
    for renewal in batch.renewals:
        gpu = state.gpus.get(renewal.gpu)
        if gpu is None:
            work.report_soon()
            continue
        state = _with(state, grants.renew(work, gpu, batch.term, renewal))
    return state


def _gpu_event(work: Step, state: LeaseState, event: GpuEvent) -> LeaseState:
    gpu = state.gpus.get(event.gpu)
    if gpu is None:
        return state
    match event:
        case CapRead():
            gpu = readback.cap_read(work, gpu, event)
        case CapReadFailed():
            gpu = readback.cap_read_failed(work, gpu, event)
        case WriteReturned():
            gpu = readback.write_returned(work, gpu, event)
        case WriteLate():
            gpu = readback.write_late(work, gpu, event)
        case DeviceHung():
            gpu = replace(gpu, hung=True)
            work.report_soon()
        case DeviceBack():
            gpu = replace(gpu, hung=False)
            work.actions.append(ReadCap(gpu.gpu))
            work.report_soon()
    return _with(state, gpu)


def _journalled(work: Step, state: LeaseState, event: Journalled) -> LeaseState:
    work.saved = max(state.saved, event.revision)
    work.journal_fails = False
    state = replace(state, saving=None, saved=work.saved, journal_detail="", journal_retry_s=NEVER_S)
    if state.journalled_term != state.term and state.term_revision <= work.saved:
        work.report_soon()
        state = replace(state, journalled_term=state.term)

    def saved(gpu: GpuLease) -> GpuLease:
        return readback.acknowledge(work, grants.settle_incoming(work, gpu))

    return _each(state, saved)


def _journal_failed(work: Step, state: LeaseState, event: JournalFailed) -> LeaseState:
    work.journal_fails = True
    work.note(Level.ERROR, "journal_failed", f"the journal cannot be written, raises are refused: {event.detail}")
    state = replace(
        state, saving=None, journal_detail=event.detail, journal_retry_s=work.now_s + work.limits.journal_retry_s
    )
    return _each(state, lambda gpu: grants.refuse_unjournalled(work, gpu, event.detail))


def _former_writer_gone(work: Step, state: LeaseState) -> LeaseState:
    work.former_writer_alive = False
    work.actions.extend(ReadCap(gpu.gpu) for gpu in state.gpus.values() if gpu.former)
    return _each(
        replace(state, former_writer_alive=False),
        lambda gpu: replace(gpu, returned_s=work.now_s) if gpu.former else gpu,
    )


def _reported(state: LeaseState, told: Report | None) -> LeaseState:
    lines = {line.gpu: line for line in told.gpus} if told is not None else None

    def anew(gpu: GpuLease) -> GpuLease:
        line = lines.get(gpu.gpu) if lines is not None else None
        highest_told = lines is None or (line is not None and line.holding.highest_enforced_w == gpu.highest_w)
        override_told = lines is None or (line is not None and line.override_w == gpu.override_w)
        highest_w = gpu.enforced_w if highest_told else gpu.highest_w
        override_w = None if override_told else gpu.override_w
        if (highest_w, override_w) == (gpu.highest_w, gpu.override_w):
            return gpu
        return replace(gpu, highest_w=highest_w, override_w=override_w)

    return _each(state, anew)


def _exact_deadline(gpu: GpuLease) -> GpuLease:
    grant = gpu.grant
    return gpu if grant is None else replace(gpu, grant=replace(grant, journalled_deadline_s=grant.deadline_s))


def _finish(work: Step, state: LeaseState) -> tuple[LeaseState, tuple[Action, ...]]:
    """Write what is due, and ask for one journal save when there is something new and none is under way."""
    state = _each(state, lambda gpu: reconcile(work, gpu))
    still = (name for name in work.verify if state.gpus[name].quiet and state.gpus[name].intent is None)
    work.actions.extend(ReadCap(name) for name in still)
    revision = state.revision + 1 if work.dirty else state.revision
    if (revision, work.next_number) != (state.revision, state.next_number):
        state = replace(state, revision=revision, next_number=work.next_number)
    due = state.revision > state.saved and (
        work.dirty or not state.journal_detail or work.now_s >= state.journal_retry_s
    )
    if due and state.saving is None:
        state = replace(state, saving=state.revision)
        work.actions.insert(0, SaveJournal(state.revision, image_of(state)))
    return state, tuple(work.actions)


class LeaseKeeper:
    """The state in a box: `handle` replaces it and returns the actions."""

    def __init__(
        self, devices: Iterable[Device], memory: Memory, boot_id: str, now_s: float, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self._devices = tuple(devices)
        self.state = restart.begin(self._devices, memory, boot_id, now_s, limits)

    def start(self, now_s: float) -> tuple[Action, ...]:
        """Return the first actions: journal what is remembered, read every cap."""
        return self.handle(DevicesListed(self._devices), now_s)

    def handle(self, event: Event, now_s: float) -> tuple[Action, ...]:
        """Take an event in; the actions must be carried out in order."""
        self.state, actions = step(self.state, event, now_s)
        return actions

    def holding(self, gpu: GpuId, now_s: float) -> Holding:
        """Return what is held for one GPU."""
        return views.holding(self.state, gpu, now_s)

    def holdings(self, now_s: float) -> tuple[Holding, ...]:
        """Return what is held for every GPU."""
        return views.holdings(self.state, now_s)

    def ready(self) -> bool:
        """Return whether every GPU stands at a safe cap or is known not to obey."""
        return views.ready(self.state)

    @property
    def highest_term(self) -> Term | None:
        """Return the highest term accepted *and* journalled, for hello and report."""
        return self.state.journalled_term

    @property
    def journal_read(self) -> bool:
        """Whether the journal was read at start."""
        return self.state.recall.value != "lost"
