"""What the daemons' command lines share: where settings come from, and the flags that both have."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

SHARED: Final = ("metrics", "log_format", "log_level")


def add_shared_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags for metrics, certificates and logs."""
    parser.add_argument("--metrics", metavar="ADDRESS", help="where Prometheus scrapes; '' for nowhere")
    parser.add_argument("--ca", metavar="FILE", help="the authority's certificate")
    parser.add_argument("--cert", metavar="FILE", help="our certificate")
    parser.add_argument("--key", metavar="FILE", help="our key")
    parser.add_argument("--log-format", choices=["auto", "json", "pretty"])
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"])


def settings_file(named: Path | None, default: Path) -> Path | None:
    """Return the settings file: the one named, else the default one if it is there."""
    if named is not None:
        return named
    return default if default.exists() else None


def flags_of(options: argparse.Namespace, own: Iterable[str]) -> dict[str, Any]:
    """Return the values given on the command line, for `load_settings`.

    Args:
        options: What was parsed, the shared flags among it.
        own: The daemon's other settings that have a flag of their name.
    """
    flags = {name: getattr(options, name) for name in (*own, *SHARED)}
    files = {name: getattr(options, name) for name in ("ca", "cert", "key")}
    flags["tls"] = {name: path for name, path in files.items() if path is not None} or None
    return flags
