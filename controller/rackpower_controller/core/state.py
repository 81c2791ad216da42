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
    `unsettled_since_s` when the lower was read back; `pending_w` driver writes not returned.
    `granted_w` is the last cap sent in this term, `wanted_fallback_w` the fallback sent with it.
    `sequence` is the highest known, ours or the agent's. `held` says that it was heard in this term.
    `recalled_w` is what the store recorded before this term, for lowered limits only.
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
    sequence: int = 0
    acknowledged_sequence: int = 0
    agent_sequence: int = 0
    granted_w: int | None = None
    granted_fallback_w: int | None = None
    granted_at_s: float | None = None
    recalled_w: int | None = None
    refusals: int = 0
    refused_at_s: float | None = None
    last: GpuReport | None = None


@dataclass(frozen=True, slots=True)
class NodeBook:
    """One node's account. `stream` is None when nobody is connected.

    `heard` says that a report in this term named our term as its highest: from then on its books count.
    `extra_overhead_w` is draw seen by the node's meter above the account, let go slowly.
    """

    name: NodeName
    identity: str = ""
    peer: str = ""
    stream: StreamId | None = None
    boot_id: str = ""
    agent_instance: str = ""
    agent_version: str = ""
    devices_complete: bool = False
    journal_read: bool = True
    connected_s: float | None = None
    last_report_s: float | None = None
    last_sequence: int = 0
    heard: bool = False
    waiting: bool = False
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

    `former_domains` keeps, for a node that a policy dropped or moved, the domains where its exposure still counts.
    """

    term: Term | None = None
    term_since_s: float = 0.0
    tick: int = 0
    nodes: Mapping[NodeName, NodeBook] = field(default_factory=dict)
    gpus: Mapping[GpuId, GpuBook] = field(default_factory=dict)
    meters: Mapping[DomainName, MeterBook] = field(default_factory=dict)
    former_domains: Mapping[NodeName, tuple[DomainName, ...]] = field(default_factory=dict)
    store_detail: str = ""
    needs_term_above: int | None = None
