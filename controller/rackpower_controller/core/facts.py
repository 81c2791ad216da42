"""Facts: all that may change a `RackState`, put into the inbox by the edge and absorbed in one place.

Times are seconds of the controller's own clock, taken when the fact arrived.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rackpower_common.model.identity import DomainName, GpuId, NodeName, StreamId, Term
from rackpower_common.model.messages import AgentGoodbye, Hello, Report, WriteError
from rackpower_common.model.policy import Policy


@dataclass(frozen=True, slots=True)
class NodeConnected:
    """An accepted hello on a new stream. `identity` is the certificate's name, or the peer where there is none."""

    stream: StreamId
    identity: str
    peer: str
    hello: Hello
    at_s: float


@dataclass(frozen=True, slots=True)
class NodeReported:
    """A report on a stream."""

    stream: StreamId
    node: NodeName
    report: Report
    at_s: float


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """A grant that an agent could not apply."""

    stream: StreamId
    node: NodeName
    error: WriteError
    at_s: float


@dataclass(frozen=True, slots=True)
class NodeLeft:
    """A stream ended; with a goodbye when the agent left on purpose."""

    stream: StreamId
    node: NodeName
    goodbye: AgentGoodbye | None
    at_s: float


@dataclass(frozen=True, slots=True)
class MeterRead:
    """A meter's reading of a domain's whole load, in watts, `age_s` old when it arrived."""

    domain: DomainName
    power_w: int
    age_s: float
    at_s: float


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """A checked policy to put in force."""

    policy: Policy
    author: str
    at_s: float


@dataclass(frozen=True, slots=True)
class TermTaken:
    """The store handed us a term; nobody has been heard in it yet."""

    term: Term
    at_s: float


@dataclass(frozen=True, slots=True)
class ExposuresRecalled:
    """What the store recorded before we came.

    Exposures, in watts by GPU, are for lowered limits only, never for raises; `former` (see `Decision.former`) keeps
    nodes counting where an earlier policy had them.
    """

    exposures_w: dict[GpuId, int]
    nodes: dict[GpuId, NodeName]
    at_s: float
    former: str = ""


class NodeWord(Enum):
    """What an operator may say of a node."""

    DECLARE_OFF = "declare_off"
    RESUME = "resume"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class OperatorSaid:
    """An operator's (or BMC's) word on a node; audited by the edge."""

    node: NodeName
    word: NodeWord
    author: str
    at_s: float


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """Whether the store accepts our writes; `detail` is empty when it does."""

    detail: str
    at_s: float


Fact = (
    NodeConnected
    | NodeReported
    | WriteFailed
    | NodeLeft
    | MeterRead
    | PolicyChanged
    | TermTaken
    | ExposuresRecalled
    | OperatorSaid
    | StoreHealth
)
