"""The policy of the demo's rack, as a file that a person may edit while it runs."""

from __future__ import annotations

import math
from typing import Final

from rackpower_common.policy import LoadedPolicy, PolicyError, load_files
from rackpower_ctl.errors import UsageError
from rackpower_sim.classes import CLASSES, SUPPLY_LOSS, GpuTruth

ORDER: Final = ("b200", "h100", "mi300x", "mi355x")
"""Node by node, over and over."""
BUDGET_SHARE: Final = 0.72
"""Of nameplate: a quarter less still lets every GPU run at its minimum."""
LEAST_SHARE: Final = 1.15
"""Of what every GPU at its minimum needs."""
NODES_PER_PDU: Final = 3
PDU_SHARE: Final = 0.85
"""Of a PDU's nameplate: enough that the rack's budget binds first."""
RACK_OVERHEAD_W: Final = 1500
MAX_NODES: Final = 64
MAX_GPUS_PER_NODE: Final = 64

HEAD: Final = """\
# The policy of this demo. Edit it while the demo runs: lower the rack's limit by a quarter, say, and watch the caps.
# A file that is wrong changes nothing; the controller's last good policy stays in force, and the status says so.
version: 1
objective: tokens
fallback: auto

"""


def policy_text(nodes: int, gpus_per_node: int) -> str:
    """Return a policy for so many nodes, of one GPU class each, on PDUs of one rack.

    Raises:
        UsageError: A count is out of range.
    """
    if not 1 <= nodes <= MAX_NODES:
        raise UsageError(f"--nodes {nodes}: from 1 to {MAX_NODES} can be simulated")
    if not 1 <= gpus_per_node <= MAX_GPUS_PER_NODE:
        raise UsageError(f"--gpus-per-node {gpus_per_node}: from 1 to {MAX_GPUS_PER_NODE} fit a node")
    truths = [CLASSES[ORDER[index % len(ORDER)]] for index in range(nodes)]
    loads_w = [nameplate_w(truth, gpus_per_node) for truth in truths]
    least_w = RACK_OVERHEAD_W + sum(minimum_w(truth, gpus_per_node) for truth in truths)
    wanted_w = (sum(loads_w) + RACK_OVERHEAD_W) * BUDGET_SHARE
    budget_w = _rounded(max(wanted_w, least_w * LEAST_SHARE))  # a rack of few GPUs is mostly overhead
    lines = [
        "domains:",
        f"  # {budget_w / (sum(loads_w) + RACK_OVERHEAD_W):.0%} of nameplate",
        f"  rack-1: {{kind: rack, limit: {budget_w} W, overhead: {RACK_OVERHEAD_W} W}}",
    ]
    for number, first in enumerate(range(0, nodes, NODES_PER_PDU), start=1):
        end = first + NODES_PER_PDU
        least_w = sum(minimum_w(truth, gpus_per_node) for truth in truths[first:end])
        limit_w = _rounded(max(sum(loads_w[first:end]) * PDU_SHARE, least_w * LEAST_SHARE))
        lines.append(f"  pdu-{number}: {{kind: pdu, parent: rack-1, limit: {limit_w} W}}")
    lines += ["", "nodes:"]
    for index, truth in enumerate(truths):
        lines += [
            f"  gpu-{index + 1:02d}:",
            f"    feeds: pdu-{index // NODES_PER_PDU + 1}",
            f"    gpus: {{class: {truth.name}, count: {gpus_per_node}}}",
            f"    overhead: {_overhead_w(truth, gpus_per_node)} W",
            f"    psu_efficiency: {1 / SUPPLY_LOSS:.0%}",
        ]
    return HEAD + "\n".join(lines) + "\n"


def nameplate_w(truth: GpuTruth, gpus: int) -> float:
    """Return what a node draws at its supplies' input with every GPU at its default cap, in watts."""
    return SUPPLY_LOSS * (_overhead_w(truth, gpus) + gpus * truth.default_cap_w)


def minimum_w(truth: GpuTruth, gpus: int) -> float:
    """Return what a node draws at its supplies' input with every GPU at its minimum cap, in watts."""
    return SUPPLY_LOSS * (_overhead_w(truth, gpus) + gpus * truth.min_cap_w)


def loaded(name: str, content: bytes) -> LoadedPolicy:
    """Return a policy that the demo can run.

    Raises:
        UsageError: It is wrong; the message names the first error's place.
    """
    try:
        return load_files([(name, content)])
    except PolicyError as error:
        raise UsageError(error.message, f"rackctl policy check {name} tells everything that is wrong") from error


def _overhead_w(truth: GpuTruth, gpus: int) -> int:
    """Return a node's overhead; that of a class is for eight GPUs."""
    return math.ceil(truth.node_overhead_w * gpus / 8)


def _rounded(power_w: float) -> int:
    return math.ceil(power_w / 100) * 100
