"""How single values read: watts, shares, ages, names of enums. A missing value is a dash, never 0."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import Final

from google.protobuf.descriptor import EnumDescriptor

from rackpower.v1 import agent_pb2, operator_pb2

MISSING: Final = "–"

LIMITED_BY: Final = {
    agent_pb2.LIMIT_REASON_NONE: "nothing",
    agent_pb2.LIMIT_REASON_IDLE: "no work",
    agent_pb2.LIMIT_REASON_POWER: "power cap",
    agent_pb2.LIMIT_REASON_THERMAL: "heat",
    agent_pb2.LIMIT_REASON_HARDWARE_BRAKE: "brake",
    agent_pb2.LIMIT_REASON_SYNC_BOOST: "sync boost",
}
"""What limits a GPU, as a person reads it; anything else is a dash."""


def clean(text: str) -> str:
    """Return text from elsewhere without control characters: a name must not steer a terminal."""
    return "".join(" " if unicodedata.category(char).startswith("C") else char for char in text)


def watts(milliwatts: int | None) -> str:
    """Return whole watts with thousands separators."""
    return MISSING if milliwatts is None else f"{round(milliwatts / 1000):,}"


def watts_range(milliwatts: list[int]) -> str:
    """Return `612`, or `598–602` where the values differ by a watt or more."""
    if not milliwatts:
        return MISSING
    low, high = watts(min(milliwatts)), watts(max(milliwatts))
    return low if low == high else f"{low}–{high}"


def whole(value: float | None) -> str:
    """Return a number without decimals, with thousands separators."""
    return MISSING if value is None else f"{value:,.0f}"


def celsius(value: int | None) -> str:
    """Return degrees."""
    return MISSING if value is None else str(value)


def percent(part: float, total: float) -> str:
    """Return a share as whole percent, rounded down so that 100 % means all of it."""
    return f"{int(100 * part / total)} %" if total > 0 else MISSING


def age(milliseconds: int | None) -> str:
    """Return `0.4 s`, `12 s`, `3 min`, `5 h`."""
    if milliseconds is None:
        return "never"
    seconds = milliseconds / 1000
    for limit, size, unit in ((9.95, 1, "s"), (120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds:.1f} s" if limit < 10 else f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def utc(unix_seconds: float, *, date: bool = False) -> str:
    """Return a time of day in UTC, with the date if wanted; a dash for a time that no calendar has."""
    try:
        moment = datetime.fromtimestamp(unix_seconds, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return MISSING
    return moment.strftime("%Y-%m-%d %H:%M:%SZ" if date else "%H:%M:%SZ")


def node_state(value: int) -> str:
    """Return the word for a node's state, `live` for instance; what a newer controller says reads `unknown`."""
    return _word(operator_pb2.NodeState.DESCRIPTOR, value, "NODE_STATE_")


def severity(value: int) -> str:
    """Return `info`, `warning` or `error`; one that was not said counts as a warning."""
    word = _word(operator_pb2.Severity.DESCRIPTOR, value, "SEVERITY_")
    return "warning" if word == "unknown" else word


def health(value: int) -> str:
    """Return the word for a device's health."""
    return _word(agent_pb2.Health.DESCRIPTOR, value, "HEALTH_")


def vendor(value: int) -> str:
    """Return `nvidia`, `amd` or `unknown`."""
    return _word(agent_pb2.Vendor.DESCRIPTOR, value, "VENDOR_")


def limit_reason(value: int) -> str:
    """Return the stable word for what limits a GPU."""
    return _word(agent_pb2.LimitReason.DESCRIPTOR, value, "LIMIT_REASON_")


def cap_control(value: int) -> str:
    """Return the stable word for whether a cap can be held."""
    return _word(agent_pb2.CapControl.DESCRIPTOR, value, "CAP_CONTROL_")


def _word(enum: EnumDescriptor, value: int, prefix: str) -> str:
    known = enum.values_by_number.get(value)
    word = "unspecified" if known is None else known.name.removeprefix(prefix).lower()
    return "unknown" if word == "unspecified" else word
