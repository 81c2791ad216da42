"""How simulated GPUs draw power and how fast they could serve, step by step, all of a rack at once in numpy.

Pure: time is the number of steps made, randomness comes from the seed. The same model runs at 20 steps a second under
the demo and a thousand times faster in `evaluation`, there with one lane for each cap that is tried.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rackpower_sim.classes import GpuTruth
from rackpower_sim.physics_facts import (
    AMBIENT_C,
    FULL_HEAT_RISE_C,
    HEAT_TIME_S,
    NO_LIMIT_W,
    SENSOR_WINDOW_S,
    SETTLE_MAX_S,
    SETTLE_MIN_S,
    STEP_S,
    TRACKING_DEVIATION,
    TRACKING_LIMIT,
    TRACKING_MEAN,
    TRACKING_TIME_S,
)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Truths:
    """The columns of a rack's GPU truths, one entry a GPU."""

    idle_w: Floats
    natural_w: Floats
    b: Floats
    c: Floats
    peak: Floats
    min_cap_w: Ints
    max_cap_w: Ints
    default_cap_w: Ints

    @classmethod
    def of(cls, truths: Sequence[GpuTruth]) -> Truths:
        """Return the columns of these GPUs, in their order."""

        def column(name: str) -> Floats:
            return np.array([getattr(truth, name) for truth in truths], dtype=np.float64)

        def whole(name: str) -> Ints:
            return np.array([getattr(truth, name) for truth in truths], dtype=np.int64)

        return cls(
            idle_w=column("idle_w"),
            natural_w=column("natural_draw_w"),
            b=column("b"),
            c=column("c"),
            peak=column("peak_tokens_per_s"),
            min_cap_w=whole("min_cap_w"),
            max_cap_w=whole("max_cap_w"),
            default_cap_w=whole("default_cap_w"),
        )

    def tokens_per_s(self, draw_w: Floats) -> Floats:
        """Return what busy GPUs serve at these draws; shapes `(…, gpus)`."""
        below = np.maximum(0.0, 1.0 - draw_w / self.natural_w)
        return self.peak * np.maximum(0.0, 1.0 - self.b * below**self.c)


class GpuBank:
    """GPUs side by side, in one lane or in many that share one seed's noise.

    Every array has shape `(lanes, gpus)`. A step is `rates = bank.begin_step()`, then whoever serves says how busy
    each GPU was, then `bank.end_step(load)`.

    Args:
        truths: The GPUs, in order.
        seed: Of tracking errors and settle times.
        lanes: How many copies run side by side.
        step_s: Simulated seconds a step.
        sensors: Whether averages, energy and heat are kept; evaluation needs none of them.
    """

    def __init__(
        self, truths: Sequence[GpuTruth], seed: int, lanes: int = 1, step_s: float = STEP_S, sensors: bool = True
    ) -> None:
        self.truths = Truths.of(truths)
        self.gpus = len(truths)
        self.step_s = step_s
        self.steps = 0
        self._sensors = sensors
        shape = (lanes, self.gpus)
        self.requested_w: Ints = np.broadcast_to(self.truths.default_cap_w, shape).copy()
        self.out_of_band_w: Ints = np.full(shape, NO_LIMIT_W, dtype=np.int64)
        self.enforced_w: Ints = self.requested_w.copy()
        self.effective_w: Floats = self.enforced_w.astype(np.float64)
        self._ramp_w_per_s: Floats = np.zeros(shape)
        self.draw_w: Floats = np.broadcast_to(self.truths.idle_w, shape).copy()
        self.natural_w: Floats = self.draw_w.copy()
        self.powered = np.ones(self.gpus, dtype=np.bool_)
        self.energy_j: Floats = np.zeros(shape)
        self.limited_s: Floats = np.zeros(shape)
        self.temp_c: Floats = np.full(shape, AMBIENT_C)
        self._window: Floats = np.repeat(self.draw_w[None], round(SENSOR_WINDOW_S / step_s), axis=0)
        self._noise_rng = np.random.default_rng([seed, 0])
        self._settle_rngs = [np.random.default_rng([seed, 1, gpu]) for gpu in range(self.gpus)]
        self._keep = math.exp(-step_s / TRACKING_TIME_S)
        self._noise: Floats = self._noise_rng.standard_normal(self.gpus)
        self._busy_w: Floats = self.effective_w.copy()

    @property
    def time_s(self) -> float:
        """Simulated seconds since the start."""
        return self.steps * self.step_s

    @property
    def average_w(self) -> Floats:
        """What the sensors tell: the mean draw of the last second."""
        return np.asarray(self._window.mean(axis=0))

    def request_cap(self, gpu: int, cap_w: int | Ints, floor_w: int = 0) -> None:
        """Write a cap into a GPU's register; the draw follows within the settle time.

        Args:
            gpu: Which.
            cap_w: Whole watts, one for all lanes or one a lane.
            floor_w: What the hardware does not go below, whatever is asked: a clamp.
        """
        self.requested_w[:, gpu] = cap_w
        self._enforce(gpu, floor_w)

    def limit_out_of_band(self, gpu: int, limit_w: int) -> None:
        """Set or lift (`NO_LIMIT_W`) a limit from outside the driver, such as a BMC's; the lowest wins."""
        self.out_of_band_w[:, gpu] = limit_w
        self._enforce(gpu, 0)

    def reset(self, gpu: int) -> None:
        """Take a GPU through a power cycle or driver reload: default cap at once, energy counter at 0."""
        self.requested_w[:, gpu] = self.truths.default_cap_w[gpu]
        self.enforced_w[:, gpu] = np.minimum(self.requested_w[:, gpu], self.out_of_band_w[:, gpu])
        self.effective_w[:, gpu] = self.enforced_w[:, gpu]
        self.energy_j[:, gpu] = 0.0
        self.limited_s[:, gpu] = 0.0

    def begin_step(self) -> Floats:
        """Move caps and tracking errors on by one step.

        Returns:
            Tokens/s that each GPU can serve during this step if it is busy, shape `(lanes, gpus)`.
        """
        step_w = self._ramp_w_per_s * self.step_s
        self.effective_w += np.clip(self.enforced_w - self.effective_w, -step_w, step_w)
        fresh = self._noise_rng.standard_normal(self.gpus)
        self._noise = self._keep * self._noise + math.sqrt(1.0 - self._keep**2) * fresh
        error = np.clip(TRACKING_MEAN + TRACKING_DEVIATION * self._noise, -TRACKING_LIMIT, TRACKING_LIMIT)
        self._busy_w = self.effective_w * (1.0 + error)
        return np.where(self.powered, self.truths.tokens_per_s(self._busy_w), 0.0)

    def end_step(self, load: Floats) -> None:
        """Draw power for one step.

        Args:
            load: Share of the step that each GPU was busy, 0 to 1, shape `(lanes, gpus)`.
        """
        idle_w = self.truths.idle_w
        self.natural_w = np.where(self.powered, idle_w + (self.truths.natural_w - idle_w) * load, 0.0)
        held_w = np.maximum(self._busy_w, idle_w)  # a cap below the idle draw cannot be held
        np.minimum(self.natural_w, held_w, out=self.draw_w)
        if self._sensors:
            self._sense(held_w)
        self.steps += 1

    def _sense(self, held_w: Floats) -> None:
        self._window[self.steps % len(self._window)] = self.draw_w
        self.energy_j += self.draw_w * self.step_s
        self.limited_s += np.where(self.natural_w > held_w, self.step_s, 0.0)
        settled_c = AMBIENT_C + FULL_HEAT_RISE_C * self.draw_w / self.truths.max_cap_w
        self.temp_c += (settled_c - self.temp_c) * (self.step_s / HEAT_TIME_S)

    def _enforce(self, gpu: int, floor_w: int) -> None:
        """Let the register tell the new cap at once, and the draw follow over a settle time of its own.

        The same cap once more changes nothing: the draw is on its way already.
        """
        wanted_w = np.maximum(np.minimum(self.requested_w[:, gpu], self.out_of_band_w[:, gpu]), floor_w)
        changed = wanted_w != self.enforced_w[:, gpu]
        if not changed.any():
            return
        self.enforced_w[:, gpu] = wanted_w
        settle_s = self._settle_rngs[gpu].uniform(SETTLE_MIN_S, SETTLE_MAX_S)
        ramp_w_per_s = np.abs(wanted_w - self.effective_w[:, gpu]) / settle_s
        self._ramp_w_per_s[:, gpu] = np.where(changed, ramp_w_per_s, self._ramp_w_per_s[:, gpu])
