"""Enumerations between model and wire. A number that this build does not know becomes the model's unknown."""

from __future__ import annotations

from enum import Enum
from typing import Generic, TypeVar

from rackpower.v1 import agent_pb2
from rackpower_common.model.device import CapControl, Health, LimitReason, NoData, PowerScope, Vendor

Member = TypeVar("Member", bound=Enum)


class EnumMap(Generic[Member]):
    """One enumeration, both ways.

    Args:
        numbers: The wire's number of each member.
        unknown: What a number means that nobody told us of.
    """

    def __init__(self, numbers: dict[Member, int], unknown: Member) -> None:
        self._numbers = numbers
        self._members = {number: member for member, number in numbers.items()}
        self._unknown = unknown

    def number(self, member: Member) -> int:
        """Return the wire's number."""
        return self._numbers[member]

    def member(self, number: int) -> Member:
        """Return the model's member."""
        return self._members.get(number, self._unknown)


VENDORS = EnumMap(
    {
        Vendor.UNKNOWN: agent_pb2.VENDOR_UNSPECIFIED,
        Vendor.NVIDIA: agent_pb2.VENDOR_NVIDIA,
        Vendor.AMD: agent_pb2.VENDOR_AMD,
    },
    Vendor.UNKNOWN,
)

CAP_CONTROLS = EnumMap(
    {
        CapControl.UNKNOWN: agent_pb2.CAP_CONTROL_UNSPECIFIED,
        CapControl.OK: agent_pb2.CAP_CONTROL_OK,
        CapControl.NOT_SUPPORTED: agent_pb2.CAP_CONTROL_NOT_SUPPORTED,
        CapControl.NO_PERMISSION: agent_pb2.CAP_CONTROL_NO_PERMISSION,
        CapControl.NOT_PERSISTENT: agent_pb2.CAP_CONTROL_NOT_PERSISTENT,
        CapControl.VIRTUALISED: agent_pb2.CAP_CONTROL_VIRTUALISED,
    },
    CapControl.UNKNOWN,
)

LIMIT_REASONS = EnumMap(
    {
        LimitReason.UNKNOWN: agent_pb2.LIMIT_REASON_UNKNOWN,
        LimitReason.NONE: agent_pb2.LIMIT_REASON_NONE,
        LimitReason.IDLE: agent_pb2.LIMIT_REASON_IDLE,
        LimitReason.POWER: agent_pb2.LIMIT_REASON_POWER,
        LimitReason.THERMAL: agent_pb2.LIMIT_REASON_THERMAL,
        LimitReason.HARDWARE_BRAKE: agent_pb2.LIMIT_REASON_HARDWARE_BRAKE,
        LimitReason.SYNC_BOOST: agent_pb2.LIMIT_REASON_SYNC_BOOST,
    },
    LimitReason.UNKNOWN,
)

HEALTHS = EnumMap(
    {
        Health.UNKNOWN: agent_pb2.HEALTH_UNSPECIFIED,
        Health.OK: agent_pb2.HEALTH_OK,
        Health.DEGRADED: agent_pb2.HEALTH_DEGRADED,
        Health.QUARANTINED: agent_pb2.HEALTH_QUARANTINED,
        Health.LOST: agent_pb2.HEALTH_LOST,
    },
    Health.UNKNOWN,
)

NO_DATA = EnumMap(
    {
        NoData.UNKNOWN: agent_pb2.NO_DATA_UNSPECIFIED,
        NoData.NOT_SUPPORTED: agent_pb2.NO_DATA_NOT_SUPPORTED,
        NoData.READ_FAILED: agent_pb2.NO_DATA_READ_FAILED,
        NoData.STALE: agent_pb2.NO_DATA_STALE,
        NoData.IMPLAUSIBLE: agent_pb2.NO_DATA_IMPLAUSIBLE,
        NoData.QUARANTINED: agent_pb2.NO_DATA_QUARANTINED,
    },
    NoData.UNKNOWN,
)

POWER_SCOPES = EnumMap(
    {PowerScope.GPU: agent_pb2.POWER_SCOPE_GPU, PowerScope.MODULE: agent_pb2.POWER_SCOPE_MODULE},
    PowerScope.GPU,
)
