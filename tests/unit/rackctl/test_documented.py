"""docs/rackctl.md tells every command, option, exit code and JSON field that there is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields

import pytest
from typer.main import get_command

from rackpower.v1 import operator_pb2
from rackpower_common.policy import Problem
from rackpower_ctl.demo.report import Report
from rackpower_ctl.errors import ExitCode
from rackpower_ctl.main import app
from rackpower_ctl.policy_files import Judged
from rackpower_ctl.render.events import event_record
from rackpower_ctl.render.explanation import explanation_document
from rackpower_ctl.render.policies import policy_document, verdict_document
from rackpower_ctl.render.status_json import status_document
from support.statuses import troubled
from support.tree import ROOT

TEXT = (ROOT / "docs" / "rackctl.md").read_text(encoding="utf-8")
UNTOLD = {"--help", "--version", "--install-completion", "--show-completion", "--no-keep", "-h", "-w", "-f", "-n"}
"""What every program has, and short forms, which `--help` tells."""


def keys(value: object) -> Iterator[str]:
    """Yield every key of a document, however deep."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


def documents() -> dict[str, object]:
    """Return one document of every kind."""
    status = troubled()
    problem = Problem("policy.yaml", 1, 1, "wrong", "mend it")
    policy = operator_pb2.PolicyRevision(files=[operator_pb2.PolicyFile(name="policy.yaml")])
    return {
        "status": status_document(status),
        "explain": explanation_document(status, status.gpus[0]),
        "event": event_record(operator_pb2.Event()),
        "verdict": verdict_document(Judged((), (problem,))) | {"applied": False},
        "policy": policy_document(policy),
        "demo": {field.name: None for field in fields(Report)},
    }


def words(command: object, path: str = "rackctl") -> Iterator[str]:
    """Yield each command's path, and each option."""
    for parameter in getattr(command, "params", []):
        yield from (option for option in parameter.opts + parameter.secondary_opts if option.startswith("-"))
    for name, inner in getattr(command, "commands", {}).items():
        yield f"{path} {name}"
        yield from words(inner, f"{path} {name}")


@pytest.mark.parametrize("kind", sorted(documents()))
def test_every_json_field_is_told(kind: str) -> None:
    """A field that scripts may read stands in the page, in code."""
    missing = {key for key in keys(documents()[kind]) if f"`{key}`" not in TEXT}
    assert not missing


def test_every_command_and_option_is_told() -> None:
    """What `--help` knows, the page knows."""
    told = set(re.findall(r"--[a-z-]+", TEXT))
    missing = set()
    for word in words(get_command(app)):
        if word.startswith("-"):
            missing |= {word} - told - UNTOLD
        elif word.removeprefix("rackctl ") not in TEXT:
            missing.add(word)
    assert not missing


def test_every_exit_code_is_told() -> None:
    """One row each, and no more."""
    rows = {int(number) for number in re.findall(r"^\| (\d) \|", TEXT, re.MULTILINE)}
    assert rows == set(map(int, ExitCode))
