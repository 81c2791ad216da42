"""The simulated hardware as a process: `python -m rackpower_sim.rack --scenario FILE --folder DIR`.

It steps the whole rack in real time, 20 steps a second, and keeps one file a node moving (`shared_state`). Agents may
come, go and be killed: the hardware draws on, and caps stay in force until somebody writes or the node reboots.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import structlog

from rackpower_common.errors import RackpowerError
from rackpower_sim.classes import GpuTruth
from rackpower_sim.machine import Machine, arrival_speed
from rackpower_sim.node_layout import (
    HistoryEntry,
    NodeSlot,
    Slot,
    StaticGpu,
    StaticNode,
    StaticReplica,
    WriteMode,
    WriteResult,
)
from rackpower_sim.physics_facts import NO_LIMIT_W, STEP_S
from rackpower_sim.scenario import Scenario, ScenarioError, load_scenario
from rackpower_sim.shared_state import NodeWriter, boot_clock_s, node_path
from rackpower_sim.traces import load_trace

CATCH_UP_STEPS: Final = 100
"""Steps made at once after a pause of the process, 5 s; a longer pause did not happen for the hardware."""
_NAMESPACE: Final = uuid.UUID("6b1f2f0e-3f0e-4e43-9a26-0f6f5a5c7d11")


def boot_id_path(folder: Path, node: str) -> Path:
    """Return the file that holds a node's boot id, new after each reboot."""
    return folder / f"{node}.boot_id"


def static_nodes(scenario: Scenario) -> tuple[StaticNode, ...]:
    """Return what never changes of each node; the same scenario gives the same UUIDs."""
    nodes = []
    replicas = list(scenario.replicas())
    first = 0
    for node in scenario.nodes:
        gpus = tuple(
            _static_gpu(scenario.truth(name), f"{scenario.name}/{scenario.seed}/{node.name}", index)
            for index, name in enumerate(node.gpu_classes)
        )
        mine = [indices for spec, indices in replicas if spec is node]
        servers = tuple(
            StaticReplica(f"{node.name}-replica-{place}", tuple(gpu - first for gpu in indices))
            for place, indices in enumerate(mine)
        )
        nodes.append(StaticNode(node.name, gpus, servers, node.loss))
        first += node.gpu_count
    return tuple(nodes)


def _static_gpu(truth: GpuTruth, node: str, index: int) -> StaticGpu:
    return StaticGpu(
        uuid=f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/{index}')}",
        gpu_class=truth.name,
        vendor=truth.vendor.value,
        model=truth.model,
        pci_address=f"{index // 8:04x}:{0x1A + 0x11 * (index % 8):02x}:00.0",
        min_cap_w=truth.min_cap_w,
        max_cap_w=truth.max_cap_w,
        default_cap_w=truth.default_cap_w,
        largest_draw_w=truth.largest_draw_w,
        slowdown_c=truth.slowdown_c,
    )


class Rack:
    """The machine with its nodes' files.

    Args:
        machine: The hardware.
        folder: Where the nodes' files go.
        begin_s: When the first step begins, on the boot clock.
    """

    def __init__(self, machine: Machine, folder: Path, begin_s: float) -> None:
        self._machine = machine
        self._folder = folder
        self.begin_s = begin_s
        self._writers = [
            NodeWriter.create(node_path(folder, node.name), node) for node in static_nodes(machine.scenario)
        ]
        gpus = machine.bank.gpus
        self._applied = [0] * gpus
        self._results = [int(WriteResult.OK)] * gpus
        self._in_force_early = [0] * gpus
        self._overrides = [0] * gpus
        self._out_of_band_w = [0] * gpus
        self._reboots = [0] * len(self._writers)
        self._boots = [0] * len(self._writers)
        self._publish([])

    def advance(self, steps: int) -> None:
        """Take requests from the files, make `steps` steps, and write the sensors."""
        for node, writer in enumerate(self._writers):
            self._take(node, writer)
        self._publish([self._machine.step() for _ in range(steps)])

    def close(self) -> None:
        """Let go of the files; they stay where they are and grow stale."""
        for writer in self._writers:
            writer.close()

    def _take(self, node: int, writer: NodeWriter) -> None:
        machine = self._machine
        machine.extra_overhead_w[node] = writer.node_slot(NodeSlot.EXTRA_OVERHEAD_W)
        reboots = writer.node_slot(NodeSlot.REBOOT)
        if reboots != self._reboots[node] and not machine.is_dark(node):
            self._reboots[node] = reboots
            machine.reboot(node, writer.node_slot(NodeSlot.REBOOT_DOWN_MS) / 1000)
        if writer.node_slot(NodeSlot.SERVE_BOOT) == machine.boots[node]:
            machine.start_servers(node)
        for index, gpu in enumerate(machine.gpus_of(node)):
            limit_w = writer.slot(index, Slot.OUT_OF_BAND_W)
            if limit_w != self._out_of_band_w[gpu]:
                self._out_of_band_w[gpu] = limit_w
                machine.bank.limit_out_of_band(gpu, limit_w or NO_LIMIT_W)
            override = writer.slot(index, Slot.OVERRIDE)
            if override != self._overrides[gpu]:
                self._overrides[gpu] = override
                machine.bank.request_cap(gpu, writer.slot(index, Slot.OVERRIDE_W))
            request = writer.slot(index, Slot.REQUEST)
            if request != self._applied[gpu]:
                self._write(node, gpu, request, writer, index)

    def _write(self, node: int, gpu: int, request: int, writer: NodeWriter, index: int) -> None:
        """Do what a driver does with a cap write, faults included."""
        mode = WriteMode(writer.slot(index, Slot.WRITE_MODE))
        cap_w = writer.slot(index, Slot.REQUEST_W)
        truths = self._machine.bank.truths
        in_range = int(truths.min_cap_w[gpu]) <= cap_w <= int(truths.max_cap_w[gpu])
        result = WriteResult.OK
        if mode is WriteMode.HANG:
            return
        if self._machine.is_dark(node):
            result = WriteResult.LOST
        elif mode is WriteMode.NO_PERMISSION:
            result = WriteResult.NO_PERMISSION
        elif mode is WriteMode.REFUSE or not in_range:
            result = WriteResult.REFUSED
        elif self._in_force_early[gpu] != request:
            floor_w = writer.slot(index, Slot.CLAMP_W) if mode is WriteMode.CLAMP else 0
            self._machine.bank.request_cap(gpu, cap_w, floor_w)
            self._in_force_early[gpu] = request
        if mode is WriteMode.HANG_APPLIED and result is WriteResult.OK:
            return
        self._applied[gpu] = request
        self._results[gpu] = int(result)

    def _publish(self, steps: Sequence[tuple[HistoryEntry, ...]]) -> None:
        machine = self._machine
        nodes = machine.node_states(self.begin_s)
        gpus = machine.gpu_states(self._results, self._applied)
        replicas = machine.replica_states()
        for node, writer in enumerate(self._writers):
            history = [step[node]._replace(time_s=self.begin_s + step[node].time_s) for step in steps]
            mine = machine.gpus_of(node)
            writer.publish(nodes[node], gpus[mine.start : mine.stop], replicas[node], history)
            if self._boots[node] != machine.boots[node]:
                self._boots[node] = machine.boots[node]
                self._write_boot_id(node, writer.static.name)

    def _write_boot_id(self, node: int, name: str) -> None:
        path = boot_id_path(self._folder, name)
        fresh = path.with_suffix(".new")
        boot_id = uuid.uuid5(_NAMESPACE, f"{self.begin_s}/{name}/{self._boots[node]}")
        fresh.write_text(f"{boot_id}\n", encoding="ascii")
        fresh.replace(path)


def run(rack: Rack, stop: threading.Event, follow_parent: bool) -> None:
    """Keep the rack in step with the boot clock until `stop`, or until the parent process has ended."""
    parent = os.getppid()
    done = 0
    while not stop.is_set():
        due = int((boot_clock_s() - rack.begin_s) / STEP_S)
        if due - done > CATCH_UP_STEPS:
            rack.begin_s += (due - done - CATCH_UP_STEPS) * STEP_S
            due = done + CATCH_UP_STEPS
        if due > done:
            rack.advance(due - done)
            done = due
        if follow_parent and os.getppid() != parent:
            return
        stop.wait(max(0.001, rack.begin_s + (done + 1) * STEP_S - boot_clock_s()))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder: two simulators of one node would be two truths."""
    with (folder / "rack.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ScenarioError(
                f"{folder}: another simulated rack runs here", "stop it, or take another folder"
            ) from None
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a simulated rack until SIGTERM or Ctrl-C; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m rackpower_sim.rack", description="Simulate the hardware of a rack."
    )
    parser.add_argument("--scenario", type=Path, required=True, help="the rack, as JSON")
    parser.add_argument("--folder", type=Path, required=True, help="where the nodes' files go")
    parser.add_argument("--follow-parent", action="store_true", help="end when the starting process has ended")
    options = parser.parse_args(arguments)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    log = structlog.get_logger("rackpower.sim")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        with ExitStack() as held:
            scenario = load_scenario(options.scenario)
            trace = load_trace(Path(scenario.load.trace)) if scenario.load.trace else None
            options.folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(_locked(options.folder))
            rack = Rack(Machine(scenario, trace), options.folder, boot_clock_s())
            held.callback(rack.close)
            log.info(
                "simulated rack running",
                rack=scenario.name,
                nodes=len(scenario.nodes),
                gpus=scenario.gpu_count,
                arrival_speed=round(arrival_speed(scenario, trace), 2) if trace is not None else None,
            )
            run(rack, stop, options.follow_parent)
    except (RackpowerError, OSError) as error:
        log.error("simulated rack cannot run", reason=str(error))  # noqa: TRY400 - a person reads it, not a developer
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
