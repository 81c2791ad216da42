"""The one state of a rack: what agents reported, what we granted, what that may draw.

Owned by one task of the shell and replaced, never mutated, by `absorb` and `commit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from rackpower_common.model.device import Device, Workload
from rackpower_common.model.identity import DomainName, GpuId, NodeName, StreamId, Term
from rackpower_common.model.messages import GpuReport
from rackpower_common.model.policy import Node


class NodeState(Enum):
    """How the controller sees a node."""

    UNHEARD = "unheard"
    LIVE = "live"
    SILENT = "silent"
    WAITING = "waiting"
    UNKNOWN = "unknown"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Outstanding:
    """A grant sent and not yet closed by an acknowledgement; `cap_w` counts until then."""

    sequence: int
    cap_w: int
    sent_s: float


@dataclass(frozen=True, slots=True)
class GpuBook:
    """One GPU's account.

    `requested_w` and `enforced_w` are the last read back; `highest_w` the highest enforced in the last report;
    `unsettled_w` the old level that still counts although a lower one was read back, None when settled;
    `unsettled_since_s` when the lower was read back, `drew_before_w` the GPU's average draw in the report before;
    `pending_w` driver writes not returned.
    `granted_w`, `granted_sequence` and `granted_fallback_w` are those of the last grant sent in this term.
    `sequence` is the highest known, ours or the agent's. `heard` says that it was heard in this term.
    `recalled_w` is what it counted for before this term, for lowered limits only. `ceiling_w` is an enforced cap
    found below the requested one (VBIOS, BMC): nothing above it is planned until it is tried again.
    """

    gpu: GpuId
    node: NodeName
    device: Device
    heard: bool = False
    requested_w: int | None = None
    enforced_w: int | None = None
    highest_w: int | None = None
    pending_w: tuple[int, ...] = ()
    outstanding: tuple[Outstanding, ...] = ()
    unsettled_w: int | None = None
    unsettled_since_s: float | None = None
    drew_before_w: int | None = None
    sequence: int = 0
    acknowledged_sequence: int = 0
    agent_sequence: int = 0
    granted_sequence: int = 0
    granted_w: int | None = None
    granted_fallback_w: int | None = None
    granted_at_s: float | None = None
    recalled_w: int | None = None
    refusals: int = 0
    refused_at_s: float | None = None
    ceiling_w: int | None = None
    ceiling_at_s: float | None = None
    last: GpuReport | None = None


@dataclass(frozen=True, slots=True)
class NodeBook:
    """One node's account. `stream` is None when nobody is connected.

    `heard` says that a report in this term named our term as its highest: from then on its books count.
    `extra_overhead_w` is draw seen by the node's meter above the account, let go slowly. `devices_complete` says that
    a complete list under a new boot id proved every missing GPU gone; `admitted` that its boot reserve fitted.
    `placed_boot_id` is the boot under which it reported since a policy moved it, empty for none yet: another one
    proves a power cycle after the move.
    """

    name: NodeName
    identity: str = ""
    peer: str = ""
    stream: StreamId | None = None
    boot_id: str = ""
    placed_boot_id: str = ""
    agent_instance: str = ""
    agent_version: str = ""
    devices_complete: bool = False
    journal_read: bool = True
    connected_s: float | None = None
    last_report_s: float | None = None
    last_sequence: int = 0
    heard: bool = False
    admitted: bool = False
    declared_off: bool = False
    left: bool = False
    node_power_w: int | None = None
    extra_overhead_w: int = 0
    workloads: tuple[Workload, ...] = ()
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MeterBook:
    """The last believable reading of a domain's meter."""

    power_w: int
    at_s: float
    extra_w: int = 0


@dataclass(frozen=True, slots=True)
class RackState:
    """All that the decision is made from, beside plan, policy and time.

    `former_nodes` keeps, for a node that a policy dropped or moved, what it was: its exposure still counts there,
    and `former_absent_w` what the GPUs of a dropped node that were never listed count for.
    `limits_lowered` says that a limit came down since this process started: then unheard nodes are a reason to shed.
    `recalled_w` is what the store recorded for a node before this term: for lowered limits only, never for raises.
    """

    term: Term | None = None
    term_since_s: float = 0.0
    tick: int = 0
    nodes: Mapping[NodeName, NodeBook] = field(default_factory=dict)
    gpus: Mapping[GpuId, GpuBook] = field(default_factory=dict)
    meters: Mapping[DomainName, MeterBook] = field(default_factory=dict)
    former_nodes: Mapping[NodeName, tuple[Node, ...]] = field(default_factory=dict)
    former_absent_w: Mapping[NodeName, int] = field(default_factory=dict)
    recalled_w: Mapping[NodeName, int] = field(default_factory=dict)
    limits_lowered: bool = False
    store_detail: str = ""
    needs_term_above: int | None = None
