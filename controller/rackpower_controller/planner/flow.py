"""The plan as a linear program in flow form, kept between requests and solved again from where it stood.

A group's watts are segment variables with falling slopes; every node and domain has one load variable whose bound is
its ceiling, and one equality that makes it loss × (what is below + what is fixed). Only bounds and coefficients change
from tick to tick; another structure gets another program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

from ortools.linear_solver import pywraplp

from rackpower_controller.core.groups import Group
from rackpower_controller.core.planning import PlanRequest

PARAMETERS = "use_dual_simplex:1 use_preprocessing:0 dual_feasibility_tolerance:1e-10"
"""Dual simplex without presolve is fastest when re-solved; the tight tolerance lets hairs tell equal slopes apart."""

HAIR = 1e-7
"""By this share of its slope, at most, a group is preferred for its UUID: equally good answers become unequal."""

UNDECIDED = 2e-10
"""A reduced cost (of slopes scaled to 1) below this may be 0: then other answers may be as good."""

SNAP_W = 1e-6
"""A solver's watts this close to a whole number are that number."""

NOISE_W = 5e-7
"""Watts by which two solves of one program may differ."""

VERIFY_W = 1e-5
"""By how many watts a solver's answer may miss its own equations."""


@dataclass(frozen=True, slots=True)
class SolverAnswer:
    """What a solver said: `above_w` is watts above Σ minima, one whole number a group.

    `proven` is its status, `solved` whether its figures satisfy its own equations, `unique` whether no other answer
    could be as good and no figure is too close to call.
    """

    above_w: tuple[int, ...]
    proven: bool
    solved: bool
    unique: bool
    words: str = ""


_Structure = tuple[object, ...]


class Solver(Protocol):
    """Finds the best watts for groups within a deadline."""

    def solve(
        self, request: PlanRequest, groups: Sequence[Group], fits: Sequence[bool], deadline_s: float
    ) -> SolverAnswer:
        """Return the solver's answer, whatever it is worth.

        Args:
            request: The question.
            groups: Its alike groups.
            fits: Whether the minima fit, for every node and then every domain; below one that does not, nothing moves.
            deadline_s: Seconds.
        """
        ...


class FlowSolver:
    """OR-Tools' GLOP over the flow form, warm from the last request of the same structure.

    A warm answer counts only where it is the only best one; else the program is solved anew from nothing, so that the
    same request has the same answer whatever was asked before.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._program: _Program | None = None
        self.cold_solves = 0
        self.warm_solves = 0

    def forget(self) -> None:
        """Drop the kept program: the next solve is cold."""
        self._program = None

    def solve(
        self, request: PlanRequest, groups: Sequence[Group], fits: Sequence[bool], deadline_s: float
    ) -> SolverAnswer:
        """See `Solver`."""
        until_s = self._clock() + deadline_s
        structure = _structure(request, groups)
        if self._program is not None and self._program.structure == structure:
            self.warm_solves += 1
            self._program.update(request, groups, fits)
            answer = self._program.solve(until_s - self._clock())
            if answer.proven and answer.solved and answer.unique:
                return answer
        self.cold_solves += 1
        self._program = _Program(structure, request, groups)
        self._program.update(request, groups, fits)
        answer = self._program.solve(until_s - self._clock())
        if not answer.proven:
            self.forget()
        return answer


def _structure(request: PlanRequest, groups: Sequence[Group]) -> _Structure:
    """Return what a program's variables and rows follow from; all else is bounds and coefficients."""
    return (
        tuple(domain.parent for domain in request.domains),
        tuple(tuple(number for number, _share in node.feeds) for node in request.nodes),
        tuple((group.node, len(group.segments)) for group in groups),
    )


class _Program:
    """One GLOP program."""

    def __init__(self, structure: _Structure, request: PlanRequest, groups: Sequence[Group]) -> None:
        self.structure = structure
        self.solver = pywraplp.Solver.CreateSolver("GLOP")
        self.solver.SetSolverSpecificParametersAsString(PARAMETERS)
        infinity = self.solver.infinity()
        self.infinity = infinity
        self.node_loads = [self.solver.NumVar(-infinity, infinity, "") for _ in request.nodes]
        self.domain_loads = [self.solver.NumVar(-infinity, infinity, "") for _ in request.domains]
        self.pieces = [[self.solver.NumVar(0.0, 0.0, "") for _ in group.segments] for group in groups]
        self.node_rows = [self._row(load) for load in self.node_loads]
        self.domain_rows = [self._row(load) for load in self.domain_loads]
        self.objective = self.solver.Objective()
        self.objective.SetMaximization()

    def _row(self, load: pywraplp.Variable) -> pywraplp.Constraint:
        row = self.solver.RowConstraint(0.0, 0.0, "")
        row.SetCoefficient(load, 1.0)
        return row

    def update(self, request: PlanRequest, groups: Sequence[Group], fits: Sequence[bool]) -> None:
        """Write a request of this structure into bounds and coefficients."""
        minima_w = [0] * len(request.nodes)
        for group in groups:
            minima_w[group.node] += group.lo_w * len(group.members)
        for number, (node, load, row) in enumerate(zip(request.nodes, self.node_loads, self.node_rows, strict=True)):
            bounded = node.ceiling_w is not None and fits[number]
            load.SetUb(float(node.ceiling_w) if bounded and node.ceiling_w is not None else self.infinity)
            fixed_w = node.loss * (minima_w[number] + node.fixed_w)
            row.SetBounds(fixed_w, fixed_w)
            for fed_by, share in node.feeds:
                self.domain_rows[fed_by].SetCoefficient(load, -request.domains[fed_by].loss * share)
        for number, (domain, load, row) in enumerate(
            zip(request.domains, self.domain_loads, self.domain_rows, strict=True)
        ):
            load.SetUb(float(domain.ceiling_w) if fits[len(request.nodes) + number] else self.infinity)
            row.SetBounds(domain.loss * domain.fixed_w, domain.loss * domain.fixed_w)
            if domain.parent >= 0:
                self.domain_rows[domain.parent].SetCoefficient(load, -request.domains[domain.parent].loss)
        self._update_pieces(request, groups, _movable(request, fits))

    def _update_pieces(self, request: PlanRequest, groups: Sequence[Group], movable: Sequence[bool]) -> None:
        steepest = max((piece.slope for group in groups for piece in group.segments), default=1.0)
        for group, variables in zip(groups, self.pieces, strict=True):
            row, loss = self.node_rows[group.node], request.nodes[group.node].loss
            count = len(group.members) if movable[group.node] else 0
            scale = (1.0 + HAIR * _rank(request.gpus[group.members[0]].gpu)) / steepest
            for piece, variable in zip(group.segments, variables, strict=True):
                variable.SetUb(float(piece.width_w * count))
                row.SetCoefficient(variable, -loss)
                self.objective.SetCoefficient(variable, piece.slope * scale)

    def solve(self, deadline_s: float) -> SolverAnswer:
        """Solve within a deadline in seconds."""
        if deadline_s <= 0:
            return SolverAnswer((), proven=False, solved=False, unique=False, words="no time was left for the solver")
        self.solver.SetTimeLimit(max(1, int(deadline_s * 1000)))
        status = self.solver.Solve()
        if status != pywraplp.Solver.OPTIMAL:
            words = _STATUS_WORDS.get(status, f"status {status}")
            return SolverAnswer((), proven=False, solved=False, unique=False, words=f"the solver says {words}")
        watts = [math.fsum(variable.solution_value() for variable in variables) for variables in self.pieces]
        if not all(map(math.isfinite, watts)):
            words = "the solver's figures are no numbers"
            return SolverAnswer((), proven=True, solved=False, unique=False, words=words)
        solved = self.solver.VerifySolution(VERIFY_W, False)
        return SolverAnswer(
            above_w=tuple(max(0, math.floor(value + SNAP_W)) for value in watts),
            proven=True,
            solved=solved,
            unique=self._decided() and not any(map(_too_close, watts)),
            words="" if solved else "the solver's figures miss its own equations",
        )

    def _decided(self) -> bool:
        """Whether every variable that rests at a bound would cost something to move: then there is one best answer."""
        loads = [*self.node_loads, *self.domain_loads]
        pieces = [variable for variables in self.pieces for variable in variables]
        basic, fixed = pywraplp.Solver.BASIC, pywraplp.Solver.FIXED_VALUE
        for variable in [*loads, *pieces]:
            if abs(variable.reduced_cost()) <= UNDECIDED and variable.basis_status() not in {basic, fixed}:
                return False
        return True


def _movable(request: PlanRequest, fits: Sequence[bool]) -> list[bool]:
    """Return, for every node, whether the minima fit everywhere above it."""
    below = [True] * len(request.domains)
    for number, domain in enumerate(request.domains):
        below[number] = fits[len(request.nodes) + number] and (domain.parent < 0 or below[domain.parent])
    return [
        fits[index] and all(below[number] for number, _share in node.feeds) for index, node in enumerate(request.nodes)
    ]


def _rank(gpu: str) -> float:
    """Return a number in 0…1 that follows from the UUID alone and lies on no line with others."""
    return int.from_bytes(blake2b(gpu.encode(), digest_size=6).digest(), "big") / 2**48


def _too_close(watts: float) -> bool:
    """Whether a hair more or less would make another whole number."""
    off_w = abs(watts + SNAP_W - round(watts + SNAP_W))
    return off_w <= NOISE_W


_STATUS_WORDS = {
    pywraplp.Solver.FEASIBLE: "that it ran out of time with an answer it could not prove",
    pywraplp.Solver.INFEASIBLE: "that nothing fits",
    pywraplp.Solver.UNBOUNDED: "that nothing limits the plan",
    pywraplp.Solver.ABNORMAL: "that it failed or ran out of time",  # GLOP says the same of both
    pywraplp.Solver.MODEL_INVALID: "that the question is invalid",
    pywraplp.Solver.NOT_SOLVED: "that it ran out of time",
}
