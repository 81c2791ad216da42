"""GPU classes: the built-in ones, a policy's own and its changes to the built-in."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from typing import TypeVar

from rackpower_common.model.identity import ClassName
from rackpower_common.model.policy import Curve, GpuClass
from rackpower_common.policy.merge import Merged, merge, place_of
from rackpower_common.policy.names import InvalidNameError, check_name
from rackpower_common.policy.problems import Findings, Place, PolicyError
from rackpower_common.policy.spec import ClassSpec, CurveSpec
from rackpower_common.policy.tree import Entry, parse
from rackpower_common.policy.validate import validate
from rackpower_common.quantity import format_power, quoted

T = TypeVar("T")


@functools.cache
def builtin_classes() -> Mapping[ClassName, GpuClass]:
    """Return the classes that ship with rackpower, by name.

    Raises:
        PolicyError: The packaged file is damaged.
    """
    content = resources.files("rackpower_common.policy").joinpath("builtin_classes.yaml").read_bytes()
    findings = Findings()
    tree = parse("builtin_classes.yaml", content, findings)
    merged = merge([tree], findings) if tree is not None else Merged()
    classes = {
        name: compiled
        for key, entry in merged.sections["classes"].items()
        if (compiled := _compile_class(key, entry, None, "auto", findings)) is not None
        for name in (compiled.name,)
    }
    if findings.failed:
        raise PolicyError(findings.in_order())
    return classes


def compile_classes(merged: Merged, fallback: int | str, findings: Findings) -> dict[str, GpuClass | None]:
    """Compile all classes that a policy may name.

    Args:
        merged: The policy's files.
        fallback: The policy's fallback for classes without their own: `auto`, or whole watts.
        findings: Where problems go.

    Returns:
        Classes by name: the policy's own first and in order, then the other built-in ones. None for a class that is
        there but wrong, so that references to it are not reported too.
    """
    builtin = builtin_classes()
    classes: dict[str, GpuClass | None] = {
        name: _compile_class(name, entry, builtin.get(ClassName(name)), fallback, findings)
        for name, entry in merged.sections["classes"].items()
    }
    for name, known in builtin.items():
        if name not in classes:
            classes[name] = _with_fallback(known, fallback)
    return classes


def _compile_class(
    name: str, entry: Entry, base: GpuClass | None, fallback: int | str, findings: Findings
) -> GpuClass | None:
    """Compile one class over the built-in one of the same name, if there is one."""
    label = f"class {quoted(name)}"
    spec = validate(ClassSpec, entry.value, entry.place, label, findings)
    try:
        check_name(name)
    except InvalidNameError as error:
        findings.error(entry.place, error.message, error.hint)
        return None
    if spec is None or not _complete(spec, entry, base, label, findings):
        return None
    max_cap_w = _or(spec.max_cap, base.max_cap_w if base else 0)
    same_max = base is not None and max_cap_w == base.max_cap_w
    min_cap_w = _or(spec.min_cap, base.min_cap_w if base else 0)
    gpu_class = GpuClass(
        name=ClassName(name),
        models=tuple(_or(spec.models, list(base.models if base else ()))),
        min_cap_w=min_cap_w,
        max_cap_w=max_cap_w,
        default_cap_w=_or(spec.default_cap, min(base.default_cap_w, max_cap_w) if base else max_cap_w),
        largest_draw_w=_or(spec.largest_draw, base.largest_draw_w if base and same_max else max_cap_w),
        idle_w=_or(spec.idle, base.idle_w if base else 0),
        curve=_curve(spec.curve, base.curve if base else None, min_cap_w),
        fallback_w=_fallback_w(spec.fallback if spec.fallback is not None else fallback),
    )
    return gpu_class if _check(gpu_class, entry, label, findings) else None


def _complete(spec: ClassSpec, entry: Entry, base: GpuClass | None, label: str, findings: Findings) -> bool:
    """Report what a class of its own must have; a built-in one has it already."""
    if base is not None:
        return True
    lacks = [key for key in ("models", "min_cap", "max_cap", "idle", "curve") if getattr(spec, key) is None]
    curve = spec.curve or CurveSpec.model_validate({})
    wanted = ("natural_draw", "b", "c", "peak_tokens_per_second")
    lacks += [f"curve: {key}" for key in wanted if spec.curve is not None and getattr(curve, key) is None]
    for key in lacks:
        hint = "a class that is not built in needs it; the built-in ones are `b200`, `h100`, `mi300x` and `mi355x`"
        findings.error(entry.place, f"{label} lacks `{key}`", hint)
    return not lacks


def _check(gpu_class: GpuClass, entry: Entry, label: str, findings: Findings) -> bool:
    """Report values that contradict each other, at the one that was written."""
    found: list[tuple[Place, str, str]] = []

    def at_most(low_w: int, low: str, high_w: int, high: str) -> None:
        if low_w > high_w:
            written = low if place_of(entry, low) != entry.place else high
            message = f"{label}: `{low}` {format_power(low_w)} is above `{high}` {format_power(high_w)}"
            found.append((place_of(entry, written), message, f"set `{low}` to at most `{high}`"))

    at_most(gpu_class.min_cap_w, "min_cap", gpu_class.max_cap_w, "max_cap")
    if not found:
        at_most(gpu_class.min_cap_w, "min_cap", gpu_class.default_cap_w, "default_cap")
    at_most(gpu_class.default_cap_w, "default_cap", gpu_class.max_cap_w, "max_cap")
    at_most(gpu_class.max_cap_w, "max_cap", gpu_class.largest_draw_w, "largest_draw")
    at_most(gpu_class.idle_w, "idle", gpu_class.max_cap_w, "max_cap")
    curve = gpu_class.curve
    if gpu_class.min_cap_w == 0:
        found.append(
            (place_of(entry, "min_cap"), f"{label}: `min_cap` is 0 W", "name a cap at which the GPU still works")
        )
    if curve.natural_draw_w <= curve.lowest_w:
        place = place_of(entry, "curve", "lowest")
        place = place if place != entry.place else place_of(entry, "curve", "natural_draw")
        message = (
            f"{label}: the curve's `lowest` {curve.lowest_w:g} W is not below `natural_draw` {curve.natural_draw_w:g} W"
        )
        found.append((place, message, "a curve needs watts between the two"))
    for place, message, hint in found:
        findings.error(place, message, hint)
    fallback_w = gpu_class.fallback_w
    own = place_of(entry, "fallback") != entry.place
    if not found and own and fallback_w is not None and not gpu_class.min_cap_w <= fallback_w <= gpu_class.max_cap_w:
        message = f"{label}: `fallback` {format_power(fallback_w)} is outside {_span(gpu_class)}"
        findings.error(place_of(entry, "fallback"), message, "write `auto`, or watts that can be capped to")
        return False
    return not found


def _curve(spec: CurveSpec | None, base: Curve | None, min_cap_w: int) -> Curve:
    written = spec or CurveSpec.model_validate({})
    base = base or Curve(0.0, 0.0, 1.0, 0.0, float(min_cap_w))
    return Curve(
        natural_draw_w=float(_or(written.natural_draw, base.natural_draw_w)),
        b=float(_or(written.b, base.b)),
        c=float(_or(written.c, base.c)),
        peak_tokens_per_s=float(_or(written.peak_tokens_per_second, base.peak_tokens_per_s)),
        lowest_w=float(_or(written.lowest, base.lowest_w)),
    )


def _with_fallback(gpu_class: GpuClass, fallback: int | str) -> GpuClass:
    """Return a built-in class with the policy's fallback."""
    return replace(gpu_class, fallback_w=_fallback_w(fallback))


def _fallback_w(fallback: int | str) -> int | None:
    return None if isinstance(fallback, str) else fallback


def _span(gpu_class: GpuClass) -> str:
    return f"{format_power(gpu_class.min_cap_w)} to {format_power(gpu_class.max_cap_w)}"


def _or(value: T | None, otherwise: T) -> T:
    return otherwise if value is None else value
