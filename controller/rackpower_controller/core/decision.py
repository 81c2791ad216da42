"""What one tick decides; the shell carries it out with no choices left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from rackpower_common.model.identity import DomainName, GpuId, NodeName, StreamId
from rackpower_common.model.messages import ControllerGoodbye, GrantBatch, Welcome


class Severity(Enum):
    """How bad an event is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: a stable word and one sentence that says what, where and what to do."""

    severity: Severity
    reason: str
    message: str
    node: NodeName | None = None
    gpu: GpuId | None = None
    domain: DomainName | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What to say on a stream at once: a welcome, or a goodbye after which it is closed."""

    stream: StreamId
    message: Welcome | ControllerGoodbye


@dataclass(frozen=True, slots=True)
class Decision:
    """One tick's decision.

    `lowers` (lower and equal caps, new fallbacks, renewals) are committed and sent at once. `raises` are
    committed and sent only after `exposures_w` is recorded: what every GPU heard in this term counts for once the
    raises are sent, in watts. It is recorded every tick, so that a fenced controller notices when nothing rises too.
    A node appears at most once in each. `needs_term_above` asks the shell for a new term above that number.
    `admissions` are nodes whose boot reserve fits from now on, `waiting` says why others wait, `unmeetable` by how many
    watts a domain stands above its ceiling though everything reachable is at its minimum. `former` is recorded with the
    exposures: where nodes that a policy moved or dropped still count, for a controller that starts anew.
    """

    tick: int
    now_s: float
    lowers: Mapping[NodeName, GrantBatch]
    raises: Mapping[NodeName, GrantBatch]
    exposures_w: Mapping[GpuId, int]
    events: tuple[Event, ...]
    sentence: str
    needs_term_above: int | None = None
    admissions: frozenset[NodeName] = frozenset()
    waiting: Mapping[NodeName, str] = field(default_factory=dict)
    unmeetable: Mapping[DomainName, int] = field(default_factory=dict)
    former: str = ""
