"""What the doctor found, for people and for scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from rackpower_agent.doctor.examination import Examination
from rackpower_agent.doctor.finding import Finding, Level
from rackpower_agent.doctor.gpus import Examined

_MARKS: Final = {Level.FINE: "  ok    ", Level.NOTE: "  note  ", Level.PROBLEM: "  BAD   "}


def as_text(examination: Examination) -> Iterator[str]:
    """Return the lines for a terminal: what is wrong with its remedy under it."""
    yield f"node {examination.node}"
    for one in examination.findings:
        yield f"{_MARKS[one.level]}{one.subject}: {one.words}"
        if one.do:
            yield f"          → {one.do}"
    problems = sum(one.level is Level.PROBLEM for one in examination.findings)
    if problems:
        yield f"{problems} problem{'s' if problems > 1 else ''}: this node cannot be managed as it should be"
    else:
        yield f"this node can be managed: {len(examination.gpus)} GPUs"


def as_json(examination: Examination, version: str) -> str:
    """Return one JSON object; keys stay, new ones may come. Watts are whole, null is unknown."""
    content = {
        "node": examination.node,
        "version": version,
        "manageable": examination.manageable,
        "gpus": [_gpu(seen) for seen in examination.gpus],
        "findings": [_finding(one) for one in examination.findings],
    }
    return json.dumps(content, indent=2)


def _finding(one: Finding) -> dict[str, str]:
    return {
        "level": one.level.value,
        "area": one.area.value,
        "code": one.code,
        "subject": one.subject,
        "words": one.words,
        "do": one.do,
    }


def _gpu(seen: Examined) -> dict[str, Any]:
    device, sample, caps = seen.device, seen.sample, seen.caps
    power = sample.power if sample is not None else None
    return {
        "gpu": device.gpu,
        "vendor": device.vendor.value,
        "model": device.model,
        "pci_address": device.pci_address,
        "serial": device.serial,
        "driver_version": device.driver_version,
        "link_group": device.link_group,
        "partitions": list(device.partitions),
        "cap_control": device.cap_control.value,
        "cap_control_detail": device.cap_control_detail,
        "min_cap_watts": device.min_cap_w,
        "max_cap_watts": device.max_cap_w,
        "default_cap_watts": device.default_cap_w,
        "largest_draw_watts": device.largest_draw_w,
        "requested_cap_watts": caps.requested_w if caps is not None else None,
        "enforced_cap_watts": caps.enforced_w if caps is not None else None,
        "average_power_watts": power.average_w if power is not None else None,
        "instant_power_watts": power.instant_w if power is not None else None,
        "core_celsius": sample.temperatures.core_c if sample is not None else None,
        "limit_reason": sample.limit_reason.value if sample is not None else None,
        "health": sample.health.value if sample is not None else None,
        "processes": [{"pid": process.pid, "name": process.name} for process in seen.processes],
        "hung": seen.hung,
    }
