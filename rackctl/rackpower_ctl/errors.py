"""How rackctl ends: exit codes, and the one class for all that it says instead of a traceback."""

from __future__ import annotations

from enum import IntEnum

from rackpower_common.errors import RackpowerError


class ExitCode(IntEnum):
    """What a script may rely on."""

    FINE = 0
    ATTENTION = 1
    """The rack needs attention, or a policy was refused."""
    USAGE = 2
    UNREACHABLE = 3
    """The controller cannot be reached, does not answer in time, or does not let us in."""


class CtlError(RackpowerError):
    """Something went wrong that a person can act upon.

    Args:
        message: What is wrong and where.
        hint: What to do about it, one line each.
        code: How rackctl ends.
    """

    def __init__(self, message: str, hint: str = "", code: ExitCode = ExitCode.ATTENTION) -> None:
        super().__init__(message, hint)
        self.code = code


class UsageError(CtlError):
    """What was asked for makes no sense."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, ExitCode.USAGE)


class Unreachable(CtlError):
    """The controller cannot be talked to."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, ExitCode.UNREACHABLE)
