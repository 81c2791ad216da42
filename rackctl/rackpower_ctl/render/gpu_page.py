"""One GPU: found by what a person types, and shown with all that is known of it."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from rackpower.v1 import operator_pb2
from rackpower_ctl.errors import UsageError
from rackpower_ctl.render import words
from rackpower_ctl.render.tables import cell, state_cell

MOST_CANDIDATES = 8


def find_gpu(status: operator_pb2.Status, which: str) -> operator_pb2.Gpu:
    """Return the GPU of that UUID, of a UUID that begins so (with or without `GPU-`), or `NODE/NUMBER` from 0.

    Raises:
        UsageError: None or several fit.
    """
    node, slash, number = which.rpartition("/")
    if slash and number.isascii() and number.isdigit():
        mine = [gpu for gpu in status.gpus if gpu.node == node]
        if int(number) < len(mine):
            return mine[int(number)]
        raise UsageError(f"{node} has no GPU {number}", f"it has {len(mine)}, counted from 0: rackctl status --json")
    exact = [gpu for gpu in status.gpus if gpu.gpu_uuid == which]
    wanted = which.lower()
    found = exact or [
        gpu for gpu in status.gpus if wanted and gpu.gpu_uuid.lower().startswith((wanted, f"gpu-{wanted}"))
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(
            f"no GPU's UUID begins with {which!r}", "rackctl status on a wide screen, or --json, lists them"
        )
    names = ", ".join(f"{gpu.gpu_uuid} on {gpu.node}" for gpu in found[:MOST_CANDIDATES])
    raise UsageError(f"{len(found)} GPUs begin with {which!r}", f"type more of it: {words.clean(names)}")


def gpu_page(gpu: operator_pb2.Gpu) -> Table:
    """Return a GPU as names and values."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    rate = words.whole(gpu.tokens_per_second if gpu.HasField("tokens_per_second") else None)
    for name, value in (
        ("gpu", cell(gpu.gpu_uuid)),
        ("node", cell(gpu.node)),
        ("model", cell(gpu.model)),
        ("health", state_cell(words.health(gpu.health))),
        ("cap", _cap(gpu)),
        ("bounds", _bounds(gpu)),
        ("without controller", cell(f"{_watts(gpu, 'fallback_cap_milliwatts')} W")),
        ("ledger", cell(f"{words.watts(gpu.exposure_milliwatts)} W")),
        ("draw", cell(f"{_watts(gpu, 'power_milliwatts')} W")),
        ("temperature", cell(f"{words.celsius(gpu.core_celsius if gpu.HasField('core_celsius') else None)} °C")),
        ("limited by", cell(words.LIMITED_BY.get(gpu.limit_reason, words.MISSING))),
        ("workload", cell(f"{gpu.workload or words.MISSING}, {rate} tokens/s")),
        ("why this cap", cell(gpu.why or words.MISSING)),
    ):
        table.add_row(name, value)
    return table


def _cap(gpu: operator_pb2.Gpu) -> Text:
    control = words.cap_control(gpu.cap_control)
    text = cell(
        f"{_watts(gpu, 'enforced_cap_milliwatts')} W in force, {_watts(gpu, 'granted_cap_milliwatts')} W granted, "
        f"{_watts(gpu, 'target_cap_milliwatts')} W wanted by the plan"
    )
    if control != "ok":
        text.append(f"; it cannot be held: {control.replace('_', ' ')}", style="yellow")
    return text


def _bounds(gpu: operator_pb2.Gpu) -> Text:
    low, high, default = (
        words.watts(value) for value in (gpu.min_cap_milliwatts, gpu.max_cap_milliwatts, gpu.default_cap_milliwatts)
    )
    return cell(f"{low} to {high} W, {default} W after a driver load")


def _watts(gpu: operator_pb2.Gpu, field: str) -> str:
    known = gpu.HasField(field)  # type: ignore[arg-type]  # the stubs list the names, we pass one on
    return words.watts(getattr(gpu, field) if known else None)
