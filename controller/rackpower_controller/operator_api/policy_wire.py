"""Policies, problems and events between the wire and the desk's values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rackpower.v1 import operator_pb2
from rackpower_common.policy.problems import Problem
from rackpower_common.policy.problems import Severity as ProblemSeverity
from rackpower_common.wire.checks import text
from rackpower_common.wire.faults import Reason, Refused
from rackpower_controller.core.decision import Severity
from rackpower_controller.operator_api.status_view import SEVERITIES
from rackpower_controller.store.base import EventRecord, PolicyRecord

FILES_LIMIT: Final = 256
"""Files of one policy."""

POLICY_LIMIT_BYTES: Final = 4 * 1024 * 1024 - 64 * 1024
"""All files of a policy together: what one message holds, with room for its names."""

FILE_NAME_LIMIT: Final = 1024

_PROBLEM_SEVERITIES: Final = {
    ProblemSeverity.ERROR: operator_pb2.SEVERITY_ERROR,
    ProblemSeverity.WARNING: operator_pb2.SEVERITY_WARNING,
}
_SEVERITY_OF: Final[dict[int, Severity]] = {number: severity for severity, number in SEVERITIES.items()}
_SEVERITY_WORDS: Final = {severity.value: number for severity, number in SEVERITIES.items()}


def files_from(messages: Sequence[operator_pb2.PolicyFile]) -> list[tuple[str, bytes]]:
    """Return a policy's files.

    Raises:
        Refused: There are none, too many or too large ones, or two of one name.
    """
    if not messages:
        raise Refused(Reason.INVALID, "the policy has no file", "name at least one")
    if len(messages) > FILES_LIMIT:
        raise Refused(Reason.INVALID, f"the policy has {len(messages)} files, at most {FILES_LIMIT} are taken")
    size = sum(len(message.content) for message in messages)
    if size > POLICY_LIMIT_BYTES:
        raise Refused(Reason.INVALID, f"the policy has {size:,} bytes, at most {POLICY_LIMIT_BYTES:,} are taken")
    names = [message.name for message in messages]
    for name in names:
        if not name or len(name) > FILE_NAME_LIMIT or not name.isprintable():
            raise Refused(Reason.INVALID, f"{name[:80]!r} cannot be a file's name")
    if len(set(names)) < len(names):
        raise Refused(Reason.INVALID, "two of the policy's files have the same name")
    return [(message.name, message.content) for message in messages]


def problem_messages(problems: Iterable[Problem]) -> list[operator_pb2.PolicyProblem]:
    """Return problems for the wire."""
    return [
        operator_pb2.PolicyProblem(
            file=text(problem.file),
            line=problem.line,
            column=problem.column,
            message=text(problem.message),
            hint=text(problem.hint),
            severity=_PROBLEM_SEVERITIES[problem.severity],
        )
        for problem in problems
    ]


def revision_message(record: PolicyRecord) -> operator_pb2.PolicyRevision:
    """Return a policy revision for the wire."""
    return operator_pb2.PolicyRevision(
        revision=record.revision,
        author=text(record.author),
        unix_seconds=record.unix_s,
        files=[operator_pb2.PolicyFile(name=file.name, content=file.text.encode()) for file in record.files],
    )


def event_message(record: EventRecord) -> operator_pb2.Event:
    """Return an event for the wire; a severity that an older or newer controller wrote is shown as an error."""
    return operator_pb2.Event(
        id=record.id,
        unix_seconds=record.unix_s,
        severity=_SEVERITY_WORDS.get(record.severity, operator_pb2.SEVERITY_ERROR),
        reason=record.reason,
        message=text(record.message),
        node=record.node,
        gpu_uuid=record.gpu,
        domain=record.domain,
    )


def severity_from(number: int) -> Severity:
    """Return the severity asked for; what is not said or not known asks for everything."""
    return _SEVERITY_OF.get(number, Severity.INFO)
