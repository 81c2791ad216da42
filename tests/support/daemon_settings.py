"""What the tests of both daemons' settings need."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rackpower_common.settings import DaemonSettings, SettingsError, load_settings


def forget_variables(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    """Begin without any variable of ours."""
    for name in [name for name in os.environ if name.startswith(prefix)]:
        monkeypatch.delenv(name)


def mistakes_in(kind: type[DaemonSettings], file: Path | None, **flags: object) -> str:
    """Return what an operator reads of settings that are wrong."""
    with pytest.raises(SettingsError) as refused:
        load_settings(kind, file, flags)
    return "".join(f"{line}\n" for line in refused.value.lines)
