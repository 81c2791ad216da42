"""Numbers of the simulated hardware that need no numpy: the agent's side reads them too."""

from __future__ import annotations

from typing import Final

STEP_S: Final = 0.05
"""Simulated seconds of one step: twice as fine as the 10 Hz at which agents and the demo look."""
SENSOR_WINDOW_S: Final = 1.0
"""The power sensor tells the mean of the last second (NVML on Ampere and newer, arXiv:2312.02741)."""
SETTLE_MIN_S: Final = 1.0
SETTLE_MAX_S: Final = 4.0
"""A draw follows its cap within 1 to 4 s (sweep authors' notes on consumer and workstation boards)."""
TRACKING_LIMIT: Final = 0.02
"""A settled draw passes its cap by at most 2 %: 1.92 % was the highest of 3,879 samples."""
TRACKING_MEAN: Final = -0.0115
TRACKING_DEVIATION: Final = 0.0102
"""Fitted to the same samples: 13 % of them above the cap at all, 1.75 % above it by more than 1 %."""
TRACKING_TIME_S: Final = 2.0
"""How long the tracking error remembers itself; assumed, the samples are 2 s apart."""
AMBIENT_C: Final = 30.0
HEAT_TIME_S: Final = 20.0
"""First-order time constant of the core's temperature; assumed."""
FULL_HEAT_RISE_C: Final = 45.0
"""Rise over ambient at the class's largest cap; assumed, well below the slow-down threshold."""
MEMORY_RISE_C: Final = 8.0
NO_LIMIT_W: Final = 1 << 30
