"""What the doctor says: one thing found, how much it matters, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """How much a finding matters."""

    FINE = "fine"
    NOTE = "note"
    """Worth knowing; the node can be managed all the same."""
    PROBLEM = "problem"
    """The node cannot be managed as it should be: somebody has to act."""


class Area(Enum):
    """What a finding is about."""

    DEVICES = "devices"
    GPU = "gpu"
    SETTINGS = "settings"
    CONTROLLER = "controller"
    UNITS = "units"
    CLOCK = "clock"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found.

    `code` is a stable word for scripts; `subject` the GPU, unit, file or address that it is about; `do` is what helps.
    """

    level: Level
    area: Area
    code: str
    subject: str
    words: str
    do: str = ""
