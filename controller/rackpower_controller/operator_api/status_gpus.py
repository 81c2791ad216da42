"""GPUs for an operator. Readings of a node that does not report are left out: they say nothing about now."""

from __future__ import annotations

from collections.abc import Mapping

from rackpower.v1 import agent_pb2, operator_pb2
from rackpower_common.model.identity import GpuId
from rackpower_common.units import mw_from_w
from rackpower_common.wire import enums
from rackpower_controller.core.explain import why
from rackpower_controller.core.ledger import Account
from rackpower_controller.core.state import GpuBook, RackState
from rackpower_controller.operator_api.base import StatusSource
from rackpower_controller.operator_api.measured import Measured


def optional_mw(power_w: int | None) -> int | None:
    """Return milliwatts, None for unknown."""
    return None if power_w is None else mw_from_w(power_w)


def gpu_messages(source: StatusSource, books: Account, drawn: Measured) -> list[operator_pb2.Gpu]:
    """Return every GPU that a node listed, by node and then in the node's own order."""
    rates = rates_by_gpu(source.state, drawn)
    loads = workloads_by_gpu(source.state, drawn)
    order = {name: place for place, name in enumerate(books.nodes)}
    gpus = sorted(source.state.gpus.values(), key=lambda book: order.get(book.node, len(order)))
    return [_message(book, source, books, drawn, rates, loads) for book in gpus]


def rates_by_gpu(state: RackState, drawn: Measured) -> dict[GpuId, float]:
    """Return generated tokens per second by GPU: an even share of each workload that tells."""
    rates: dict[GpuId, float] = {}
    for name in drawn.fresh:
        for workload in state.nodes[name].workloads:
            if workload.generated_tokens_per_s is None:
                continue
            for gpu in workload.gpus:
                rates[gpu] = rates.get(gpu, 0.0) + workload.generated_tokens_per_s / len(workload.gpus)
    return rates


def workloads_by_gpu(state: RackState, drawn: Measured) -> dict[GpuId, str]:
    """Return the names of the workloads on each GPU."""
    names: dict[GpuId, list[str]] = {}
    for name in drawn.fresh:
        for workload in state.nodes[name].workloads:
            for gpu in workload.gpus:
                names.setdefault(gpu, []).append(workload.name)
    return {gpu: ", ".join(sorted(on_it)) for gpu, on_it in names.items()}


def _message(
    book: GpuBook,
    source: StatusSource,
    books: Account,
    drawn: Measured,
    rates: Mapping[GpuId, float],
    loads: Mapping[GpuId, str],
) -> operator_pb2.Gpu:
    index, device = books.index, book.device
    gpu_class = index.class_of(book.node, device)
    default_w = device.default_cap_w if device.default_cap_w is not None else None
    if default_w is None and gpu_class is not None:
        default_w = gpu_class.default_cap_w
    last = book.last if book.node in drawn.fresh else None
    fallback_w = book.granted_fallback_w
    if fallback_w is None and book.last is not None:
        fallback_w = book.last.holding.fallback_w
    target_w = source.plan.targets_w.get(book.gpu) if source.plan is not None else None
    return operator_pb2.Gpu(
        gpu_uuid=book.gpu,
        node=book.node,
        model=device.model,
        vendor=enums.VENDORS.number(device.vendor),  # type: ignore[arg-type]
        target_cap_milliwatts=optional_mw(target_w),
        granted_cap_milliwatts=optional_mw(book.granted_w),
        enforced_cap_milliwatts=optional_mw(book.enforced_w),
        exposure_milliwatts=mw_from_w(books.exposures_w[book.gpu]),
        power_milliwatts=optional_mw(drawn.gpus_w[book.gpu]),
        core_celsius=last.temperatures.core_c if last is not None else None,
        limit_reason=enums.LIMIT_REASONS.number(last.limit_reason)  # type: ignore[arg-type]
        if last is not None
        else agent_pb2.LIMIT_REASON_UNSPECIFIED,
        health=enums.HEALTHS.number(last.health)  # type: ignore[arg-type]
        if last is not None
        else agent_pb2.HEALTH_UNSPECIFIED,
        tokens_per_second=rates.get(book.gpu),
        why=why(book, index.policy, source.plan, source.now_s),
        workload=loads.get(book.gpu, ""),
        min_cap_milliwatts=mw_from_w(index.least_w(book.node, device)),
        max_cap_milliwatts=mw_from_w(index.highest_grant_w(book.node, device)),
        default_cap_milliwatts=mw_from_w(default_w or 0),
        fallback_cap_milliwatts=optional_mw(fallback_w),
        cap_control=enums.CAP_CONTROLS.number(device.cap_control),  # type: ignore[arg-type]
    )
