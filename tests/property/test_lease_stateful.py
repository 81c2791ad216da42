"""Everything at once: two GPUs, three controllers, lossy orders, hangs, a full disk, overrides, crashes, reboots.

The checks know the truth by themselves: the drivers' caps, the grants delivered, the terms seen. They never ask
the keeper whether it may.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rackpower_agent.lease.events import DeviceBack, Reported, Tick, Welcomed, WriteCap
from rackpower_common.model.identity import GpuId, Term
from rackpower_common.model.messages import WriteFailure
from support.lease_node import DEFAULT_W, MIN_W, LeaseNode, device, grant

NAMES = ("GPU-0", "GPU-1")
GPUS = st.sampled_from(NAMES)
CAPS_W = st.sampled_from([MIN_W, 300, 400, 500, 600, 700, 800, DEFAULT_W])
TERMS = st.builds(Term, st.integers(1, 4), st.sampled_from("ab"))
LEASES_S = st.sampled_from([1.0, 5.0, 15.0])


@dataclass
class Delivered:
    """A grant that passed the fence, as the test counts it."""

    term: Term
    cap_w: int
    fallback_w: int
    deadline_s: float
    boot: str


class Lease(RuleBasedStateMachine):
    """Drives the node; `deadlines` and `highest` are the reference."""

    @initialize()
    def begin(self) -> None:
        """Start without a journal."""
        self.node = LeaseNode(*(device(name) for name in NAMES))
        self.delivered: dict[tuple[str, int], Delivered] = {}
        self.highest: Term | None = None
        self.sequence = dict.fromkeys(NAMES, 0)
        self.applied = dict.fromkeys(NAMES, 0)
        self.since = dict.fromkeys(NAMES, 0)
        self.hung: set[str] = set()
        self.checked = 0
        self.zombie = False
        self.node.start()

    # --- what the network brings ------------------------------------------------------------------------

    def fenced(self, offered: Term) -> bool:
        """Tell by the written rule whether a term is fenced."""
        if self.highest is None or offered == self.highest:
            return False
        return offered.number <= self.highest.number

    @rule(offered=TERMS)
    def welcome(self, offered: Term) -> None:
        """Some controller opens its term."""
        if not self.fenced(offered):
            self.highest = offered
        self.node.feed(Welcomed(offered))

    @rule(
        name=GPUS,
        cap_w=CAPS_W,
        fallback_w=CAPS_W,
        lease_s=LEASES_S,
        by=TERMS,
        jump=st.sampled_from([-1, 0, 1, 1, 1, 3]),
    )
    def grant(self, name: str, cap_w: int, fallback_w: int, lease_s: float, by: Term, jump: int) -> None:
        """Deliver a grant, new or old, by whichever controller."""
        sequence = max(self.sequence[name] + jump, 1)
        if not self.fenced(by):
            self.highest = by
            if sequence > self.sequence[name]:
                self.sequence[name] = sequence
                self.since[name] = len(self.history(name)) - 1
                deadline_s = self.node.now_s + lease_s
                self.delivered[name, sequence] = Delivered(by, cap_w, fallback_w, deadline_s, self.node.boot_id)
        self.node.send(grant(sequence, cap_w, fallback_w=fallback_w, lease_s=lease_s, gpu=name), by=by)

    @rule(name=GPUS, lease_s=LEASES_S, by=TERMS, back=st.sampled_from([0, 0, 0, 1]))
    def renew(self, name: str, lease_s: float, by: Term, back: int) -> None:
        """Deliver a renewal; the reference extends only what it names, and never what has run out."""
        sequence = self.sequence[name] - back
        known = self.delivered.get((name, sequence))
        if not self.fenced(by):
            self.highest = by
            if known is not None and known.term == by and self.node.now_s < known.deadline_s:
                known.deadline_s = self.node.now_s + lease_s
        self.node.renew(sequence, lease_s, by=by, gpu=name)

    @rule(duration_s=st.sampled_from([0.1, 0.6, 1.0, 4.0, 20.0]))
    def wait(self, duration_s: float) -> None:
        """Let time pass."""
        self.node.pass_time(duration_s)

    # --- what driver and disk do ------------------------------------------------------------------------

    @rule(name=GPUS, outcome=st.sampled_from(["obeys", "obeys", "obeys", "refuses", "fails but lands", "lies"]))
    def write_returns(self, name: str, outcome: str) -> None:
        """A driver call returns."""
        if not self.under_way(name) or self.zombie:
            return
        failure = WriteFailure.REFUSED if outcome in {"refuses", "fails but lands"} else None
        self.node.finish_write(name, failure, lands=outcome in {"obeys", "fails but lands"})
        if name in self.hung:
            self.hung.discard(name)
            self.node.feed(DeviceBack(GpuId(name)))

    @rule(name=GPUS)
    def write_hangs(self, name: str) -> None:
        """A driver call passes its deadline."""
        if self.under_way(name) and not self.zombie and name not in self.hung:
            self.hung.add(name)
            self.node.hang(name)

    @rule(fails=st.sampled_from([False, False, False, True]))
    def read_returns(self, fails: bool) -> None:
        """The oldest read returns."""
        if self.node.reads:
            self.node.finish_read(fails=fails)

    @rule()
    def save_returns(self) -> None:
        """The save under way returns."""
        if self.node.saving is not None:
            self.node.finish_save()

    @rule(full=st.booleans())
    def disk(self, full: bool) -> None:
        """The disk fills up or has room again."""
        self.node.disk_full = full

    @rule(name=GPUS, cap_w=CAPS_W)
    def override(self, name: str, cap_w: int) -> None:
        """Somebody else sets the cap, and it is read before anything else happens."""
        if self.under_way(name) or self.node.reads or self.zombie:
            return
        self.node.drivers[GpuId(name)].hold(cap_w)
        self.node.reads.append((GpuId(name), self.node.now_s))
        self.node.finish_read()

    def under_way(self, name: str) -> list[WriteCap]:
        """Return the driver calls that have not returned."""
        return self.node.drivers[GpuId(name)].under_way

    def history(self, name: str) -> list[int]:
        """Return every cap that the driver ever held."""
        return self.node.drivers[GpuId(name)].history

    # --- what happens to the process --------------------------------------------------------------------

    @rule(lost=st.sampled_from([False, False, True]), lives=st.booleans())
    def crash(self, lost: bool, lives: bool) -> None:
        """Kill and restart the agent; calls that the disk knows of may outlive it."""
        if self.zombie:
            return
        self.zombie = lives and not lost and self.journalled_writes()
        self.node.crash(journal_lost=lost, writer_alive=self.zombie)
        self.forget()

    @rule()
    def reboot(self) -> None:
        """Power-cycle the node."""
        self.zombie = False
        self.node.reboot()
        self.forget()

    @precondition(lambda self: self.zombie)
    @rule()
    def writer_leaves(self) -> None:
        """The dead process's calls take effect, and it leaves the kernel."""
        self.zombie = False
        self.node.writer_leaves()

    def journalled_writes(self) -> bool:
        """Tell whether the disk knows of every call under way."""
        disk = self.node.disk
        known = {record.gpu: {write.cap_w for write in record.writes} for record in disk.gpus} if disk else {}
        return all(write.cap_w in known.get(GpuId(name), set()) for name in NAMES for write in self.under_way(name))

    def forget(self) -> None:
        """Bring the reference down to what the disk can know: terms, sequences and lease ends."""
        self.hung.clear()
        self.highest = self.node.keeper.highest_term
        for name in NAMES:
            gpu = self.node.keeper.state.gpus[GpuId(name)]
            self.sequence[name] = gpu.seen_sequence
            self.applied[name] = gpu.applied_sequence
            self.since[name] = 0
        self.node.raises.clear()
        self.checked = 0

    # --- what must hold ---------------------------------------------------------------------------------

    @invariant()
    def every_raise_has_a_running_journalled_lease(self) -> None:
        """Invariants 4, 5 and 8: a raise serves the newest grant that passed the fence, journalled and running."""
        for issued in self.node.raises[self.checked :]:
            write, disk = issued.write, issued.disk
            served = self.delivered[str(write.gpu), self.sequence[str(write.gpu)]]
            assert served.cap_w == write.cap_w
            assert served.boot == self.node.boot_id
            assert issued.at_s < served.deadline_s
            assert disk is not None
            record = next(record for record in disk.gpus if record.gpu == write.gpu)
            assert (record.cap_w, record.term, record.fallback_w) == (served.cap_w, served.term, served.fallback_w)
        self.checked = len(self.node.raises)

    @invariant()
    def the_holding_never_understates_the_driver(self) -> None:
        """Invariant 1: what the driver holds, or may yet be told, is in the books."""
        for name in NAMES:
            held = self.node.holding(name)
            if held.requested_w is None:
                continue
            booked_w = [held.requested_w, held.enforced_w or 0, *(write.cap_w for write in held.pending_writes)]
            assert self.node.cap_w(name) <= max(booked_w)
            assert all(write.cap_w <= max(booked_w) for write in self.under_way(name))

    @invariant()
    def an_acknowledgement_was_read_back_and_journalled(self) -> None:
        """Invariants 2, 5 and 6: the driver has shown the grant's cap, and the disk holds its sequence."""
        for name in NAMES:
            applied = self.node.holding(name).applied_sequence
            if applied <= self.applied[name]:
                continue
            self.applied[name] = applied
            assert self.delivered[name, applied].cap_w in self.history(name)[self.since[name] :]
            assert self.node.disk is not None
            record = next(record for record in self.node.disk.gpus if record.gpu == name)
            assert record.seen_sequence >= applied

    @invariant()
    def the_disk_never_knows_a_longer_lease(self) -> None:
        """Invariant 5: a restart believes no lease that has ended."""
        if self.node.disk is None or self.node.disk.boot_id != self.node.boot_id:
            return
        for record in self.node.disk.gpus:
            known = self.delivered.get((str(record.gpu), record.sequence))
            if known is not None and record.deadline_s is not None and known.boot == self.node.boot_id:
                assert (
                    record.deadline_s <= known.deadline_s + 1e-9 or self.node.saving is not None or self.node.disk_full
                )

    @invariant()
    def the_highest_term_reported_is_on_the_disk(self) -> None:
        """Invariant 8: what is reported as accepted outlives a restart."""
        told = self.node.keeper.highest_term
        if told is not None:
            assert self.node.disk is not None
            assert self.node.disk.term is not None
            assert self.node.disk.term.number >= told.number

    @precondition(lambda self: not self.zombie)
    @rule()
    def comes_to_rest(self) -> None:
        """Invariant 4, liveness: with an obeying driver and no lease left, at most the fallback stands."""
        node = self.node
        node.disk_full = False
        node.settle()
        for name in sorted(self.hung):
            node.feed(DeviceBack(GpuId(name)))
        self.hung.clear()
        for _ in range(3):
            node.pass_time(61.0)
            node.poll()
        node.feed(Tick())
        node.feed(Reported())
        for name in NAMES:
            fallbacks_w = [grant.fallback_w for (gpu, _), grant in self.delivered.items() if gpu == name]
            assert node.cap_w(name) <= max([MIN_W, *fallbacks_w])
        assert node.keeper.ready()


TestLease = Lease.TestCase
TestLease.settings = settings(stateful_step_count=50)
