"""The simulated hardware of the demo: as the policy describes it, with curves of its own that nobody else reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from rackpower_common.model.device import Vendor
from rackpower_common.model.policy import Curve, GpuClass, Policy
from rackpower_common.policy.curves import CurveShape, shapes_for, with_curves
from rackpower_sim.classes import CLASSES, GpuTruth
from rackpower_sim.scenario import DomainSpec, FeedSpec, GpuGroup, LoadSpec, NodeSpec, Scenario

OFF_SHARE: Final = {"natural_draw_w": 0.03, "b": 0.08, "c": 0.08, "peak_tokens_per_s": 0.05}
"""Standard deviations by which the truth differs from the curve that the policy tells, as shares of it."""
MOST_DEVIATIONS: Final = 2.0
SLOWDOWN_C: Final = 90
"""Of classes that the simulator does not know; plausible."""


def scenario_of(policy: Policy, seed: int, shapes: Sequence[CurveShape] = (), trace: Path | None = None) -> Scenario:
    """Return the hardware for a policy.

    Args:
        policy: What the controller will be told.
        seed: Of everything random.
        shapes: Measured curve shapes; the truth is bent to them as the controller bends its own curves.
        trace: The load's trace.

    Raises:
        ScenarioError: It cannot be simulated.
    """
    bent = with_curves(policy, shapes_for(policy.classes, shapes))
    used = {gpus.gpu_class for node in policy.nodes for gpus in node.gpus}
    classes = sorted((known for known in bent.classes if known.name in used), key=lambda known: known.name)
    scenario = Scenario(
        name="demo",
        seed=seed,
        domains=tuple(
            DomainSpec(
                name=str(domain.name),
                parent=None if domain.parent is None else str(domain.parent),
                kind=domain.kind,
                limit_w=domain.limit_w,
                headroom_w=domain.headroom_w,
                overhead_w=domain.overhead_w,
                loss=domain.loss,
            )
            for domain in policy.domains
        ),
        nodes=tuple(
            NodeSpec(
                name=str(node.name),
                gpus=tuple(GpuGroup(str(gpus.gpu_class), gpus.count) for gpus in node.gpus),
                feeds=tuple(FeedSpec(str(feed.domain), feed.share) for feed in node.feeds),
                overhead_w=node.overhead_w,
                loss=node.loss,
                limit_w=node.limit_w,
            )
            for node in policy.nodes
            if not node.off
        ),
        classes=tuple(_truth(known, seed, index) for index, known in enumerate(classes)),
        load=LoadSpec(trace=None if trace is None else str(trace), wait_for_boot_cap=True),
    )
    scenario.check("the demo's rack")
    return scenario


def perturbed(curve: Curve, seed: int, index: int) -> Curve:
    """Return a curve near another one; the same seed and index give the same."""
    rng = np.random.default_rng([seed, 7, index])
    draws = np.clip(rng.standard_normal(len(OFF_SHARE)), -MOST_DEVIATIONS, MOST_DEVIATIONS).tolist()
    told = {name: float(getattr(curve, name)) for name in OFF_SHARE}
    true = {
        name: value * (1 + share * draw)
        for (name, share), value, draw in zip(OFF_SHARE.items(), told.values(), draws, strict=True)
    }
    return Curve(
        natural_draw_w=true["natural_draw_w"],
        b=true["b"],
        c=max(1.0, true["c"]),
        peak_tokens_per_s=true["peak_tokens_per_s"],
        lowest_w=curve.lowest_w,
    )


def _truth(gpu_class: GpuClass, seed: int, index: int) -> GpuTruth:
    known = CLASSES.get(str(gpu_class.name))
    curve = perturbed(gpu_class.curve, seed, index)
    pattern = gpu_class.models[0] if gpu_class.models else str(gpu_class.name)
    model = known.model if known is not None else pattern.replace("*", "").strip() or str(gpu_class.name)
    return GpuTruth(
        name=str(gpu_class.name),
        vendor=known.vendor if known is not None else _vendor(model),
        model=model,
        min_cap_w=gpu_class.min_cap_w,
        max_cap_w=gpu_class.max_cap_w,
        default_cap_w=gpu_class.default_cap_w,
        largest_draw_w=gpu_class.largest_draw_w,
        idle_w=float(gpu_class.idle_w),
        natural_draw_w=curve.natural_draw_w,
        b=curve.b,
        c=curve.c,
        peak_tokens_per_s=curve.peak_tokens_per_s,
        lowest_w=curve.lowest_w,
        slowdown_c=known.slowdown_c if known is not None else SLOWDOWN_C,
        node_overhead_w=known.node_overhead_w if known is not None else 0,
    )


def _vendor(model: str) -> Vendor:
    return Vendor.AMD if any(word in model.upper() for word in ("AMD", "INSTINCT", "MI3")) else Vendor.NVIDIA
