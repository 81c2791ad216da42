"""An integer water-fill: watts go where they bring most, as far as every limit above them allows.

It answers when a solver is late, hands room to raises, sheds by priority, and is the oracle of the planner's tests.
Exact on nested limits; where losses round or feeds cross it leaves no watt that still fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rackpower_controller.core.groups import Group, alike_groups, spread
from rackpower_controller.core.planning import PlanRequest
from rackpower_controller.core.power_tree import Bools, Ints, PowerTree


def waterfill(request: PlanRequest, by_priority: bool = False) -> tuple[int, ...]:
    """Return caps in request order that keep every ceiling.

    Watts go to the steepest segments first, counted by what they cost at the root; equally steep ones of different
    nodes rise together. Where not even the minima fit, the GPUs below get their `lo_w`.

    Args:
        request: What may move.
        by_priority: Fill the most important GPUs first, and up to `hi_w` even where a watt brings nothing: what stands
            gives way only where a limit needs it, the least important first.
    """
    if not request.gpus:
        return ()
    pool = Pool.of(request, by_priority=by_priority)
    return pool.caps_w(pool.fill(np.zeros_like(pool.width_w), pool.width_w))


@dataclass(frozen=True, slots=True)
class Pool:
    """A request as entries, one for each segment of each group, in the order in which they are filled.

    `turn` numbers the entries that rise together; `width_w` is a segment's width times the group's GPUs.
    """

    tree: PowerTree
    groups: tuple[Group, ...]
    minima_w: Ints
    group: Ints
    node: Ints
    turn: Ints
    count: Ints
    width_w: Ints

    @classmethod
    def of(cls, request: PlanRequest, *, by_priority: bool = False) -> Pool:
        """Return the entries of a request."""
        tree, groups = PowerTree.of(request), alike_groups(request)
        node = np.array([group.node for group in groups], dtype=np.int64)
        count = np.array([len(group.members) for group in groups], dtype=np.int64)
        lo_w = np.array([group.lo_w for group in groups], dtype=np.int64)
        minima_w = np.bincount(node, weights=lo_w * count, minlength=len(request.nodes)).astype(np.int64)
        pieces = [(number, piece) for number, group in enumerate(groups) for piece in group.segments]
        number = np.array([number for number, _piece in pieces], dtype=np.int64)
        width_w = np.array([piece.width_w for _number, piece in pieces], dtype=np.int64)
        slope = np.array([piece.slope for _number, piece in pieces], dtype=np.float64)
        slope /= np.array(tree.root_watts(request), dtype=np.float64)[node[number]]
        rank = np.zeros(len(pieces), dtype=np.int64)
        if by_priority:
            beyond_w = np.array([group.hi_w for group in groups], dtype=np.int64) - lo_w
            beyond_w -= np.bincount(number, weights=width_w, minlength=len(groups)).astype(np.int64)
            number = np.concatenate([number, np.arange(len(groups))])
            width_w = np.concatenate([width_w, beyond_w])
            slope = np.concatenate([slope, np.zeros(len(groups))])
            rank = np.array([-group.priority for group in groups], dtype=np.int64)[number]
        order = np.lexsort((number, -slope, rank))  # stable: a group's equal segments stay in their order
        number, slope, rank = number[order], slope[order], rank[order]
        turn = np.zeros(len(order), dtype=np.int64)
        turn[1:] = np.cumsum((np.diff(slope) != 0.0) | (np.diff(rank) != 0))
        return cls(tree, groups, minima_w, number, node[number], turn, count[number], width_w[order] * count[number])

    def below(self, groups_w: Sequence[int]) -> Ints:
        """Return the entries filled as far as these watts above Σ minima go, one figure a group, each in its order."""
        left_w = np.array(groups_w, dtype=np.int64)
        taken_w = np.zeros_like(self.width_w)
        for entry, number in enumerate(self.group):
            taken_w[entry] = max(0, min(self.width_w[entry], left_w[number]))
            left_w[number] -= taken_w[entry]
        return taken_w

    def caps_w(self, taken_w: Ints) -> tuple[int, ...]:
        """Return caps in request order for filled entries."""
        above_w = np.bincount(self.group, weights=taken_w, minlength=len(self.groups))
        return spread(self.groups, above_w.astype(np.int64))

    def fill(self, taken_w: Ints, limit_w: Ints) -> Ints:
        """Return entries filled on from `taken_w` towards `limit_w` as far as every limit allows.

        Args:
            taken_w: Where to start, in watts; must keep every limit that the minima keep.
            limit_w: Where to end, in watts.
        """
        filling = _Filling(self, taken_w.copy(), limit_w - taken_w)
        filling.run()
        return filling.taken_w


class _Filling:
    """One fill under way. Every round meets at least one limit for good, so there are no more rounds than limits."""

    def __init__(self, pool: Pool, taken_w: Ints, want_w: Ints) -> None:
        self.pool = pool
        self.taken_w = taken_w
        self.want_w = want_w
        self.nodes = len(pool.minima_w)
        self.turns = int(pool.turn[-1]) + 1 if len(pool.turn) else 0
        self.sums_w = pool.minima_w + self._by_node(taken_w)
        over_at_minima = pool.tree.over(pool.minima_w[:, None])
        self.fits_at_all = ~over_at_minima
        self.hopeless = pool.tree.carried_by[pool.node][:, over_at_minima[:, 0]].any(axis=1)
        self.open = ~self.hopeless & (want_w > 0)

    def run(self) -> None:
        """Fill until nothing is open, then hand out what only rounding had hidden."""
        while self.open.any():
            turn = self._whole_turns()
            if turn is None:
                break
            self._part_of(turn)
        if not self.pool.tree.whole:
            while self._hidden_watts():
                pass

    def _by_node(self, watts: Ints) -> Ints:
        return np.bincount(self.pool.node, weights=watts, minlength=self.nodes).astype(np.int64)

    def _over(self, gpus_w: Ints) -> Bools:
        return self.pool.tree.over(gpus_w) & self.fits_at_all

    def _take(self, entries: Ints, watts: Ints) -> None:
        self.taken_w[entries] += watts
        self.want_w[entries] -= watts
        np.add.at(self.sums_w, self.pool.node[entries], watts)
        self.open &= self.want_w > 0

    def _close(self, full: Bools) -> None:
        self.open &= ~self.pool.tree.carried_by[self.pool.node][:, full].any(axis=1)

    def _whole_turns(self) -> int | None:
        """Take every turn that fits as a whole; return the first that does not."""
        cells = self.pool.node * self.turns + self.pool.turn
        steps = np.bincount(cells, weights=self.want_w * self.open, minlength=self.nodes * self.turns)
        rows_w = self.sums_w[:, None] + steps.astype(np.int64).reshape(self.nodes, self.turns).cumsum(axis=1)
        misfits = self._over(rows_w).any(axis=0)
        first = int(misfits.argmax()) if misfits.any() else self.turns
        taken = np.flatnonzero(self.open & (self.pool.turn < first))
        self._take(taken, self.want_w[taken])
        return first if first < self.turns else None

    def _part_of(self, turn: int) -> None:
        """Raise the entries of a turn together to the last level that fits, hand out odd watts, close what is full."""
        members = np.flatnonzero(self.open & (self.pool.turn == turn))
        count, want_w, node = self.pool.count[members], self.want_w[members], self.pool.node[members]
        levels = np.arange(1, int((-(-want_w // count)).max()) + 1, dtype=np.int64)
        gains_w = np.minimum(want_w[:, None], levels * count[:, None])
        rows_w = np.repeat(self.sums_w[:, None], len(levels), axis=1)
        np.add.at(rows_w, node, gains_w)
        over = self._over(rows_w)
        level = int(over.any(axis=0).argmax())
        if level > 0:
            self._take(members, gains_w[:, level - 1])
        beside = self.pool.tree.carried_by[node][:, over[:, level]].any(axis=1)
        self._odd_watts(members[beside])

    def _odd_watts(self, members: Ints) -> None:
        """Hand single watts to entries in their order, closing each limit that is met, until no entry is left."""
        receivers = np.repeat(members, np.minimum(self.want_w[members], self.pool.count[members]))
        while len(receivers):
            watts = np.zeros((self.nodes, len(receivers)), dtype=np.int64)
            watts[self.pool.node[receivers], np.arange(len(receivers))] = 1
            over = self._over(self.sums_w[:, None] + watts.cumsum(axis=1))
            misfits = over.any(axis=0)
            first = int(misfits.argmax()) if misfits.any() else len(receivers)
            entries, counts = np.unique(receivers[:first], return_counts=True)
            self._take(entries, counts)
            if first < len(receivers):
                self._close(over[:, first])
            receivers = receivers[first:][self.open[receivers[first:]]]

    def _hidden_watts(self) -> bool:
        """Give a watt to the first entry that can take one below limits counted as full; say whether one could."""
        waiting = np.flatnonzero((self.want_w > 0) & ~self.hopeless)
        _groups, heads = np.unique(self.pool.group[waiting], return_index=True)
        heads = waiting[np.sort(heads)]
        if not len(heads):
            return False
        rows_w = np.repeat(self.sums_w[:, None], len(heads), axis=1)
        rows_w[self.pool.node[heads], np.arange(len(heads))] += 1
        fitting = np.flatnonzero(~self._over(rows_w).any(axis=0))
        if not len(fitting):
            return False
        self._take(heads[fitting[:1]], np.ones(1, dtype=np.int64))
        return True
