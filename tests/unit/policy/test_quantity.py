"""Quantities with units."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from rackpower_common.quantity import (
    QuantityError,
    ceil_w,
    floor_w,
    format_duration,
    format_power,
    format_share,
    parse_duration,
    parse_percent,
    parse_power,
    quoted,
)


@pytest.mark.parametrize(
    ("text", "power_w"),
    [
        ("450 W", 450),
        ("450W", 450),
        (" 60 kW ", 60_000),
        ("1.2 MW", 1_200_000),
        (".5 kW", 500),
        ("0 W", 0),
        ("0.1 kW", 100),
        ("1.23456 kW", Fraction("1234.56")),
    ],
)
def test_power_is_read_exactly(text: str, power_w: Fraction) -> None:
    """Watts, kilowatts and megawatts are read without rounding."""
    assert parse_power(text) == power_w


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("60000", "`60000` has no unit", "write `60000 W`, or `60 kW`"),
        ("450", "`450` has no unit", "write `450 W`, or `450 kW` where kilowatts are meant"),
        ("-450 W", "`-450 W` is negative", "write a power of 0 or more, `450 W` for instance"),
        ("-0 W", "`-0 W` is negative", "write a power of 0 or more, `450 W` for instance"),
        ("NaN", "`NaN` is not a finite number", "write a power such as `450 W`"),
        ("nan W", "`nan W` is not a finite number", "write a power such as `450 W`"),
        ("-inf kW", "`-inf kW` is not a finite number", "write a power such as `450 W`"),
        ("60 KW", "`60 KW` is not a power: unit `KW` is unknown", "write `60 kW`"),
        ("60 kilowatts", "`60 kilowatts` is not a power: unit `kilowatts` is unknown", "units are `W`, `kW` and `MW`"),
        ("60 watts", "`60 watts` is not a power: unit `watts` is unknown", "write `60 W`"),
        ("5 mW", "`5 mW` is not a power: unit `mW` is unknown", "`mW` is milliwatts; write `5 MW` for megawatts"),
        ("1,200 W", "`1,200 W` is not a power", "write it without separators: `1200 W`"),
        ("1e3 W", "`1e3 W` is not a power", "write a number and a unit, `450 W` for instance"),
        ("", "a power is missing here", "write a number and a unit, `450 W` for instance"),
        ("99999999 MW", "`99999999 MW` is more than 10,000 MW", "check the unit"),
        ("٣ W", "`٣ W` is not a power", "write a number and a unit, `450 W` for instance"),
        ("10 kVA", "`10 kVA` is not a power: unit `kVA` is unknown", ("limits are real power: multiply by the power "
         "factor and write `kW`")),
        ("32 A", "`32 A` is not a power: unit `A` is unknown", ("multiply by the voltage (and 1.73 for three phases) "
         "and write `kW`")),
    ],
)  # fmt: skip
def test_wrong_power_is_refused_with_advice(text: str, message: str, hint: str) -> None:
    """A power without unit, negative, not finite or in another unit is refused, and the hint says what to write."""
    with pytest.raises(QuantityError) as error:
        parse_power(text)
    assert (error.value.message, error.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [("10s", 10), ("500ms", Fraction(1, 2)), ("30m", 1800), ("30 min", 1800), ("1.5h", 5400), ("0s", 0)],
)
def test_duration_is_read_exactly(text: str, duration_s: Fraction) -> None:
    """Milliseconds, seconds, minutes and hours are read without rounding."""
    assert parse_duration(text) == duration_s


@pytest.mark.parametrize(
    ("parse", "text", "hint"),
    [
        (parse_duration, "15", "write `15s`"),
        (parse_duration, "15 sec", "write `15s`"),
        (parse_duration, "1 day", "units are `ms`, `s`, `m` (minutes) and `h`"),
        (parse_duration, "1000h", "check the unit"),
        (parse_percent, "3", "write `3%`"),
        (parse_percent, "0.03", "write `3%`"),
        (parse_percent, "3 W", "write `3%`"),
        (parse_percent, "300%", "a share is at most `100%`"),
    ],
)
def test_wrong_duration_or_share_is_refused_with_advice(parse: Callable[[str], Fraction], text: str, hint: str) -> None:
    """Durations and shares need their units as well."""
    with pytest.raises(QuantityError) as error:
        parse(text)
    assert error.value.hint == hint


def test_rounding_goes_to_the_safe_side() -> None:
    """Limits and caps round down, draws round up."""
    assert floor_w(parse_power("1.2345 kW")) == 1234
    assert ceil_w(parse_power("1.2345 kW")) == 1235


def test_quantities_are_printed_exactly() -> None:
    """What a message prints is the whole value."""
    assert [format_power(power_w) for power_w in (0, 450, 8420, 60_000, 1_200_000, 2_000_000)] == [
        "0 W", "450 W", "8,420 W", "60 kW", "1,200 kW", "2 MW",
    ]  # fmt: skip
    assert format_share(Fraction(1, 3)) == "33.3333 %"
    assert format_duration(0.5) == "0.5 s"
    assert quoted("x" * 100) == f"`{'x' * 39}…`"
