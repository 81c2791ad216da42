"""What stands where in a simulated node's file, and the records in it. Who reads and writes them: `shared_state`.

Layout: header · what never changes, as JSON · counter · node, GPUs, replicas, history · slots. Everything is made of
native 8-byte words. The standard library only: this runs inside the agent, which must stay small.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

MAGIC: Final = b"RPSIMND1"
HISTORY_STEPS: Final = 512
"""Steps kept for those who measure: 25 s at 20 steps a second, so that a late reader misses none."""

HEADER_STRUCT: Final = struct.Struct("=8sQQQQ")
COUNTER_STRUCT: Final = struct.Struct("=Q")
NODE_STRUCT: Final = struct.Struct("=QdQQddd")
GPU_STRUCT: Final = struct.Struct("=ddddddddqqqqQ")
REPLICA_STRUCT: Final = struct.Struct("=ddQQQQ")
HISTORY_STRUCT: Final = struct.Struct("=Qdddqd")


class WriteMode(IntEnum):
    """What the driver makes of cap writes; for tests."""

    OK = 0
    REFUSE = 1
    CLAMP = 2
    """The write returns, but the hardware stays at or above `clamp_w`."""
    HANG = 3
    """The write does not return and takes effect only when the fault is lifted."""
    HANG_APPLIED = 4
    """The write takes effect but does not return until the fault is lifted."""
    NO_PERMISSION = 5


class SampleMode(IntEnum):
    """What the driver makes of readings; for tests."""

    OK = 0
    FAIL = 1
    HANG = 2


class WriteResult(IntEnum):
    """How the last write ended."""

    OK = 0
    REFUSED = 1
    NO_PERMISSION = 2
    LOST = 3


class LimitCode(IntEnum):
    """What limits a GPU now."""

    NONE = 0
    IDLE = 1
    POWER = 2


@dataclass(frozen=True, slots=True)
class StaticGpu:
    """What never changes of a GPU."""

    uuid: str
    gpu_class: str
    vendor: str
    model: str
    pci_address: str
    min_cap_w: int
    max_cap_w: int
    default_cap_w: int
    largest_draw_w: int
    slowdown_c: int
    cap_control: str = "ok"


@dataclass(frozen=True, slots=True)
class StaticReplica:
    """What never changes of an inference server; `gpus` are indices within the node."""

    name: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StaticNode:
    """What never changes of a node."""

    name: str
    gpus: tuple[StaticGpu, ...]
    replicas: tuple[StaticReplica, ...]
    loss: float


class NodeState(NamedTuple):
    """A node now. `time_s` is on the machine's boot clock; `power_w` is at the supplies' input."""

    step: int
    time_s: float
    boots: int
    powered: int
    gpu_draw_w: float
    overhead_w: float
    power_w: float


class GpuState(NamedTuple):
    """A GPU now. `applied` is the last write request that has returned, `result` how."""

    draw_w: float
    average_w: float
    energy_j: float
    natural_w: float
    effective_w: float
    load: float
    temp_c: float
    limited_s: float
    requested_w: int
    enforced_w: int
    limit: int
    result: int
    applied: int


class ReplicaState(NamedTuple):
    """An inference server now; token counts since the start."""

    generated_tokens: float
    prompt_tokens: float
    completed: int
    running: int
    waiting: int
    refused: int


class HistoryEntry(NamedTuple):
    """One step of a node. `caps_w` is the sum of the caps that the hardware enforces, tokens count since the start."""

    step: int
    time_s: float
    gpu_draw_w: float
    power_w: float
    caps_w: int
    generated_tokens: float


class Slot(IntEnum):
    """Words of a GPU's slot, written from outside."""

    REQUEST_W = 0
    REQUEST = 1
    OVERRIDE_W = 2
    OVERRIDE = 3
    OUT_OF_BAND_W = 4
    WRITE_MODE = 5
    CLAMP_W = 6
    SAMPLE_MODE = 7


class NodeSlot(IntEnum):
    """Words of the node's slot."""

    REBOOT = 0
    REBOOT_DOWN_MS = 1
    EXTRA_OVERHEAD_W = 2
    SERVE_BOOT = 3
    """The boot for which the servers may run; see `LoadSpec.wait_for_boot_cap`."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things are, in bytes from the start of the file."""

    gpus: int
    replicas: int
    counter: int

    @property
    def node(self) -> int:
        """Return the byte where the node's record begins."""
        return self.counter + COUNTER_STRUCT.size

    @property
    def gpu(self) -> int:
        """Return the byte where the GPUs' records begins."""
        return self.node + NODE_STRUCT.size

    @property
    def replica(self) -> int:
        """Return the byte where the replicas' records begins."""
        return self.gpu + self.gpus * GPU_STRUCT.size

    @property
    def history(self) -> int:
        """Return the byte where the history begins."""
        return self.replica + self.replicas * REPLICA_STRUCT.size

    @property
    def slots(self) -> int:
        """Return the byte where what is written from outside begins."""
        return self.history + HISTORY_STEPS * HISTORY_STRUCT.size

    @property
    def size(self) -> int:
        """Return the byte where nothing any more begins."""
        return self.slots + 8 * (len(NodeSlot) + self.gpus * len(Slot))
