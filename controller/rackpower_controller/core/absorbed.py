"""What absorbing one fact gives."""

from __future__ import annotations

from dataclasses import dataclass

from rackpower_controller.core.decision import Answer, Event
from rackpower_controller.core.state import RackState


@dataclass(frozen=True, slots=True)
class Absorbed:
    """The new state, what to say at once, what happened, and whether a decision should not wait for the tick."""

    state: RackState
    answers: tuple[Answer, ...] = ()
    events: tuple[Event, ...] = ()
    urgent: bool = False
