"""The network: delay, loss, duplication, reordering and cuts, between agents and controllers.

A stream is an identity: what was sent on one that either side has left is never delivered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rackpower.v1 import agent_pb2
from rackpower_common.model.messages import AgentMessage, ControllerMessage
from rackpower_common.wire.controller_messages import decode_controller_message, encode_controller_message
from rackpower_common.wire.decode_agent import decode_agent_message
from rackpower_common.wire.encode_agent import encode_agent_message
from rackpower_sim.world.scheduler import Scheduler


@dataclass(slots=True)
class Weather:
    """How bad the network is: shares of messages, and delays in seconds; with `codec` messages travel as bytes."""

    loss: float = 0.0
    duplication: float = 0.0
    delay_s: tuple[float, float] = (0.001, 0.05)
    codec: bool = False


def _drop(message: object) -> None:
    """Nobody is there yet."""


@dataclass(slots=True)
class Stream:
    """One stream. Either end may leave it; the other end learns of it later, or never."""

    number: int
    node: str
    open_for_agent: bool = True
    open_for_controller: bool = True
    to_agent: Callable[[object], None] = field(default=_drop)
    to_controller: Callable[[object], None] = field(default=_drop)


class Network:
    """Carries messages in virtual time; `cut_*` hold the nodes that nothing reaches, by direction."""

    def __init__(self, time: Scheduler, weather: Weather) -> None:
        self.time = time
        self.weather = weather
        self.cut_to_agent: set[str] = set()
        self.cut_to_controller: set[str] = set()
        self._streams = 0

    def open(self, node: str) -> Stream:
        """Open a stream."""
        self._streams += 1
        return Stream(self._streams, node)

    def to_agent(self, stream: Stream, message: ControllerMessage) -> None:
        """Send to the agent."""
        carried = encode_controller_message(message).SerializeToString() if self.weather.codec else None

        def deliver() -> None:
            if stream.open_for_agent and stream.node not in self.cut_to_agent:
                read = agent_pb2.ConnectResponse.FromString(carried) if carried is not None else None
                stream.to_agent(decode_controller_message(read) if read is not None else message)

        self._carry(deliver)

    def to_controller(self, stream: Stream, message: AgentMessage) -> None:
        """Send to the controller."""
        carried = encode_agent_message(message).SerializeToString() if self.weather.codec else None

        def deliver() -> None:
            if stream.open_for_controller and stream.node not in self.cut_to_controller:
                read = agent_pb2.ConnectRequest.FromString(carried) if carried is not None else None
                stream.to_controller(decode_agent_message(read) if read is not None else message)

        self._carry(deliver)

    def _carry(self, deliver: Callable[[], None]) -> None:
        random = self.time.random
        if random.random() < self.weather.loss:
            return
        copies = 2 if random.random() < self.weather.duplication else 1
        for _ in range(copies):
            self.time.after(self.time.between(*self.weather.delay_s), deliver)
