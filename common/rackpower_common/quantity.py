"""Quantities as people write them: `60 kW`, `450 W`, `10s`, `3%`; a number without its unit is refused.

Parsing is exact (`Fraction`); the caller rounds to its safe side. Formatting is for messages.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Final

from rackpower_common.errors import RackpowerError

POWER_UNITS_W: Final = {"W": 1, "kW": 1_000, "MW": 1_000_000}
DURATION_UNITS_S: Final = {
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "min": Fraction(60),
    "h": Fraction(3600),
}
MAX_POWER_W: Final = 10_000_000_000
"""More than any site draws: a larger number is a slip of the keyboard."""
MAX_DURATION_S: Final = 31 * 86_400
MAX_TEXT: Final = 40
"""Characters of a quantity; also what a message quotes at most."""

_NUMBER: Final = re.compile(r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))\s*(?P<unit>[^\s0-9.]*)\s*", re.ASCII)
_BARE: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_NOT_A_NUMBER: Final = re.compile(r"[+-]?\.?(?:nan|inf|infinity)(?=\s|[A-Za-z%]{0,3}$)", re.IGNORECASE | re.ASCII)


class QuantityError(RackpowerError):
    """A text that is not the quantity it should be; the hint says how to write it."""


def quoted(text: str) -> str:
    """Return `text` in backquotes, shortened, for a message."""
    return f"`{text}`" if len(text) <= MAX_TEXT else f"`{text[: MAX_TEXT - 1]}…`"


def parse_power(text: str) -> Fraction:
    """Read a power with its unit.

    Args:
        text: For instance `450 W`, `60 kW` or `1.2 MW`.

    Returns:
        Watts, exact.

    Raises:
        QuantityError: No number, no or another unit, negative, NaN, infinite or absurdly large.
    """
    number, unit = _split(text, "a power", "W", "450 W")
    if unit not in POWER_UNITS_W:
        raise QuantityError(f"{quoted(text)} is not a power: unit {quoted(unit)} is unknown", _power_hint(text, unit))
    power_w = number * POWER_UNITS_W[unit]
    if power_w > MAX_POWER_W:
        raise QuantityError(f"{quoted(text)} is more than {format_power(MAX_POWER_W)}", "check the unit")
    return power_w


def parse_duration(text: str) -> Fraction:
    """Read a duration with its unit.

    Args:
        text: For instance `10s`, `500ms`, `30m` or `2h`.

    Returns:
        Seconds, exact.

    Raises:
        QuantityError: No number, no or another unit, negative, NaN, infinite or longer than a month.
    """
    number, unit = _split(text, "a duration", "s", "10s")
    if unit not in DURATION_UNITS_S:
        near = {"sec": "s", "secs": "s", "second": "s", "seconds": "s", "S": "s", "mins": "m", "minutes": "m", "M": "m"}
        near |= {"msec": "ms", "millis": "ms", "hours": "h", "hour": "h", "H": "h", "minute": "m"}
        hint = f"write `{_plain(number)}{near[unit]}`" if unit in near else "units are `ms`, `s`, `m` (minutes) and `h`"
        raise QuantityError(f"{quoted(text)} is not a duration: unit {quoted(unit)} is unknown", hint)
    duration_s = number * DURATION_UNITS_S[unit]
    if duration_s > MAX_DURATION_S:
        raise QuantityError(f"{quoted(text)} is longer than a month", "check the unit")
    return duration_s


def parse_percent(text: str) -> Fraction:
    """Read a share written as a percentage.

    Args:
        text: For instance `3%` or `2.5 %`.

    Returns:
        The share, exact: 0.03 for `3%`.

    Raises:
        QuantityError: No number, no `%`, negative, NaN, infinite or above 100 %.
    """
    number, unit = _split(text, "a percentage", "%", "3%")
    if unit != "%":
        raise QuantityError(f"{quoted(text)} is not a percentage", f"write `{_plain(number)}%`")
    if number > 100:
        raise QuantityError(f"{quoted(text)} is more than 100 %", "a share is at most `100%`")
    return number / 100


def format_power(power_w: int) -> str:
    """Return whole watts for people, exact: `450 W`, `60 kW`, `8,420 W`."""
    if power_w and power_w % 1_000_000 == 0:
        return f"{power_w // 1_000_000:,} MW"
    if power_w and power_w % 1_000 == 0:
        return f"{power_w // 1_000:,} kW"
    return f"{power_w:,} W"


def format_share(share: float | Fraction) -> str:
    """Return a share as a percentage for people: `3 %`, `33.3 %`."""
    return f"{float(share) * 100:.6g} %"


def format_duration(duration_s: float) -> str:
    """Return seconds for people: `15 s`, `0.5 s`."""
    return f"{duration_s:g} s"


def floor_w(power_w: Fraction) -> int:
    """Return whole watts of a limit or cap: rounded down, the safe side."""
    return math.floor(power_w)


def ceil_w(power_w: Fraction) -> int:
    """Return whole watts of a draw: rounded up, the safe side."""
    return math.ceil(power_w)


def _split(text: str, kind: str, unit: str, example: str) -> tuple[Fraction, str]:
    """Return number and unit of a text, both checked as far as that goes without knowing the units."""
    stripped = text.strip()
    if not stripped:
        raise QuantityError(f"{kind} is missing here", f"write a number and a unit, `{example}` for instance")
    if _NOT_A_NUMBER.match(stripped):
        raise QuantityError(f"{quoted(stripped)} is not a finite number", f"write {kind} such as `{example}`")
    if _BARE.fullmatch(stripped):
        if stripped.startswith("-"):
            raise QuantityError(
                f"{quoted(stripped)} is negative", f"write {kind} of 0 or more, `{example}` for instance"
            )
        raise QuantityError(f"{quoted(stripped)} has no unit", _with_unit(stripped, unit))
    match = _NUMBER.fullmatch(stripped) if len(stripped) <= MAX_TEXT else None
    if match is None:
        hint = f"write a number and a unit, `{example}` for instance"
        without = stripped.replace(",", "").replace("_", "")
        if without != stripped and _NUMBER.fullmatch(without):
            hint = f"write it without separators: `{without}`"
        raise QuantityError(f"{quoted(stripped)} is not {kind}", hint)
    number = Fraction(match["number"].rstrip(".") if match["number"].endswith(".") else match["number"])
    if number < 0 or match["number"].startswith("-"):
        raise QuantityError(f"{quoted(stripped)} is negative", f"write {kind} of 0 or more, `{example}` for instance")
    return number, match["unit"]


def _with_unit(text: str, unit: str) -> str:
    """Return the advice to add a unit; for watts name the two that are likely."""
    number = Fraction(text.rstrip(".") or "0")
    if unit == "%" and 0 < number < 1:
        return f"write `{_plain(number * 100)}%`"
    if unit != "W":
        return f"write `{text}{unit}`"
    if number >= 1000:
        return f"write `{text} W`, or `{_plain(number / 1000)} kW`"
    return f"write `{text} W`, or `{text} kW` where kilowatts are meant"


def _power_hint(text: str, unit: str) -> str:
    """Return what to write instead of an unknown unit of power."""
    number = text.strip().removesuffix(unit).strip()
    if unit == "mW":
        return f"`mW` is milliwatts; write `{number} MW` for megawatts"
    for known in POWER_UNITS_W:
        if unit.lower() in (known.lower(), f"{known}s".lower(), f"{known}att".lower(), f"{known}atts".lower()):
            return f"write `{number} {known}`"
    if unit.lower() in ("kva", "va", "mva"):
        return "limits are real power: multiply by the power factor and write `kW`"
    if unit.lower() in ("a", "ka"):
        return "multiply by the voltage (and 1.73 for three phases) and write `kW`"
    return "units are `W`, `kW` and `MW`"


def _plain(number: Fraction) -> str:
    """Return a number as a person would write it."""
    return str(number.numerator) if number.denominator == 1 else f"{float(number):g}"
