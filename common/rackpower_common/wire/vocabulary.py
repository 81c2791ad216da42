"""Enums of the model and of the wire. A value that this build does not know is unknown, never an error."""

from __future__ import annotations

from typing import Final

from rackpower.v1 import agent_pb2 as pb
from rackpower_common.model.device import CapControl, Health, LimitReason, NoData, PowerScope, Vendor

VENDOR_TO: Final[dict[Vendor, pb.Vendor]] = {
    Vendor.UNKNOWN: pb.VENDOR_UNSPECIFIED,
    Vendor.NVIDIA: pb.VENDOR_NVIDIA,
    Vendor.AMD: pb.VENDOR_AMD,
}
CAP_CONTROL_TO: Final[dict[CapControl, pb.CapControl]] = {
    CapControl.UNKNOWN: pb.CAP_CONTROL_UNSPECIFIED,
    CapControl.OK: pb.CAP_CONTROL_OK,
    CapControl.NOT_SUPPORTED: pb.CAP_CONTROL_NOT_SUPPORTED,
    CapControl.NO_PERMISSION: pb.CAP_CONTROL_NO_PERMISSION,
    CapControl.NOT_PERSISTENT: pb.CAP_CONTROL_NOT_PERSISTENT,
    CapControl.VIRTUALISED: pb.CAP_CONTROL_VIRTUALISED,
}
LIMIT_REASON_TO: Final[dict[LimitReason, pb.LimitReason]] = {
    LimitReason.NONE: pb.LIMIT_REASON_NONE,
    LimitReason.IDLE: pb.LIMIT_REASON_IDLE,
    LimitReason.POWER: pb.LIMIT_REASON_POWER,
    LimitReason.THERMAL: pb.LIMIT_REASON_THERMAL,
    LimitReason.HARDWARE_BRAKE: pb.LIMIT_REASON_HARDWARE_BRAKE,
    LimitReason.SYNC_BOOST: pb.LIMIT_REASON_SYNC_BOOST,
    LimitReason.UNKNOWN: pb.LIMIT_REASON_UNKNOWN,
}
HEALTH_TO: Final[dict[Health, pb.Health]] = {
    Health.UNKNOWN: pb.HEALTH_UNSPECIFIED,
    Health.OK: pb.HEALTH_OK,
    Health.DEGRADED: pb.HEALTH_DEGRADED,
    Health.QUARANTINED: pb.HEALTH_QUARANTINED,
    Health.LOST: pb.HEALTH_LOST,
}
NO_DATA_TO: Final[dict[NoData, pb.NoData]] = {
    NoData.UNKNOWN: pb.NO_DATA_UNSPECIFIED,
    NoData.NOT_SUPPORTED: pb.NO_DATA_NOT_SUPPORTED,
    NoData.READ_FAILED: pb.NO_DATA_READ_FAILED,
    NoData.STALE: pb.NO_DATA_STALE,
    NoData.IMPLAUSIBLE: pb.NO_DATA_IMPLAUSIBLE,
    NoData.QUARANTINED: pb.NO_DATA_QUARANTINED,
}
POWER_SCOPE_TO: Final[dict[PowerScope, pb.PowerScope]] = {
    PowerScope.GPU: pb.POWER_SCOPE_GPU,
    PowerScope.MODULE: pb.POWER_SCOPE_MODULE,
}

_VENDOR: Final[dict[int, Vendor]] = {there: here for here, there in VENDOR_TO.items()}
_CAP_CONTROL: Final[dict[int, CapControl]] = {there: here for here, there in CAP_CONTROL_TO.items()}
_LIMIT_REASON: Final[dict[int, LimitReason]] = {there: here for here, there in LIMIT_REASON_TO.items()}
_HEALTH: Final[dict[int, Health]] = {there: here for here, there in HEALTH_TO.items()}
_NO_DATA: Final[dict[int, NoData]] = {there: here for here, there in NO_DATA_TO.items()}
_POWER_SCOPE: Final[dict[int, PowerScope]] = {there: here for here, there in POWER_SCOPE_TO.items()}


def vendor(value: int) -> Vendor:
    """Return who made a GPU."""
    return _VENDOR.get(value, Vendor.UNKNOWN)


def cap_control(value: int) -> CapControl:
    """Return whether a cap can be held; what is not known is not trusted to hold."""
    return _CAP_CONTROL.get(value, CapControl.UNKNOWN)


def limit_reason(value: int) -> LimitReason:
    """Return what holds a GPU back."""
    return _LIMIT_REASON.get(value, LimitReason.UNKNOWN)


def health(value: int) -> Health:
    """Return how a device is."""
    return _HEALTH.get(value, Health.UNKNOWN)


def no_data(value: int) -> NoData:
    """Return why a reading is missing."""
    return _NO_DATA.get(value, NoData.UNKNOWN)


def power_scope(value: int) -> PowerScope:
    """Return what a power reading covers; the GPU where it is not said."""
    return _POWER_SCOPE.get(value, PowerScope.GPU)
