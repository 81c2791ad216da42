"""What the controller says: welcome, grants and renewals, goodbye."""

from __future__ import annotations

from typing import Final

from rackpower.v1 import agent_pb2 as pb
from rackpower_common.model.identity import GpuId
from rackpower_common.model.messages import (
    GPUS_PER_NODE_LIMIT,
    ControllerGoodbye,
    ControllerMessage,
    GoodbyeReason,
    Grant,
    GrantBatch,
    Renewal,
    Welcome,
)
from rackpower_common.wire import quantities as q
from rackpower_common.wire.holdings import term_from, term_to

FEATURES_LIMIT: Final = 64

_REASONS: Final = {reason.value: reason for reason in GoodbyeReason}


def controller_message_from(message: pb.ConnectResponse) -> ControllerMessage:
    """Return what the controller said.

    Raises:
        WireError: It is empty, of a kind that this build does not know, or holds what cannot be meant.
    """
    match message.WhichOneof("message"):
        case "welcome":
            return welcome_from(message.welcome)
        case "grants":
            return batch_from(message.grants)
        case "goodbye":
            return goodbye_from(message.goodbye)
        case _:
            raise q.WireError("the message is empty, or of a kind that this version does not know")


def controller_message_to(message: ControllerMessage) -> pb.ConnectResponse:
    """Return a message of the controller for the wire.

    Raises:
        WireError: A value cannot be sent; the words name it.
    """
    match message:
        case Welcome():
            return pb.ConnectResponse(welcome=welcome_to(message))
        case GrantBatch():
            return pb.ConnectResponse(grants=batch_to(message))
        case ControllerGoodbye():
            return pb.ConnectResponse(goodbye=goodbye_to(message))


def welcome_from(message: pb.Welcome) -> Welcome:
    """Return a welcome.

    Raises:
        WireError: It has no term, or a field cannot be meant.
    """
    return Welcome(
        term=term_from(message.term, "welcome.term"),
        report_period_s=q.positive_s(message.report_period_milliseconds, "welcome.report_period_milliseconds"),
        controller_version=q.optional_name(message.controller_version, "welcome.controller_version"),
        protocol_version=message.protocol_version,
        features=q.names(message.features, FEATURES_LIMIT, "welcome.features"),
    )


def welcome_to(welcome: Welcome) -> pb.Welcome:
    """Return a welcome for the wire.

    Raises:
        WireError: A value cannot be sent, a report period of 0 among them.
    """
    period_ms = q.ms_down(welcome.report_period_s, "welcome.report_period")
    q.positive_s(period_ms, "welcome.report_period_milliseconds")
    return pb.Welcome(
        term=term_to(welcome.term, "welcome.term"),
        report_period_milliseconds=period_ms,
        controller_version=q.optional_name(welcome.controller_version, "welcome.controller_version"),
        protocol_version=q.count(welcome.protocol_version, "welcome.protocol_version"),
        features=q.names(welcome.features, FEATURES_LIMIT, "welcome.features"),
    )


def batch_from(message: pb.GrantBatch) -> GrantBatch:
    """Return grants and renewals, each GPU at most once in each.

    Raises:
        WireError: There is no term, a field cannot be meant, or there are too many.
    """
    q.at_most_items(message.grants, GPUS_PER_NODE_LIMIT, "grants")
    q.at_most_items(message.renewals, GPUS_PER_NODE_LIMIT, "renewals")
    grants = tuple(_grant_from(grant, f"grants[{place}]") for place, grant in enumerate(message.grants))
    renewals = tuple(_renewal_from(renewal, f"renewals[{place}]") for place, renewal in enumerate(message.renewals))
    q.no_duplicate((grant.gpu for grant in grants), "grants")
    q.no_duplicate((renewal.gpu for renewal in renewals), "renewals")
    return GrantBatch(term_from(message.term, "grants.term"), grants, renewals)


def batch_to(batch: GrantBatch) -> pb.GrantBatch:
    """Return grants and renewals for the wire.

    Raises:
        WireError: A value cannot be sent.
    """
    q.at_most_items(batch.grants, GPUS_PER_NODE_LIMIT, "grants")
    q.at_most_items(batch.renewals, GPUS_PER_NODE_LIMIT, "renewals")
    q.no_duplicate((grant.gpu for grant in batch.grants), "grants")
    q.no_duplicate((renewal.gpu for renewal in batch.renewals), "renewals")
    return pb.GrantBatch(
        term=term_to(batch.term, "grants.term"),
        grants=[_grant_to(grant, f"grants[{place}]") for place, grant in enumerate(batch.grants)],
        renewals=[_renewal_to(renewal, f"renewals[{place}]") for place, renewal in enumerate(batch.renewals)],
    )


def _grant_from(message: pb.Grant, where: str) -> Grant:
    return Grant(
        gpu=GpuId(q.name(message.gpu_uuid, f"{where}.gpu_uuid")),
        cap_w=q.cap_w(message.cap_milliwatts, f"{where}.cap_milliwatts"),
        fallback_w=q.cap_w(message.fallback_cap_milliwatts, f"{where}.fallback_cap_milliwatts"),
        lease_s=q.positive_s(message.lease_milliseconds, f"{where}.lease_milliseconds"),
        sequence=q.within(message.sequence, 1, q.SEQUENCE_LIMIT, f"{where}.sequence"),
    )


def _grant_to(grant: Grant, where: str) -> pb.Grant:
    return pb.Grant(
        gpu_uuid=q.name(grant.gpu, f"{where}.gpu_uuid"),
        cap_milliwatts=q.cap_mw(grant.cap_w, f"{where}.cap"),
        fallback_cap_milliwatts=q.cap_mw(grant.fallback_w, f"{where}.fallback_cap"),
        lease_milliseconds=_lease_ms(grant.lease_s, where),
        sequence=q.within(grant.sequence, 1, q.SEQUENCE_LIMIT, f"{where}.sequence"),
    )


def _renewal_from(message: pb.Renewal, where: str) -> Renewal:
    return Renewal(
        gpu=GpuId(q.name(message.gpu_uuid, f"{where}.gpu_uuid")),
        sequence=q.within(message.sequence, 1, q.SEQUENCE_LIMIT, f"{where}.sequence"),
        lease_s=q.positive_s(message.lease_milliseconds, f"{where}.lease_milliseconds"),
    )


def _renewal_to(renewal: Renewal, where: str) -> pb.Renewal:
    return pb.Renewal(
        gpu_uuid=q.name(renewal.gpu, f"{where}.gpu_uuid"),
        sequence=q.within(renewal.sequence, 1, q.SEQUENCE_LIMIT, f"{where}.sequence"),
        lease_milliseconds=_lease_ms(renewal.lease_s, where),
    )


def _lease_ms(lease_s: float, where: str) -> int:
    lease_ms = q.ms_down(lease_s, f"{where}.lease")
    q.positive_s(lease_ms, f"{where}.lease_milliseconds")
    return lease_ms


def goodbye_from(message: pb.ControllerGoodbye) -> ControllerGoodbye:
    """Return a goodbye; a reason that this build does not know is unknown.

    Raises:
        WireError: A field cannot be meant.
    """
    return ControllerGoodbye(
        reason=_REASONS.get(message.reason, GoodbyeReason.UNKNOWN),
        detail=q.text(message.detail),
        leader=q.optional_name(message.leader, "goodbye.leader"),
        retry_after_s=q.duration_s(message.retry_after_milliseconds, "goodbye.retry_after_milliseconds"),
    )


def goodbye_to(goodbye: ControllerGoodbye) -> pb.ControllerGoodbye:
    """Return a goodbye for the wire.

    Raises:
        WireError: A value cannot be sent.
    """
    return pb.ControllerGoodbye(
        reason=goodbye.reason.value,
        detail=q.text(goodbye.detail),
        leader=q.optional_name(goodbye.leader, "goodbye.leader"),
        retry_after_milliseconds=q.ms_up(goodbye.retry_after_s, "goodbye.retry_after"),
    )
