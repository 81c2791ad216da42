"""The demo's heart beat: measure, look after processes and controller, let servers run, show."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rackpower_ctl.demo.control import Controllers, News, at_plan, boot_capped, limits_of
from rackpower_ctl.demo.folder import Folder
from rackpower_ctl.demo.limits import Limits
from rackpower_ctl.demo.measuring import Meter
from rackpower_ctl.demo.processes import Child, Processes
from rackpower_ctl.demo.show import Now, Show
from rackpower_ctl.errors import CtlError
from rackpower_ctl.follower import Follower, Seen
from rackpower_sim.shared_state import SharedStateError, boot_clock_s

BOOT_SETTLE_S: Final = 5.0
"""As long as `rackpower-agent boot-cap` waits: a draw follows its cap within 1 to 4 s."""
LOOK_S: Final = 0.2
"""Between two beats; every step of the hardware is read all the same, 20 a second."""
CONTROLLER: Final = "controller"
SETTLED_S: Final = 3.0
"""The rack has started once every cap has stood at the plan for so long."""
SETTLE_LIMIT_S: Final = 30.0
AT_PLAN_MILLIWATTS: Final = 6_000
"""Plan and cap may differ by the dead-band."""


def failed(child: Child, folder: Folder) -> CtlError:
    """Return what is said when a process has ended that should not have."""
    return CtlError(
        f"{child.name} has ended with exit code {child.exit_code}; its log ends:\n{child.last_words()}",
        f"run the demo with --keep to look at its logs later; this one was in {folder.path}",
    )


@dataclass
class Loop:
    """Everything that is looked after while the demo runs."""

    folder: Folder
    processes: Processes
    meter: Meter
    controllers: Controllers
    follower: Follower
    limits: Limits
    show: Show
    served: set[str] = field(default_factory=set)
    capped_since_s: dict[str, float] = field(default_factory=dict)
    until_s: float | None = None
    limits_changed: bool = False
    _starting: bool = True

    def beat(self) -> Seen:
        """Do everything once.

        Raises:
            CtlError: The hardware or an agent has ended, or the controller before it ever answered.
        """
        for child in self.processes.ended():
            if child.name != CONTROLLER or self._starting:
                raise failed(child, self.folder)
        try:
            account = self.meter.read()
        except SharedStateError as error:
            raise CtlError(error.message, error.hint) from error
        seen = self.follower.latest()
        self._look_at_controller(seen)
        if seen.status is not None and self.controllers.down_since_s is None:
            self._serve(boot_capped(seen.status))
        window = self.meter.window()
        left_s = None if self.until_s is None else max(0.0, self.until_s - time.monotonic())
        self.show.update(Now(seen, account, window, self.budget_w, self.controllers, left_s))
        return seen

    def wait(self, condition: Callable[[Seen], bool], within_s: float) -> bool:
        """Beat until something holds; return whether it does in time."""
        until_s = time.monotonic() + within_s
        while not condition(self.beat()):
            if time.monotonic() > until_s:
                return False
            time.sleep(LOOK_S)
        return True

    def pause(self, pause_s: float) -> None:
        """Beat for a while."""
        self.wait(lambda _: False, pause_s)

    def settle(self) -> bool:
        """Wait until every cap stands at the plan and stays there; return whether it does in time."""
        since_s: float | None = None

        def stands(seen: Seen) -> bool:
            nonlocal since_s
            status = seen.status
            if status is None or not at_plan(status, AT_PLAN_MILLIWATTS):
                since_s = None
                return False
            since_s = time.monotonic() if since_s is None else since_s
            return time.monotonic() - since_s >= SETTLED_S

        return self.wait(stands, SETTLE_LIMIT_S)

    def started(self) -> None:
        """From now on the controller may end, and is waited for."""
        self._starting = False

    def run(self, seconds: float | None) -> None:
        """Beat for so many seconds, or until Ctrl-C or SIGTERM.

        Raises:
            CtlError: The hardware or an agent has ended.
        """
        self.until_s = None if seconds is None else time.monotonic() + seconds
        with contextlib.suppress(KeyboardInterrupt):
            while self.until_s is None or time.monotonic() < self.until_s:
                self.beat()
                time.sleep(LOOK_S)
            self.beat()

    @property
    def budget_w(self) -> int:
        """Return the sum of the roots' limits in force."""
        return self.meter.budget_w

    def _look_at_controller(self, seen: Seen) -> None:
        self.controllers.hear(seen)
        if seen.status is not None:
            before = dict(self.limits.in_force)
            self.limits.change(limits_of(seen.status), boot_clock_s())
            self.limits_changed |= before != self.limits.in_force
        news = self.controllers.look(time.monotonic())
        if news is News.DOWN and not self._starting:
            self.show.say(f"the controller has ended; start it again: {shlex.join(self.folder.controller_command())}")
        elif news is News.BACK:
            self.show.say(f"a controller is back: pid {self.controllers.pid}")

    def _serve(self, capped: set[str]) -> None:
        """Start a node's servers once its boot caps are at work, as units after rackpower-boot-cap.service do."""
        now_s = time.monotonic()
        for node in capped - self.served:
            if now_s - self.capped_since_s.setdefault(node, now_s) >= BOOT_SETTLE_S:
                self.meter.start_servers(node)
                self.served.add(node)
