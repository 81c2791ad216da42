"""The first lines of a status: where it is from, the sentence, the totals, what needs attention."""

from __future__ import annotations

from rich.text import Text

from rackpower.v1 import operator_pb2
from rackpower_ctl.render import words
from rackpower_ctl.render.tables import SEVERITY_STYLES, cell


def title(status: operator_pb2.Status) -> Text:
    """Return one line that says which controller spoke, and when."""
    parts = [f"tick {status.tick:,}", words.utc(status.unix_seconds)]
    parts.append(f"term {status.term.number}" if status.HasField("term") else "no term")
    parts.append(f"policy {words.clean(status.policy_revision)[:12]}" if status.policy_revision else "no policy")
    parts.append(f"plan {words.clean(status.planner) or 'none'}")
    line = Text("rackpower", style="bold")
    line.append(" · " + " · ".join(parts), style="not bold")
    if status.store not in ("", "ok"):
        line.append(f" · store: {words.clean(status.store)}", style="bold red")
    return line


def sentence(status: operator_pb2.Status) -> Text:
    """Return what the tick did."""
    return cell(status.sentence or "The controller has not ticked yet.", "italic")


def totals(status: operator_pb2.Status) -> list[Text]:
    """Return three lines: watts, GPUs, tokens."""
    sums = status.totals
    measured = sums.measured_milliwatts if sums.HasField("measured_milliwatts") else None
    free = sum(
        domain.limit_milliwatts - domain.headroom_milliwatts - domain.ledger_milliwatts
        for domain in status.domains
        if not domain.parent
    )
    power = Text("power   ", style="bold")
    power.append(f"{words.watts(measured)} W", style="bold")
    power.append(f" measured of {words.watts(sums.limit_milliwatts)} W", style="not bold")
    if measured is not None and sums.limit_milliwatts > 0:
        power.append(f" ({words.percent(measured, sums.limit_milliwatts)})", style="not bold")
    power.append(f"; ledger {words.watts(sums.ledger_milliwatts)} W, ", style="not bold")
    if free >= 0:
        power.append(f"{words.watts(free)} W free", style="not bold")
    else:
        power.append(f"{words.watts(-free)} W over", style="bold red")
    gpus = Text("GPUs    ", style="bold")
    gpus.append(f"{sums.gpus_running} running", style="bold")
    gpus.append(f" of {sums.gpus}; nameplate would allow {sums.gpus_at_nameplate}", style="not bold")
    tokens = Text("tokens  ", style="bold")
    rate = sums.tokens_per_second if sums.HasField("tokens_per_second") else None
    efficiency = f"{sums.tokens_per_watt:.3f}" if sums.HasField("tokens_per_watt") else words.MISSING
    tokens.append(f"{words.whole(rate)} per second", style="bold")
    tokens.append(f"; {efficiency} per second and watt", style="not bold")
    return [power, gpus, tokens]


def attention(status: operator_pb2.Status, at_most: int | None = None) -> list[Text]:
    """Return a line for each thing that an operator should act upon, worst first.

    Args:
        status: The rack.
        at_most: Show so many, then say how many are left out; None for all.
    """
    rank = {"error": 0, "warning": 1, "info": 2}
    items = sorted(status.attention, key=lambda item: rank[words.severity(item.severity)])
    lines = []
    for item in items[:at_most]:
        word = words.severity(item.severity)
        line = Text(f"{word}: ", style=SEVERITY_STYLES[word])
        line.append(words.clean(item.message) or words.clean(item.reason), style="default not bold")
        lines.append(line)
    if at_most is not None and len(items) > at_most:
        lines.append(Text(f"and {len(items) - at_most} more", style="yellow"))
    return lines
