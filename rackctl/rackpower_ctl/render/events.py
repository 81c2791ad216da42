"""Events as lines and as JSON."""

from __future__ import annotations

from rich.text import Text

from rackpower.v1 import operator_pb2
from rackpower_ctl.render import words
from rackpower_ctl.render.status_json import Record
from rackpower_ctl.render.tables import SEVERITY_STYLES


def event_line(event: operator_pb2.Event) -> Text:
    """Return one event as a line: when, how bad, which, what, where."""
    word = words.severity(event.severity)
    line = Text(words.utc(event.unix_seconds, date=True), style="dim")
    line.append(f"  {word:<7}", style=SEVERITY_STYLES[word])
    line.append(f"  {words.clean(event.reason)}: ", style="bold not dim")
    line.append(words.clean(event.message), style="not dim")
    places = [place for place in (event.domain, event.node, event.gpu_uuid) if place and place not in event.message]
    if places:
        line.append(f" [{', '.join(map(words.clean, places))}]", style="dim")
    return line


def event_record(event: operator_pb2.Event) -> Record:
    """Return one event for scripts."""
    return {
        "id": event.id,
        "time_unix_seconds": event.unix_seconds,
        "severity": words.severity(event.severity),
        "reason": event.reason,
        "message": event.message,
        "node": event.node or None,
        "gpu_uuid": event.gpu_uuid or None,
        "domain": event.domain or None,
    }
