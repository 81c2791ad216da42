"""A node's file between processes: each reading is one step, and what is no node's file is refused in words."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackpower_sim.node_layout import (
    COUNTER_STRUCT,
    HISTORY_STEPS,
    GpuState,
    HistoryEntry,
    NodeState,
    ReplicaState,
    Slot,
    StaticNode,
)
from rackpower_sim.rack import static_nodes
from rackpower_sim.shared_state import NodeFile, NodeWriter, SharedStateError, node_path
from support.sim_racks import small_rack
from support.waiting import wait_until

READINGS_S = 3.0

# Writes steps a thousand times as often as the simulator does; every figure of a step is the step's number, so that a
# torn reading shows. The pause leaves readers some of the time.
WRITER = """
import sys, time
from pathlib import Path
from rackpower_sim.node_layout import GpuState, HistoryEntry, NodeState, ReplicaState
from rackpower_sim.rack import static_nodes
from rackpower_sim.shared_state import NodeWriter
from support.sim_racks import small_rack
writer = NodeWriter.create(Path(sys.argv[1]), static_nodes(small_rack(1, 8))[0])
for n in range(1, 10_000_000):
    f = float(n)
    writer.publish(
        NodeState(n, f, n, n, f, f, f), [GpuState(f, f, f, f, f, f, f, f, n, n, n, n, n)] * 8,
        [ReplicaState(f, f, n, n, n, n)] * 8, [HistoryEntry(n, f, f, f, n, f)],
    )
    time.sleep(0.00005)
"""


def static() -> StaticNode:
    """Return a node of two GPUs."""
    return static_nodes(small_rack(1, 2))[0]


@pytest.fixture
def busy_file(tmp_path: Path) -> Iterator[NodeFile]:
    """Return a file that another process writes nearly all the time."""
    path = tmp_path / "busy.node"
    paths = ":".join(entry for entry in sys.path if entry)
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], env={"PYTHONPATH": paths})
    try:
        wait_until(path.exists, within_s=20, what="the writer's file")
        file = NodeFile.open(path)
        wait_until(lambda: file.node().step > 0, within_s=20, what="the first step")
        yield file
        file.close()
    finally:
        process.kill()
        process.wait()


def figures(states: tuple[NodeState | GpuState | ReplicaState | HistoryEntry, ...]) -> set[float]:
    """Return the different figures in records: one if they are of one step."""
    return {float(figure) for state in states for figure in state}


def test_no_reading_is_torn(busy_file: NodeFile) -> None:
    """Three seconds of readings against a writer that hardly rests: each is one step, and time goes on."""
    last = readings = 0
    until_s = time.monotonic() + READINGS_S
    while time.monotonic() < until_s:
        readings += 1
        node, gpu = busy_file.gpu_at(7)
        assert figures((node, gpu)) == {float(node.step)}
        assert node.step >= last
        last = node.step
        assert len(figures(busy_file.gpus())) == 1
        node, replicas = busy_file.replicas()
        assert figures((node, *replicas)) == {float(node.step)}
    assert readings > 50
    assert last > 50


def test_no_entry_of_the_history_is_torn(busy_file: NodeFile) -> None:
    """Entries are whole, in order, without gaps, and no older than the history is long."""
    for _ in range(30):
        entries = busy_file.history()
        steps = [entry.step for entry in entries]
        assert steps == list(range(steps[0], steps[0] + len(steps)))
        assert len(steps) <= HISTORY_STEPS
        assert all(figures((entry,)) == {float(entry.step)} for entry in entries)


def test_a_simulator_that_stopped_in_a_step_is_told(tmp_path: Path) -> None:
    """Half a step is never given out."""
    writer = NodeWriter.create(node_path(tmp_path, "a"), static())
    file = NodeFile.open(node_path(tmp_path, "a"))
    COUNTER_STRUCT.pack_into(writer._map, writer._layout.counter, 1)
    with pytest.raises(SharedStateError, match="stopped in the middle of a step"):
        file.node()
    file.close()
    writer.close()


def test_what_is_written_from_outside_does_not_disturb_the_sensors(tmp_path: Path) -> None:
    """Requests, overrides and faults have words of their own, for each GPU."""
    writer = NodeWriter.create(node_path(tmp_path, "a"), static())
    file = NodeFile.open(node_path(tmp_path, "a"))
    assert [file.request_cap(1, 300), file.request_cap(1, 310), file.request_cap(0, 320)] == [1, 2, 1]
    file.override(0, 333)
    file.limit_out_of_band(0, 222)
    assert [writer.slot(0, word) for word in Slot] == [320, 1, 333, 1, 222, 0, 0, 0]
    assert [writer.slot(1, word) for word in Slot] == [310, 2, 0, 0, 0, 0, 0, 0]
    assert figures((file.node(), *file.gpus())) == {0.0}
    file.close()
    writer.close()


def test_a_file_made_anew_leaves_old_readers_alone(tmp_path: Path) -> None:
    """They keep the old file, which grows stale; who opens now gets the new one."""
    path = node_path(tmp_path, "a")
    first = NodeWriter.create(path, static())
    old = NodeFile.open(path)
    second = NodeWriter.create(path, static())
    second.publish(NodeState(5, 0.0, 1, 1, 0.0, 0.0, 0.0), (), (), ())
    new = NodeFile.open(path)
    assert (old.node().step, new.node().step) == (0, 5)
    for one in (old, new, first, second):
        one.close()


@pytest.mark.parametrize(
    "content",
    [b"", b"RPSIMND1", b"x" * 5000, b"RPSIMND0" + b"\0" * 5000, struct.pack("=8sQQQQ", b"RPSIMND1", 9, 1, 1, 48) * 200],
    ids=["empty", "short", "noise", "older", "sizes"],
)
def test_what_is_no_node_file_is_refused(tmp_path: Path, content: bytes) -> None:
    """With the path, and no traceback."""
    path = tmp_path / "a.node"
    path.write_bytes(content)
    with pytest.raises(SharedStateError, match=str(path)):
        NodeFile.open(path)
    with pytest.raises(SharedStateError, match="start the simulated rack first"):
        NodeFile.open(tmp_path / "none.node")


def test_a_damaged_head_is_refused(tmp_path: Path) -> None:
    """The JSON in front says something else."""
    path = node_path(tmp_path, "a")
    NodeWriter.create(path, static()).close()
    path.write_bytes(path.read_bytes().replace(b'"pci_address"', b'"pci_addressX'))
    with pytest.raises(SharedStateError, match="not a node of this version"):
        NodeFile.open(path)


def test_a_file_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """No such folder, or no space."""
    with pytest.raises(SharedStateError, match="cannot make the node's file: No such file"):
        NodeWriter.create(tmp_path / "none" / "a.node", static())
