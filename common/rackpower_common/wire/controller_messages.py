"""What a controller says, both ways. Caps are exact, leases may only get shorter."""

from __future__ import annotations

from rackpower.v1 import agent_pb2
from rackpower_common.model.identity import GpuId
from rackpower_common.model.messages import (
    ControllerGoodbye,
    ControllerMessage,
    GoodbyeReason,
    Grant,
    GrantBatch,
    Renewal,
    Welcome,
)
from rackpower_common.units import ms_from_s, mw_from_w
from rackpower_common.wire import checks
from rackpower_common.wire.checks import WireError
from rackpower_common.wire.decode_agent import decode_term
from rackpower_common.wire.encode_agent import term_message


def encode_controller_message(message: ControllerMessage) -> agent_pb2.ConnectResponse:
    """Return a controller's message as it goes over the wire."""
    match message:
        case Welcome():
            welcome = agent_pb2.Welcome(
                term=term_message(message.term),
                report_period_milliseconds=ms_from_s(message.report_period_s),
                controller_version=message.controller_version,
                protocol_version=message.protocol_version,
                features=message.features,
            )
            return agent_pb2.ConnectResponse(welcome=welcome)
        case GrantBatch():
            batch = agent_pb2.GrantBatch(
                term=term_message(message.term),
                grants=map(_grant_message, message.grants),
                renewals=map(_renewal_message, message.renewals),
            )
            return agent_pb2.ConnectResponse(grants=batch)
        case ControllerGoodbye():
            goodbye = agent_pb2.ControllerGoodbye(
                reason=message.reason.value,
                detail=checks.text(message.detail),
                leader=message.leader,
                retry_after_milliseconds=ms_from_s(message.retry_after_s),
            )
            return agent_pb2.ConnectResponse(goodbye=goodbye)


def decode_controller_message(message: agent_pb2.ConnectResponse) -> ControllerMessage | None:
    """Return a controller's message, None for a kind that this build does not know.

    Raises:
        WireError: A field is missing, out of its limits, or contradicts another.
    """
    match message.WhichOneof("message"):
        case "welcome":
            return _welcome(message.welcome)
        case "grants":
            return _batch(message.grants)
        case "goodbye":
            return _goodbye(message.goodbye)
        case _:
            return None


def _grant_message(grant: Grant) -> agent_pb2.Grant:
    return agent_pb2.Grant(
        gpu_uuid=grant.gpu,
        cap_milliwatts=mw_from_w(grant.cap_w),
        fallback_cap_milliwatts=mw_from_w(grant.fallback_w),
        lease_milliseconds=ms_from_s(grant.lease_s),
        sequence=grant.sequence,
    )


def _renewal_message(renewal: Renewal) -> agent_pb2.Renewal:
    return agent_pb2.Renewal(
        gpu_uuid=renewal.gpu, sequence=renewal.sequence, lease_milliseconds=ms_from_s(renewal.lease_s)
    )


def _welcome(welcome: agent_pb2.Welcome) -> Welcome:
    period_s = checks.duration_s(welcome.report_period_milliseconds, "welcome.report_period_milliseconds")
    if period_s <= 0:
        raise WireError("welcome.report_period_milliseconds is 0")
    return Welcome(
        term=decode_term(welcome.term),
        report_period_s=period_s,
        controller_version=checks.text(welcome.controller_version),
        protocol_version=welcome.protocol_version,
        features=tuple(map(checks.text, checks.short(welcome.features, "welcome.features"))),
    )


def _batch(batch: agent_pb2.GrantBatch) -> GrantBatch:
    checks.gpus((grant.gpu_uuid for grant in batch.grants), "grants")
    checks.gpus((renewal.gpu_uuid for renewal in batch.renewals), "renewals")
    return GrantBatch(
        term=decode_term(batch.term),
        grants=tuple(map(_grant, batch.grants)),
        renewals=tuple(map(_renewal, batch.renewals)),
    )


def _grant(grant: agent_pb2.Grant) -> Grant:
    return Grant(
        gpu=GpuId(checks.name(grant.gpu_uuid, "grant.gpu_uuid")),
        cap_w=checks.whole_cap_w(grant.cap_milliwatts, "grant.cap_milliwatts"),
        fallback_w=checks.whole_cap_w(grant.fallback_cap_milliwatts, "grant.fallback_cap_milliwatts"),
        lease_s=checks.duration_s(grant.lease_milliseconds, "grant.lease_milliseconds"),
        sequence=checks.counter(grant.sequence, "grant.sequence"),
    )


def _renewal(renewal: agent_pb2.Renewal) -> Renewal:
    return Renewal(
        gpu=GpuId(checks.name(renewal.gpu_uuid, "renewal.gpu_uuid")),
        sequence=checks.counter(renewal.sequence, "renewal.sequence"),
        lease_s=checks.duration_s(renewal.lease_milliseconds, "renewal.lease_milliseconds"),
    )


def _goodbye(goodbye: agent_pb2.ControllerGoodbye) -> ControllerGoodbye:
    known = {reason.value for reason in GoodbyeReason}
    return ControllerGoodbye(
        reason=GoodbyeReason(goodbye.reason) if goodbye.reason in known else GoodbyeReason.UNKNOWN,
        detail=checks.text(goodbye.detail),
        leader=checks.optional_name(goodbye.leader, "goodbye.leader"),
        retry_after_s=checks.duration_s(goodbye.retry_after_milliseconds, "goodbye.retry_after_milliseconds"),
    )
