"""Small policies for tests, as text and as compiled values."""

from __future__ import annotations

from rackpower_common.policy import LoadedPolicy, load_files

RACK = """\
version: 1
domains:
  rack-1: {kind: rack, limit: 60 kW, overhead: 1200 W}
"""
NODES = """\
nodes:
  gpu-[01-04]:
    feeds: rack-1
    gpus: {class: h100, count: 8}
    overhead: 2800 W
"""
SMALL = RACK + NODES
"""One rack of 60 kW, four nodes of eight H100: minima need 18.8 kW, default caps 34.8 kW."""


def loaded(text: str = SMALL, *changes: tuple[str, str]) -> LoadedPolicy:
    """Return a policy from text, after replacing each (old, new), which must occur."""
    for old, new in changes:
        assert old in text, f"{old!r} is not in the policy"
        text = text.replace(old, new)
    return load_files([("policy.yaml", text.encode())])
