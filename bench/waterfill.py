"""The water-fill at 72 and 576 GPUs: it answers when a solver is late, and sheds."""

from __future__ import annotations

from functools import partial

from bench.figure import Figure, durations_s, percentile
from bench.racks import example_question

from rackpower_controller.core.waterfill import waterfill

REPEATS = 200
BUDGET_MS = {72: 2.0, 576: 8.0}
"""About three times what they took on a quiet machine: these are for seeing a slip, not a promise."""


def figures(yardstick_s: float) -> list[Figure]:
    """Time the water-fill on the example policy's row, alone and eight times."""
    rows = []
    for copies in (1, 8):
        question = example_question(copies)
        taken_s = percentile(durations_s([partial(waterfill, question)] * REPEATS), 50)
        gpus = len(question.gpus)
        name = f"water-fill, {gpus} GPUs, p50"
        rows.append(Figure(name, 1e3 * taken_s, "ms", BUDGET_MS[gpus], taken_s / yardstick_s, "yardstick"))
    return rows
