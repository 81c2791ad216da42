"""The demo itself: put the rack up, let it run, measure, and leave nothing behind."""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from rackpower_ctl.client import Operator
from rackpower_ctl.connection import Connection
from rackpower_ctl.demo.control import Controllers, live_nodes
from rackpower_ctl.demo.limits import Limits
from rackpower_ctl.demo.loop import CONTROLLER, LOOK_S, Loop, failed
from rackpower_ctl.demo.measuring import Account, Meter, Window
from rackpower_ctl.demo.prepare import Options, Prepared, prepare
from rackpower_ctl.demo.processes import Child, Processes
from rackpower_ctl.demo.report import Report
from rackpower_ctl.demo.show import Lines, Screen, Show
from rackpower_ctl.demo.uniform import best_uniform
from rackpower_ctl.errors import CtlError, ExitCode
from rackpower_ctl.follower import Follower
from rackpower_ctl.output import console, print_json
from rackpower_ctl.watch import ended_by_sigterm
from rackpower_sim.machine import arrival_speed
from rackpower_sim.shared_state import node_path

START_S: Final = 60.0
"""How long one thing may take to come up, on a machine that is busy with other things."""
STAGGER_S: Final = 0.4
"""Between two agents: nine interpreters at once only wait for each other."""
HARDWARE: Final = "hardware"
HARDWARE_PHASE: Final = 1
"""The hardware ends after those who use it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a demo gave, once all of its processes have ended."""

    account: Account
    window: Window | None
    budget_w: int
    gpus_running: int
    gpus_at_nameplate: int | None
    controllers: Controllers
    limits_changed: bool


def run_demo(options: Options) -> ExitCode:
    """Run a demo until it is over, Ctrl-C or SIGTERM.

    Raises:
        UsageError: What was asked for cannot be run.
        CtlError: Something did not come up, or ended.
    """
    prepared = prepare(options)
    screen = console()
    on_terminal = screen.is_terminal and not options.as_json
    show: Show = Screen(screen, prepared.folder) if on_terminal else Lines()
    try:
        with ended_by_sigterm():
            outcome = run_rack(prepared, show, options.seconds)
            report = _report(prepared, outcome, show)
    except KeyboardInterrupt:
        raise CtlError("the demo was ended before it had measured anything") from None
    if options.as_json:
        print_json(report.document())
    else:
        print("\n".join(report.lines(outcome.account)))
    if prepared.keep:
        show.say(f"everything is kept in {prepared.folder.path}")
    if outcome.account.missed_steps:
        raise CtlError(
            f"{outcome.account.missed_steps} steps of the hardware were not seen: this machine was too busy",
            "the figures prove nothing; run the demo again",
        )
    return ExitCode.FINE if report.held else ExitCode.ATTENTION


def run_rack(prepared: Prepared, show: Show, seconds: float | None) -> Outcome:
    """Put everything up, let it run, and end it all, however it goes.

    Args:
        prepared: The rack.
        show: Where to speak.
        seconds: How long to measure, None for until told.

    Raises:
        CtlError: Something did not come up, or ended.
        KeyboardInterrupt: It was ended before it had started.
    """
    held = ExitStack()
    try:
        loop = _put_up(prepared, show, held)
        _tell(loop)
        if isinstance(show, Screen):
            held.enter_context(show.drawing())
        loop.meter.begin()
        loop.run(seconds)
        return _outcome(loop)
    finally:
        with _uninterrupted():
            held.close()


def _put_up(prepared: Prepared, show: Show, held: ExitStack) -> Loop:
    folder = prepared.folder
    processes = held.enter_context(Processes(folder.logs))
    if not prepared.keep:
        processes.remove_with_us(folder.path)
    processes.end_with_us(folder.store)
    nodes = [node.name for node in prepared.scenario.nodes]
    show.say(f"starting a rack of {len(nodes)} nodes with {prepared.scenario.gpu_count} GPUs in {folder.path}")
    if prepared.trace is not None:
        speed = arrival_speed(prepared.scenario, prepared.trace)
        show.say(f"the trace's requests arrive {speed:.1f} times as fast as traced, so that they queue")
    hardware = processes.start(HARDWARE, folder.rack_command(), HARDWARE_PHASE)
    paths = [node_path(folder.rack, name) for name in nodes]
    _wait_for(hardware, prepared, lambda: all(path.exists() for path in paths), "made its nodes")
    show.say("the hardware runs; starting the controller and its store")
    limits = Limits(prepared.limits_w)
    meter = held.enter_context(Meter(prepared.scenario, folder.rack, limits))
    controller = processes.start(CONTROLLER, folder.controller_command())
    _wait_for(controller, prepared, folder.operator_socket.exists, "opened its socket")
    connection = Connection(f"unix:{folder.operator_socket}")
    follower = held.enter_context(Follower(lambda: Operator(connection)))
    controllers = Controllers(folder.operator_socket, controller.process.pid, processes.adopt)
    loop = Loop(folder, processes, meter, controllers, follower, limits, show)
    _must(loop.wait(lambda seen: seen.status is not None, START_S), "the controller does not answer", controller)
    show.say(f"the controller answers; starting {len(nodes)} agents")
    for name in nodes:
        processes.start(f"agent-{name}", folder.agent_command(name))
        loop.pause(STAGGER_S)
    _must(
        loop.wait(lambda seen: seen.status is not None and live_nodes(seen.status) >= set(nodes), START_S),
        "not every agent has reported",
        controller,
    )
    _must(loop.wait(lambda _: loop.served >= set(nodes), START_S), "not every node has its boot caps", controller)
    show.say("every node reports at its boot caps and serves; the caps move to the plan")
    if not loop.settle():
        show.say("the caps have not settled at the plan yet; measuring all the same")
    loop.started()
    return loop


def _wait_for(child: Child, prepared: Prepared, condition: Callable[[], bool], what: str) -> None:
    until_s = time.monotonic() + START_S
    while not condition():
        if child.exit_code is not None:
            raise failed(child, prepared.folder)
        _must(time.monotonic() < until_s, f"{child.name} has not {what} within {START_S:.0f} s", child)
        time.sleep(LOOK_S)


def _must(holds: bool, message: str, child: Child) -> None:
    if not holds:
        raise CtlError(f"{message}; the log of {child.name} ends:\n{child.last_words()}", "is this machine very busy?")


def _tell(loop: Loop) -> None:
    folder = loop.folder
    loop.show.say(f"controller:     pid {loop.controllers.pid}")
    loop.show.say(f"talk to it:     {folder.rackctl_command('status')}")
    loop.show.say(f"its policy:     {folder.policy} (edit it while it runs)")
    loop.show.say(f"after kill -9:  {shlex.join(folder.controller_command())}")


def _outcome(loop: Loop) -> Outcome:
    status = loop.follower.latest().status
    return Outcome(
        account=loop.meter.account,
        window=loop.meter.window(),
        budget_w=loop.budget_w,
        gpus_running=loop.meter.gpus_running(),
        gpus_at_nameplate=status.totals.gpus_at_nameplate if status is not None else None,
        controllers=loop.controllers,
        limits_changed=loop.limits_changed,
    )


def _report(prepared: Prepared, outcome: Outcome, show: Show) -> Report:
    """Return the report; the replay comes last, when nothing else needs the processor."""
    uniform = None
    if outcome.window is not None and not outcome.limits_changed:
        show.say("replaying the same requests at every single cap that fits")
        uniform = best_uniform(prepared.scenario, prepared.trace, prepared.limits_w, outcome.window)
    controllers, window = outcome.controllers, outcome.window
    return Report(
        budget_watts=outcome.budget_w,
        gpus_running=outcome.gpus_running,
        gpus_at_nameplate=outcome.gpus_at_nameplate,
        peak_power_watts=outcome.account.peak_w,
        over_budget_seconds=outcome.account.over_budget_s,
        tokens_per_second=window.tokens_per_s if window else 0.0,
        tokens_per_watt=window.tokens_per_j if window else 0.0,
        best_uniform_cap_tokens_per_second=None if uniform is None else uniform.tokens_per_s,
        ticks=controllers.ticks,
        decide_ms_p99=controllers.decide_p99_s * 1000,
        plan_ms_p99=controllers.plan_p99_s * 1000,
    )


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let nobody break off the ending of everything."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
