"""The command `rackpower-controller`: settings in, exit code out; no traceback for what an operator can mend."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

# Before gRPC is imported, which reads it then: its own lines on stderr say what our errors say better.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from rackpower_common.command_line import add_shared_flags, flags_of, settings_file
from rackpower_common.errors import RackpowerError
from rackpower_common.logs import configure_logs
from rackpower_common.policy import PolicyError
from rackpower_common.policy.report import format_problems
from rackpower_common.settings import SettingsError, load_settings
from rackpower_controller.policy_source import PolicySource
from rackpower_controller.process import Process
from rackpower_controller.settings import DEFAULT_FILE, ControllerSettings

FINE, FAILED, USAGE = 0, 1, 2
OWN_FLAGS = ("policy", "curves", "store", "agents", "operators")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a controller until SIGTERM or Ctrl-C.

    Returns:
        0 after an orderly stop, 1 when it cannot go on, 2 when settings or policy are wrong.
    """
    options = _parser().parse_args(arguments)
    try:
        settings = load_settings(
            ControllerSettings, settings_file(options.config, DEFAULT_FILE), flags_of(options, OWN_FLAGS)
        )
        if options.check:
            return _check(settings)
    except SettingsError as error:
        print(*error.lines, sep="\n", file=sys.stderr)
        return USAGE
    configure_logs(settings.log_format, settings.log_level)
    try:
        return asyncio.run(Process(settings, version("rackpower")).run())
    except PolicyError as error:
        print(format_problems(error.problems, ()), end="", file=sys.stderr)
        return USAGE
    except RackpowerError as error:
        print(f"rackpower-controller: error: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return FINE


def _check(settings: ControllerSettings) -> int:
    """Check settings, certificates and policy without starting anything."""
    source = PolicySource(settings.policy, settings.curves)
    try:
        source.open()
        loaded = source.read_first()
        if settings.tls is not None:
            settings.tls.files().check()
    except PolicyError as error:
        print(format_problems(error.problems, ()), end="", file=sys.stderr)
        return USAGE
    except RackpowerError as error:
        print(f"rackpower-controller: error: {error}", file=sys.stderr)
        return USAGE
    nodes, domains = len(loaded.policy.nodes), len(loaded.policy.domains)
    print(f"settings and policy {loaded.policy.revision} are fine: {nodes} nodes under {domains} domains")
    return FINE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rackpower-controller",
        description="Share a rack's electrical budget among its GPUs, once a second.",
        epilog=f"Flags win over RACKPOWER_CONTROLLER_… variables, these over the file ({DEFAULT_FILE}).",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help=f"settings; by default {DEFAULT_FILE} if it is there"
    )
    parser.add_argument("--policy", action="append", metavar="PATH", help="a policy file or folder; may be repeated")
    parser.add_argument("--curves", metavar="FILE", help="measured power curves, CSV")
    parser.add_argument(
        "--store", metavar="URL", help="embedded:DIR, redis://…, rediss://…, redis+sentinel://…, unix://…"
    )
    parser.add_argument("--agents", metavar="ADDRESS", help="where agents dial: host:port")
    parser.add_argument(
        "--operators", action="append", metavar="ADDRESS", help="where rackctl asks: host:port or unix:/path"
    )
    add_shared_flags(parser)
    parser.add_argument("--check", action="store_true", help="check settings and policy, start nothing")
    parser.add_argument("--version", action="version", version=f"rackpower-controller {version('rackpower')}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
