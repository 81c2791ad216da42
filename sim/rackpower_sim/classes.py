"""The simulated GPUs as numbers: what they truly draw and serve. The controller never reads this module's curves.

No public cap sweep of these four parts under LLM load was found, so the shape of every curve is an assumption inside
the range that sweeps of other parts gave (b 1.2 to 2.6, c 1.4 to 4.0); each assumed number is named in `assumed`.
Only the standard library here: the agent's process imports this package too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from rackpower_common.model.device import Vendor

SUPPLY_LOSS: Final = 1 / 0.94
"""Input over output of a node's supplies: 94 % efficiency, as in the 80 PLUS Titanium class at half load."""


@dataclass(frozen=True, slots=True)
class GpuTruth:
    """One GPU class as it truly is; watts, °C, tokens/s.

    A busy GPU at `P` watts serves `peak_tokens_per_s · (1 − b(1 − P/natural_draw_w)^c)`, never less than 0 and flat
    above `natural_draw_w`. `assumed` names what is not measured or published, with the reason.
    """

    name: str
    vendor: Vendor
    model: str
    min_cap_w: int
    max_cap_w: int
    default_cap_w: int
    largest_draw_w: int
    idle_w: float
    natural_draw_w: float
    b: float
    c: float
    peak_tokens_per_s: float
    lowest_w: float
    slowdown_c: int
    node_overhead_w: int
    assumed: tuple[tuple[str, str], ...] = ()

    def tokens_per_s(self, draw_w: float) -> float:
        """Return what a busy GPU serves at a draw in watts."""
        below = max(0.0, 1.0 - draw_w / self.natural_draw_w)
        return self.peak_tokens_per_s * max(0.0, 1.0 - self.b * float(below**self.c))


_NO_SWEEP: Final = "no public cap sweep under LLM load; inside the range fitted to other parts"
_LIKE_H100: Final = "half of the GPUs' board power, as a DGX H100 was measured: 2,800 of 5,600 W"

B200: Final = GpuTruth(
    name="b200",
    vendor=Vendor.NVIDIA,
    model="NVIDIA B200",
    min_cap_w=200,  # DGX B200 power-capping documentation, like the default and the most
    max_cap_w=1000,
    default_cap_w=1000,
    largest_draw_w=1200,
    idle_w=194.0,  # 192 to 196 W measured with weights resident (TRT-LLM#10278)
    natural_draw_w=900.0,
    b=1.9,
    c=2.2,
    peak_tokens_per_s=399.0,  # 3,192 tokens/s measured on eight, GLM-5.2, 20k tokens in, 1k out
    lowest_w=300.0,
    slowdown_c=87,
    node_overhead_w=4000,
    assumed=(
        ("natural_draw_w", "90 % of the default cap: none measured in saturated serving"),
        ("b, c, lowest_w", _NO_SWEEP),
        ("slowdown_c", "plausible"),
        ("node_overhead_w", _LIKE_H100),
    ),
)

H100: Final = GpuTruth(
    name="h100",
    vendor=Vendor.NVIDIA,
    model="NVIDIA H100 80GB HBM3",
    min_cap_w=200,  # DGX H100 power-capping documentation, like the default and the most
    max_cap_w=700,
    default_cap_w=700,
    largest_draw_w=700,
    idle_w=115.0,
    natural_draw_w=620.0,
    b=1.6,
    c=2.0,
    peak_tokens_per_s=180.0,
    lowest_w=250.0,
    slowdown_c=87,
    node_overhead_w=2800,  # DGX H100: 8.4 kW highest measured, less 8 x 700 W (arXiv:2506.14551)
    assumed=(
        ("idle_w", "the H200's, measured 115 W with weights resident (sglang#3196)"),
        ("natural_draw_w", "89 % of the default cap: none measured in saturated serving"),
        ("peak_tokens_per_s", "45 % of the measured B200"),
        ("b, c, lowest_w", _NO_SWEEP),
        ("slowdown_c", "plausible"),
    ),
)

MI300X: Final = GpuTruth(
    name="mi300x",
    vendor=Vendor.AMD,
    model="AMD Instinct MI300X",
    min_cap_w=250,
    max_cap_w=750,  # ROCm issues, like the default
    default_cap_w=750,
    largest_draw_w=750,
    idle_w=181.0,  # 170 to 193 W measured with weights resident (ROCm#5231)
    natural_draw_w=660.0,
    b=1.5,
    c=1.8,
    peak_tokens_per_s=165.0,
    lowest_w=300.0,
    slowdown_c=100,
    node_overhead_w=3000,
    assumed=(
        ("min_cap_w", "AMD publishes none; drivers may tell 0"),
        ("natural_draw_w", "just under 671 W, the highest measured, in prefill-heavy serving (InferenceX#828)"),
        ("peak_tokens_per_s", "half of the measured MI355X"),
        ("b, c, lowest_w", _NO_SWEEP),
        ("slowdown_c", "plausible"),
        ("node_overhead_w", _LIKE_H100),
    ),
)

MI355X: Final = GpuTruth(
    name="mi355x",
    vendor=Vendor.AMD,
    model="AMD Instinct MI355X",
    min_cap_w=400,
    max_cap_w=1400,  # hyper.ai, like the default
    default_cap_w=1400,
    largest_draw_w=1400,
    idle_w=240.0,
    natural_draw_w=1150.0,
    b=1.7,
    c=2.0,
    peak_tokens_per_s=328.0,  # 2,626 tokens/s measured on eight, GLM-5.2, 20k tokens in, 1k out
    lowest_w=480.0,
    slowdown_c=100,
    node_overhead_w=5600,
    assumed=(
        ("min_cap_w", "AMD publishes none"),
        ("idle_w", "the MI300X's, scaled with the share of the board power that it idles at"),
        ("natural_draw_w", "82 % of the board power, like the MI325X's highest measured, 823 of 1,000 W"),
        ("b, c, lowest_w", _NO_SWEEP),
        ("slowdown_c", "plausible"),
        ("node_overhead_w", _LIKE_H100),
    ),
)

CLASSES: Final[Mapping[str, GpuTruth]] = MappingProxyType({truth.name: truth for truth in (B200, H100, MI300X, MI355X)})
"""The simulated classes by name."""
