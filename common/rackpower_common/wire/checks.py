"""What every decoder checks: a message from outside is within its limits, or a `WireError` names the field."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeVar

from google.protobuf.message import Message

from rackpower_common.errors import RackpowerError
from rackpower_common.model.messages import GPUS_PER_NODE_LIMIT
from rackpower_common.units import MILLI, cap_w_from_mw, draw_w_from_mw, s_from_ms

NAME_LIMIT = 256
"""Longest name, in characters."""

TEXT_LIMIT = 2048
"""Longest text for people, in characters; longer ones are cut."""

POWER_LIMIT_MW = 1_000_000_000
"""No GPU, node or cap is larger than a megawatt."""

DURATION_LIMIT_MS = 366 * 24 * 3600 * 1000
"""No age or lease is longer than a year."""

NUMBER_LIMIT = 2**53
"""No term and no sequence comes near it; one that does would carry stores and counters over their end."""

RATE_LIMIT = 1e12
"""No workload makes more tokens a second, and no energy counter stands at more joules."""

COLDEST_C, HOTTEST_C = -273, 1000

LIST_LIMIT = 1024
"""Most items of any list but GPUs."""

Item = TypeVar("Item")


class WireError(RackpowerError):
    """A message that does not say what the contract allows.

    Args:
        message: Which field, and what is wrong with it.
    """


def name(value: str, field: str) -> str:
    """Return a name that is there and short enough."""
    if not value:
        raise WireError(f"{field} is missing")
    if len(value) > NAME_LIMIT:
        raise WireError(f"{field} is {len(value)} characters long, the most is {NAME_LIMIT}")
    if not value.isprintable():
        raise WireError(f"{field} holds characters that cannot be printed")
    return value


def optional_name(value: str, field: str) -> str:
    """Return a name that may be empty."""
    return name(value, field) if value else ""


def text(value: str) -> str:
    """Return words for people, cut where they are too long, without control characters."""
    cut = value[:TEXT_LIMIT]
    return cut if cut.isprintable() else "".join(sign if sign.isprintable() else " " for sign in cut)


def whole_cap_w(value_mw: int, field: str) -> int:
    """Return a cap in whole watts."""
    if not 0 <= value_mw <= POWER_LIMIT_MW:
        raise WireError(f"{field} is {value_mw} mW, outside 0 to {POWER_LIMIT_MW} mW")
    if value_mw % MILLI:
        raise WireError(f"{field} is {value_mw} mW, caps are whole watts")
    return cap_w_from_mw(value_mw)


def power_w(value_mw: int, field: str) -> int:
    """Return a reading in whole watts, rounded up."""
    if not 0 <= value_mw <= POWER_LIMIT_MW:
        raise WireError(f"{field} is {value_mw} mW, outside 0 to {POWER_LIMIT_MW} mW")
    return draw_w_from_mw(value_mw)


def duration_s(value_ms: int, field: str) -> float:
    """Return seconds."""
    if not 0 <= value_ms <= DURATION_LIMIT_MS:
        raise WireError(f"{field} is {value_ms} ms, outside 0 to {DURATION_LIMIT_MS} ms")
    return s_from_ms(value_ms)


def number(value: float, field: str) -> float:
    """Return a finite number that is not negative."""
    if not math.isfinite(value) or value < 0:
        raise WireError(f"{field} is {value}, not a number ≥ 0")
    return value


def optional(message: Message, field: str, check: Callable[[int, str], Item]) -> Item | None:
    """Return an optional field checked, None when it is not there."""
    return check(getattr(message, field), field) if message.HasField(field) else None


def rate(value: float, field: str) -> float:
    """Return a rate or a sum that can be meant."""
    if not 0 <= value <= RATE_LIMIT:
        raise WireError(f"{field} is {value}, outside 0 to {RATE_LIMIT:g}")
    return value


def energy_mj(value: int, field: str) -> int:
    """Return an energy counter in millijoules that can be meant."""
    if not 0 <= value <= RATE_LIMIT * MILLI:
        raise WireError(f"{field} is {value} mJ, outside 0 to {RATE_LIMIT * MILLI:g} mJ")
    return value


def celsius(value: int, field: str) -> int:
    """Return a temperature that can be meant."""
    if not COLDEST_C <= value <= HOTTEST_C:
        raise WireError(f"{field} is {value} °C, outside {COLDEST_C} to {HOTTEST_C} °C")
    return value


def counter(value: int, field: str) -> int:
    """Return a term's number or a sequence."""
    if not 0 <= value <= NUMBER_LIMIT:
        raise WireError(f"{field} is {value}, outside 0 to {NUMBER_LIMIT}")
    return value


def sent_rate(value: float | None) -> float | None:
    """Return a rate if it can be meant; a source's nonsense is left out and must not silence its node."""
    return value if value is not None and 0 <= value <= RATE_LIMIT else None


def sent_celsius(value: int | None) -> int | None:
    """Return a temperature if it can be meant."""
    return value if value is not None and COLDEST_C <= value <= HOTTEST_C else None


def sent_power(power: int | None) -> int | None:
    """Return a reading in watts if it can be meant."""
    return power if power is not None and 0 <= power * MILLI <= POWER_LIMIT_MW else None


def sent_count(value: int | None, most: int) -> int | None:
    """Return a count if it can be meant."""
    return value if value is not None and 0 <= value <= most else None


def gpus(ids: Iterable[str], field: str) -> None:
    """Refuse too many GPUs, or one twice."""
    listed = list(ids)
    if len(listed) > GPUS_PER_NODE_LIMIT:
        raise WireError(f"{field} lists {len(listed)} GPUs, the most is {GPUS_PER_NODE_LIMIT}")
    if len(set(listed)) != len(listed):
        twice = sorted({gpu for gpu in listed if listed.count(gpu) > 1})
        raise WireError(f"{field} lists {', '.join(twice)} twice")


def short(items: Iterable[Item], field: str, limit: int = LIST_LIMIT) -> list[Item]:
    """Return a list that is not too long."""
    listed = list(items)
    if len(listed) > limit:
        raise WireError(f"{field} has {len(listed)} items, the most is {limit}")
    return listed
