"""Following a controller: what is newest, what is stale, and dialling again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text

from rackpower.v1 import operator_pb2
from rackpower_ctl.errors import Unreachable
from rackpower_ctl.follower import Follower, Seen
from rackpower_ctl.watch import frame, staleness
from support.statuses import rack
from support.waiting import wait_until


@dataclass
class FakeController:
    """Gives each dialler the next script: statuses, then an error, silence until closed, or the end."""

    scripts: list[list[operator_pb2.Status | Unreachable | str]]
    dialled: int = 0
    closed: int = 0
    hung_up: threading.Event = field(default_factory=threading.Event)

    def dial(self) -> FakeController:
        """Return a connection."""
        self.dialled += 1
        self.hung_up = threading.Event()
        return self

    def watch(self) -> Iterator[operator_pb2.Status]:
        """Play the script of this connection; the last one is played again and again."""
        for item in self.scripts[min(self.dialled, len(self.scripts)) - 1]:
            if isinstance(item, Unreachable):
                raise item
            if isinstance(item, str):
                self.hung_up.wait(10)
                raise Unreachable("hung up")
            yield item

    def close(self) -> None:
        """End the stream."""
        self.closed += 1
        self.hung_up.set()


def test_a_broken_stream_is_dialled_again_and_the_last_status_is_kept() -> None:
    """While the controller is away the last status stays, with the reason; then newer ones come."""
    fake = FakeController([[rack(1), Unreachable("gone away")], [rack(2), "silence"]])
    with Follower(fake.dial, retry_s=0.01) as follower:
        wait_until(lambda: follower.latest().count == 2, within_s=10, what="the second status")
        seen = follower.latest()
        assert seen.status is not None
        assert seen.status.tick == 2
    assert fake.closed >= 1


def test_what_cannot_be_dialled_is_told() -> None:
    """Without any status the trouble is there to be shown."""
    fake = FakeController([[Unreachable("no socket")]])
    with Follower(fake.dial, retry_s=0.01) as follower:
        assert wait_until(lambda: follower.latest().trouble, within_s=10, what="the trouble") == "no socket"
        assert follower.latest().status is None


def test_a_silent_stream_is_hung_up() -> None:
    """A peer that vanished without a word is not waited for for ever."""
    fake = FakeController([[rack(1), "silence"], [rack(2), "silence"]])
    with Follower(fake.dial, retry_s=0.01, silent_s=0.05) as follower:
        wait_until(lambda: follower.latest().count >= 2, within_s=10, what="a second stream")


def test_a_status_is_stale_after_three_ticks() -> None:
    """Fresh says nothing; old says how old and why."""
    assert staleness(Seen(rack(), received_s=10.0, count=1), now_s=12.9) is None
    old = staleness(Seen(rack(), received_s=10.0, count=1, trouble="no socket"), now_s=17.0)
    assert old is not None
    assert old.plain == "STALE: this is the rack 7 s ago; no socket; trying again"


def test_a_frame_fits_the_screen_whatever_its_height() -> None:
    """The less room there is, the less detail is shown; what is stale is always said."""
    for height in (8, 12, 20, 30, 60):
        screen = Console(width=80, height=height, force_terminal=True, color_system=None)
        shown = frame(Seen(rack(), 0.0, 1, "no socket"), 60.0, screen, [Text("demo")])
        lines = ["".join(part.text for part in line) for line in screen.render_lines(shown)]
        assert len(lines) <= max(height, 9)
        assert lines[0].startswith("demo")
        assert lines[1].startswith("STALE")
