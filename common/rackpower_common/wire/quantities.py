"""Numbers and texts of the wire, judged: every field that is read passes through one of these functions.

Caps are exact, draws round up, ages of readings round up, leases and proofs of standing round down. What no GPU,
node or clock can mean is a `WireError` that names the field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from google.protobuf.message import Message

from rackpower_common.errors import RackpowerError
from rackpower_common.units import MILLI, draw_w_from_mw

T = TypeVar("T")

CAP_LIMIT_W: Final = 100_000
"""More than any GPU's cap."""

POWER_LIMIT_W: Final = 100_000_000
"""More than any node draws."""

DURATION_LIMIT_S: Final = 31 * 86_400
"""As long as a policy may say: a month."""

AGE_LIMIT_S: Final = 100 * 366 * 86_400
"""Ages of caps that nobody changed grow with the uptime; a hundred years are a broken clock."""

SEQUENCE_LIMIT: Final = 2**63 - 1
COUNT_LIMIT: Final = 2**32 - 1
ENERGY_LIMIT_MJ: Final = 2**50
RATE_LIMIT: Final = 1e12
"""Tokens a second."""

ID_LIMIT: Final = 256
"""Characters of a name or an id."""

TEXT_LIMIT: Final = 1000
"""Characters of a text for people; more is cut."""

_MICRO_MS: Final = 6
"""Digits of a millisecond that count: below them a float's noise would decide how a whole number rounds."""


class WireError(RackpowerError):
    """A message that cannot be meant, or a value that cannot be sent; the words name the field."""


def cap_w(cap_mw: int, field: str) -> int:
    """Return a cap in watts; one that is not whole watts, negative or larger than any GPU's is refused."""
    if not 0 <= cap_mw <= CAP_LIMIT_W * MILLI:
        raise WireError(f"{field} is {cap_mw} mW, a cap is 0 to {CAP_LIMIT_W} W")
    if cap_mw % MILLI:
        raise WireError(f"{field} is {cap_mw} mW: a cap is whole watts")
    return cap_mw // MILLI


def cap_mw(cap: int, field: str) -> int:
    """Return a cap in milliwatts.

    Raises:
        WireError: It cannot be a cap.
    """
    if not 0 <= cap <= CAP_LIMIT_W:
        raise WireError(f"{field} is {cap} W, a cap is 0 to {CAP_LIMIT_W} W")
    return cap * MILLI


def draw_w(draw_mw: int, field: str) -> int:
    """Return a reading in watts, rounded up."""
    if not 0 <= draw_mw <= POWER_LIMIT_W * MILLI:
        raise WireError(f"{field} is {draw_mw} mW, a draw is 0 to {POWER_LIMIT_W} W")
    return draw_w_from_mw(draw_mw)


def is_draw(power_w: int | None) -> bool:
    """Whether a reading in watts is there and can be meant."""
    return power_w is not None and 0 <= power_w <= POWER_LIMIT_W


def age_s(age_ms: int, field: str) -> float:
    """Return an age in seconds."""
    return within(age_ms, 0, AGE_LIMIT_S * MILLI, field) / MILLI


def duration_s(duration_ms: int, field: str) -> float:
    """Return a duration in seconds, at most a month."""
    return within(duration_ms, 0, DURATION_LIMIT_S * MILLI, field) / MILLI


def positive_s(duration_ms: int, field: str) -> float:
    """Return a duration in seconds that is not 0."""
    return within(duration_ms, 1, DURATION_LIMIT_S * MILLI, field) / MILLI


def ms_down(time_s: float, field: str) -> int:
    """Return milliseconds, rounded down: a lease, or how long a cap has stood."""
    return math.floor(_milliseconds(time_s, field))


def ms_up(time_s: float, field: str) -> int:
    """Return milliseconds, rounded up: how old a reading is, or how long its window."""
    return math.ceil(_milliseconds(time_s, field))


def _milliseconds(time_s: float, field: str) -> float:
    if not 0 <= time_s <= AGE_LIMIT_S:
        raise WireError(f"{field} is {time_s} s, it must be 0 to {AGE_LIMIT_S} s")
    return round(time_s * MILLI, _MICRO_MS)


def within(value: int, least: int, most: int, field: str) -> int:
    """Return a whole number if it lies between two others."""
    if not least <= value <= most:
        raise WireError(f"{field} is {value}, it must be {least} to {most}")
    return value


def sequence(value: int, field: str) -> int:
    """Return a sequence number."""
    return within(value, 0, SEQUENCE_LIMIT, field)


def count(value: int, field: str) -> int:
    """Return a count that fits 32 bits."""
    return within(value, 0, COUNT_LIMIT, field)


def rate(value: float, field: str) -> float:
    """Return tokens per second; NaN and infinite are refused."""
    if not 0 <= value <= RATE_LIMIT:
        raise WireError(f"{field} is {value}, a rate is 0 to {RATE_LIMIT:g} tokens/s")
    return value


def name(value: str, field: str) -> str:
    """Return a name or id: not empty, not too long, printable."""
    if not value:
        raise WireError(f"{field} is empty")
    return optional_name(value, field)


def optional_name(value: str, field: str) -> str:
    """Return a name or id that may be empty."""
    if len(value) > ID_LIMIT:
        raise WireError(f"{field} has {len(value)} characters, at most {ID_LIMIT} are taken")
    if not value.isprintable():
        raise WireError(f"{field} holds characters that cannot be printed: {value[:40]!r}")
    return value


def names(values: Iterable[str], at_most: int, field: str) -> tuple[str, ...]:
    """Return several names, bounded in number."""
    listed = tuple(values)
    at_most_items(listed, at_most, field)
    return tuple(name(value, f"{field}[{place}]") for place, value in enumerate(listed))


def text(value: str) -> str:
    """Return a text for people, cut to its limit, without what cannot be printed."""
    value = value[:TEXT_LIMIT]
    if value.isprintable():
        return value
    return "".join(char if char.isprintable() else " " if char.isspace() else "�" for char in value)


def at_most_items(items: Sequence[object], at_most: int, field: str) -> None:
    """Refuse a list that is too long."""
    if len(items) > at_most:
        raise WireError(f"{field} lists {len(items)}, at most {at_most} are taken")


def no_duplicate(ids: Iterable[str], field: str) -> None:
    """Refuse a list that names something twice."""
    seen: set[str] = set()
    for one in ids:
        if one in seen:
            raise WireError(f"{field} names {one} twice")
        seen.add(one)


def optional(message: Message, field: str, convert: Callable[[int, str], T], where: str) -> T | None:
    """Return an optional field converted, None when it is absent.

    Args:
        message: What holds the field.
        field: Its name.
        convert: Called with the value and the field's full name.
        where: What `message` is called in an error.
    """
    return convert(getattr(message, field), f"{where}.{field}") if message.HasField(field) else None
