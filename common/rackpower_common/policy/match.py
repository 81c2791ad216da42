"""Which class a GPU is of, by the model name that its driver tells. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from rackpower_common.model.policy import GpuClass


def match_class(classes: Iterable[GpuClass], model: str) -> GpuClass | None:
    """Return the first class whose patterns match a driver's model name, case ignored; None for none."""
    lowered = model.strip().lower()
    for gpu_class in classes:
        if any(fnmatchcase(lowered, pattern.lower()) for pattern in gpu_class.models):
            return gpu_class
    return None


def overlap(one: GpuClass, other: GpuClass) -> tuple[str, str] | None:
    """Return a pattern of each class that may match the same model, None when none do.

    A pattern's own letters, its stars taken as nothing, stand for a model that it is meant to match.
    """
    for left in one.models:
        for right in other.models:
            if _sample_matches(left, right) or _sample_matches(right, left):
                return left, right
    return None


def _sample_matches(sample: str, pattern: str) -> bool:
    return fnmatchcase(sample.replace("*", "").replace("?", "x").lower(), pattern.lower())
