"""Running rackctl in this process, as a script would: arguments in, exit code and text out."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass

import pytest

from rackpower_ctl.main import main


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run of rackctl ended."""

    code: int
    out: str
    err: str


class Ctl:
    """Runs rackctl with one controller, away from this machine's own settings."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
        self._environment = monkeypatch
        for name in ("RACKCTL_CONTROLLER", "RACKCTL_CA", "RACKCTL_CERT", "RACKCTL_KEY", "XDG_CONFIG_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", home)
        monkeypatch.setenv("TERM", "dumb")

    def __call__(self, *arguments: str, columns: int = 80) -> Ran:
        """Run rackctl as if its output were piped."""
        self._environment.setenv("COLUMNS", str(columns))
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(arguments)
        return Ran(int(code), out.getvalue(), err.getvalue())
