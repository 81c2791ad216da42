"""What an answer is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rackpower_controller.core.planning import PlanGpu, PlanRequest


def gained_tokens_per_s(request: PlanRequest, caps_w: Sequence[int]) -> float:
    """Return the weighted tokens/s that caps bring above all minima.

    Args:
        request: The question.
        caps_w: A cap for each GPU of the request, in its order, in watts.
    """
    return math.fsum(_gain(gpu, cap_w - gpu.lo_w) for gpu, cap_w in zip(request.gpus, caps_w, strict=True))


def _gain(gpu: PlanGpu, above_w: int) -> float:
    gained = 0.0
    for piece in gpu.segments:
        if above_w <= 0:
            break
        gained += piece.slope * min(above_w, piece.width_w)
        above_w -= piece.width_w
    return gained
