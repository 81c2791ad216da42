"""The hardware of one simulated node as other processes see it: a file mapped into memory.

One process, `rackpower_sim.rack`, steps the physics and writes the sensors; agents, tests and the demo map the same
file, read them, and write cap requests, faults and reboots into slots. Kill an agent and the hardware draws on.
The sensors stand behind a sequence lock: its counter is odd while they are being written.
The standard library only: this runs inside the agent, which must stay small.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rackpower_common.errors import RackpowerError
from rackpower_sim.node_layout import (
    COUNTER_STRUCT,
    GPU_STRUCT,
    HEADER_STRUCT,
    HISTORY_STEPS,
    HISTORY_STRUCT,
    MAGIC,
    NODE_STRUCT,
    REPLICA_STRUCT,
    GpuState,
    HistoryEntry,
    Layout,
    NodeSlot,
    NodeState,
    ReplicaState,
    SampleMode,
    Slot,
    StaticGpu,
    StaticNode,
    StaticReplica,
    WriteMode,
)

STALE_S: Final = 2.0
"""A node file that has not moved for so long has lost its simulator."""
_READ_TRIES: Final = 1000
_READ_PAUSE_S: Final = 0.001


class SharedStateError(RackpowerError):
    """A node's file is missing, of another version, damaged, or its simulator has stopped."""


def boot_clock_s() -> float:
    """Return seconds of the clock that `NodeState.time_s` is on."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def node_path(folder: Path, node: str) -> Path:
    """Return where a node's file lies in the rack's folder."""
    return folder / f"{node}.node"


class _Mapped:
    """A node's file in memory: what reader and writer share."""

    def __init__(self, path: Path, static: StaticNode, layout: Layout, mapped: mmap.mmap) -> None:
        self.path = path
        self.static = static
        self._layout = layout
        self._map = mapped
        self._view = memoryview(mapped)
        self._words = self._view.cast("q")
        self._counter = layout.counter // 8
        self._node_slot = layout.slots // 8
        self._gpu_slots = self._node_slot + len(NodeSlot)

    def slot(self, gpu: int, word: Slot) -> int:
        """Return a word that is written from outside."""
        return self._words[self._gpu_slots + gpu * len(Slot) + word]

    def node_slot(self, word: NodeSlot) -> int:
        """Return a word of the node that is written from outside."""
        return self._words[self._node_slot + word]

    def close(self) -> None:
        """Let go of the file; the hardware goes on."""
        self._words.release()
        self._view.release()
        self._map.close()

    def _set(self, gpu: int, word: Slot, value: int) -> None:
        self._words[self._gpu_slots + gpu * len(Slot) + word] = value


class NodeFile(_Mapped):
    """A node's hardware as its users see it: agents read sensors and ask for caps, tests set faults.

    Each reading is one consistent step. One writer a GPU at a time: the agent's worker of that GPU.
    """

    @classmethod
    def open(cls, path: Path) -> NodeFile:
        """Map a node's file.

        Raises:
            SharedStateError: It is missing, of another version, or damaged.
        """
        try:
            with path.open("r+b") as file:
                mapped = mmap.mmap(file.fileno(), 0)
        except (OSError, ValueError) as error:
            raise SharedStateError(
                f"{path}: no simulated node here: {error}", "start the simulated rack first"
            ) from None
        try:
            static, layout = _read_head(mapped)
        except (ValueError, TypeError, KeyError) as error:
            mapped.close()
            raise SharedStateError(f"{path}: not a node of this version of the simulator: {error}") from None
        return cls(path, static, layout, mapped)

    def node(self) -> NodeState:
        """Return the node now."""
        return NodeState(*NODE_STRUCT.unpack(self._read(self._layout.node, NODE_STRUCT.size)))

    def gpu(self, gpu: int) -> GpuState:
        """Return a GPU now; `gpu` is its index in the node."""
        return self.gpu_at(gpu)[1]

    def gpu_at(self, gpu: int) -> tuple[NodeState, GpuState]:
        """Return the node and one of its GPUs at the same step."""
        content = self._read(self._layout.node, NODE_STRUCT.size + (gpu + 1) * GPU_STRUCT.size)
        node = NodeState(*NODE_STRUCT.unpack_from(content))
        return node, GpuState(*GPU_STRUCT.unpack_from(content, NODE_STRUCT.size + gpu * GPU_STRUCT.size))

    def gpus(self) -> tuple[GpuState, ...]:
        """Return all GPUs at the same step."""
        content = self._read(self._layout.gpu, self._layout.gpus * GPU_STRUCT.size)
        return tuple(GpuState(*record) for record in GPU_STRUCT.iter_unpack(content))

    def replicas(self) -> tuple[NodeState, tuple[ReplicaState, ...]]:
        """Return the node and its inference servers at the same step."""
        content = self._read(self._layout.node, self._layout.history - self._layout.node)
        begin = self._layout.replica - self._layout.node
        records = REPLICA_STRUCT.iter_unpack(content[begin:])
        return NodeState(*NODE_STRUCT.unpack_from(content)), tuple(ReplicaState(*record) for record in records)

    def history(self, after_step: int = -1) -> tuple[HistoryEntry, ...]:
        """Return the steps after `after_step` that are still kept, oldest first; see `HISTORY_STEPS`."""
        begin = self._layout.history - self._layout.node
        content = self._read(self._layout.node, self._layout.slots - self._layout.node)
        last = NodeState(*NODE_STRUCT.unpack_from(content)).step
        first = max(after_step + 1, last - HISTORY_STEPS + 1, 1)
        places = ((begin + (step % HISTORY_STEPS) * HISTORY_STRUCT.size, step) for step in range(first, last + 1))
        entries = ((HistoryEntry(*HISTORY_STRUCT.unpack_from(content, place)), step) for place, step in places)
        return tuple(entry for entry, step in entries if entry.step == step)

    def request_cap(self, gpu: int, cap_w: int) -> int:
        """Ask the hardware for a cap.

        Returns:
            The request's number: the write has returned once `GpuState.applied` is this or higher.
        """
        number = self.slot(gpu, Slot.REQUEST) + 1
        self._set(gpu, Slot.REQUEST_W, cap_w)
        self._set(gpu, Slot.REQUEST, number)
        return number

    def override(self, gpu: int, cap_w: int) -> None:
        """Change a cap as somebody else would, past the agent."""
        self._set(gpu, Slot.OVERRIDE_W, cap_w)
        self._set(gpu, Slot.OVERRIDE, self.slot(gpu, Slot.OVERRIDE) + 1)

    def limit_out_of_band(self, gpu: int, limit_w: int) -> None:
        """Set a BMC's limit, 0 lifts it."""
        self._set(gpu, Slot.OUT_OF_BAND_W, limit_w)

    def fail_writes(self, gpu: int, mode: WriteMode, clamp_w: int = 0) -> None:
        """Make cap writes of a GPU fail in some way, or work again."""
        self._set(gpu, Slot.CLAMP_W, clamp_w)
        self._set(gpu, Slot.WRITE_MODE, mode)

    def fail_samples(self, gpu: int, mode: SampleMode) -> None:
        """Make readings of a GPU fail in some way, or work again."""
        self._set(gpu, Slot.SAMPLE_MODE, mode)

    def reboot(self, down_s: float = 0.0) -> None:
        """Take the node through a power cycle: dark for `down_s` seconds, then up with default caps."""
        self._words[self._node_slot + NodeSlot.REBOOT_DOWN_MS] = round(down_s * 1000)
        self._words[self._node_slot + NodeSlot.REBOOT] += 1

    def start_servers(self) -> None:
        """Let the node's servers run until its next boot: the boot cap has been set."""
        self._words[self._node_slot + NodeSlot.SERVE_BOOT] = self.node().boots

    def add_overhead(self, extra_w: int) -> None:
        """Let the node draw `extra_w` watts more beside its GPUs than it otherwise would; 0 ends it."""
        self._words[self._node_slot + NodeSlot.EXTRA_OVERHEAD_W] = extra_w

    def _read(self, begin: int, size: int) -> bytes:
        """Return bytes that belong to one step."""
        for _ in range(_READ_TRIES):
            before = self._words[self._counter]
            content = self._map[begin : begin + size]
            if not before & 1 and self._words[self._counter] == before:
                return content
            time.sleep(_READ_PAUSE_S)
        raise SharedStateError(f"{self.path}: the simulator stopped in the middle of a step", "start the rack again")


class NodeWriter(_Mapped):
    """A node's hardware as the simulator writes it; one process only, see `rack`."""

    @classmethod
    def create(cls, path: Path, static: StaticNode) -> NodeWriter:
        """Make a node's file anew, replacing an older one as a whole.

        Raises:
            SharedStateError: The file cannot be written.
        """
        head = json.dumps(asdict(static), separators=(",", ":")).encode()
        counter = -(-(HEADER_STRUCT.size + len(head)) // 8) * 8
        layout = Layout(len(static.gpus), len(static.replicas), counter)
        fresh = path.with_suffix(".new")
        try:
            with fresh.open("w+b") as file:
                file.write(HEADER_STRUCT.pack(MAGIC, len(head), layout.gpus, layout.replicas, counter) + head)
                file.flush()
                os.posix_fallocate(file.fileno(), 0, layout.size)  # a full disk is an error here, a crash later
                mapped = mmap.mmap(file.fileno(), layout.size)
            fresh.replace(path)
        except OSError as error:
            raise SharedStateError(f"{path}: cannot make the node's file: {error.strerror}") from None
        return cls(path, static, layout, mapped)

    def publish(
        self,
        node: NodeState,
        gpus: Sequence[GpuState],
        replicas: Sequence[ReplicaState],
        history: Sequence[HistoryEntry],
    ) -> None:
        """Write one step's sensors; `history` holds all steps since the last call."""
        self._words[self._counter] += 1
        NODE_STRUCT.pack_into(self._map, self._layout.node, *node)
        for index, gpu in enumerate(gpus):
            GPU_STRUCT.pack_into(self._map, self._layout.gpu + index * GPU_STRUCT.size, *gpu)
        for index, replica in enumerate(replicas):
            REPLICA_STRUCT.pack_into(self._map, self._layout.replica + index * REPLICA_STRUCT.size, *replica)
        for entry in history:
            place = self._layout.history + (entry.step % HISTORY_STEPS) * HISTORY_STRUCT.size
            HISTORY_STRUCT.pack_into(self._map, place, *entry)
        self._words[self._counter] += 1


def _read_head(mapped: mmap.mmap) -> tuple[StaticNode, Layout]:
    if len(mapped) < HEADER_STRUCT.size + COUNTER_STRUCT.size:
        raise ValueError("too short")
    magic, length, gpus, replicas, counter = HEADER_STRUCT.unpack_from(mapped)
    if magic != MAGIC:
        raise ValueError("it does not begin with the right mark")
    layout = Layout(gpus, replicas, counter)
    if len(mapped) != layout.size:
        raise ValueError(f"{len(mapped)} bytes instead of {layout.size}")
    content = json.loads(mapped[HEADER_STRUCT.size : HEADER_STRUCT.size + length])
    static = StaticNode(
        name=content["name"],
        gpus=tuple(StaticGpu(**gpu) for gpu in content["gpus"]),
        replicas=tuple(StaticReplica(entry["name"], tuple(entry["gpus"])) for entry in content["replicas"]),
        loss=content["loss"],
    )
    return static, layout
