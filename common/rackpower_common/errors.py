"""The root of every error that rackpower raises on purpose.

Each neighbour (device, store, link, policy, solver) has one class derived from
`RackpowerError` in its own package; the edge translates it once.
"""

from __future__ import annotations


class RackpowerError(Exception):
    """Something that a person can act upon.

    Args:
        message: What is wrong and where.
        hint: What to do about it, empty when nothing can be said.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvariantError(RackpowerError):
    """A fact of the safety argument does not hold: a bug of ours, never bad input."""


def invariant(holds: bool, number: int, message: str) -> None:
    """Check one line of the safety argument; not removable by ``-O``.

    Args:
        holds: The fact.
        number: Which invariant of the safety case, 1 to 12.
        message: What was found instead.

    Raises:
        InvariantError: The fact does not hold.
    """
    if not holds:
        raise InvariantError(f"invariant {number} does not hold: {message}")
