"""The command `rackpower-agent`: settings in, exit code out; no traceback for what an operator can mend."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rackpower_agent.boot_cap import cap_all, list_patiently, wait_until_settled
from rackpower_agent.devices.registry import DEVICES, METERS, WORKLOADS, PluginError, load_plugin
from rackpower_agent.hardware import Backends
from rackpower_agent.process import Process
from rackpower_agent.settings import DEFAULT_FILE, AgentSettings
from rackpower_common.clock import BootClock
from rackpower_common.command_line import add_shared_flags, flags_of, settings_file
from rackpower_common.errors import RackpowerError
from rackpower_common.logs import configure_logs
from rackpower_common.settings import SettingsError, load_settings

FINE, FAILED, USAGE = 0, 1, 2
LONGEST_WAIT_S = 3600.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an agent until SIGTERM or Ctrl-C, or set boot caps.

    Returns:
        0 when all is well, 1 when it cannot go on (boot-cap: a GPU is not at its smallest cap; doctor: the node cannot
        be managed), 2 for wrong settings: only a person can mend them, a restart does not.
    """
    options = _parser().parse_args(arguments)
    try:
        settings = load_settings(AgentSettings, settings_file(options.config, DEFAULT_FILE), _flags(options))
    except SettingsError as error:
        print(*error.lines, sep="\n", file=sys.stderr)
        return USAGE
    if options.command == "run" and not options.check and not settings.controllers:
        print("rackpower-agent: error: no controller is named (set controllers: [host:port])", file=sys.stderr)
        return USAGE
    configure_logs(settings.log_format, settings.log_level)
    try:
        if options.check:
            return _check(settings)
        if options.command == "boot-cap":
            return _boot_cap(settings, options.wait)
        if options.command == "doctor":
            return _doctor(settings, try_writes=options.write_test, as_script=options.json)
        return asyncio.run(Process(settings, version("rackpower")).run())
    except PluginError as error:
        print(f"rackpower-agent: error: {error}", file=sys.stderr)
        return USAGE
    except RackpowerError as error:
        print(f"rackpower-agent: error: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return FINE


def _check(settings: AgentSettings) -> int:
    """Check settings, plug-ins and certificates without starting anything."""
    for group, names in ((DEVICES, settings.devices), (WORKLOADS, settings.workloads), (METERS, settings.meter)):
        for name in names:
            load_plugin(group, name)
    if settings.tls is not None:
        settings.tls.files().check()
    controllers = ", ".join(settings.controllers) or "none"
    print(f"settings are fine: node {settings.node}, controllers {controllers}")
    return FINE


def _boot_cap(settings: AgentSettings, wait_s: float) -> int:
    """Set every GPU's smallest cap; fail where one does not take it, or where one may be missing."""
    clock = BootClock()
    hardware = list_patiently(Backends(settings.devices).open, clock, wait_s, lambda words: print(words, flush=True))
    capped = cap_all(hardware.gpus, clock)
    for one in capped:
        print(one.words, file=sys.stderr if one.failure else sys.stdout, flush=True)
    wait_until_settled()
    if not hardware.complete:
        print(f"not every GPU could be listed: {hardware.detail}", file=sys.stderr)
    return FAILED if any(one.failure for one in capped) or not hardware.complete else FINE


def _doctor(settings: AgentSettings, *, try_writes: bool, as_script: bool) -> int:
    """Examine the node and say what was found."""
    # the daemon, which stays small, needs nothing of it
    from rackpower_agent.doctor.examination import examine_node
    from rackpower_agent.doctor.report import as_json, as_text

    examination = examine_node(settings, BootClock(), try_writes=try_writes)
    if as_script:
        print(as_json(examination, version("rackpower")))
    else:
        print(*as_text(examination), sep="\n")
    return FINE if examination.manageable else FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rackpower-agent",
        description="Hold the power caps of this node's GPUs for a rackpower controller.",
        epilog=f"Flags win over RACKPOWER_AGENT_… variables, these over the file ({DEFAULT_FILE}).",
    )
    parser.add_argument(
        "command",
        nargs="?",
        choices=["run", "boot-cap", "doctor"],
        default="run",
        help="run (default); boot-cap: set every GPU to its smallest cap and end; doctor: say what this node's agent "
        "sees and may do",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"settings; {DEFAULT_FILE} if it is there")
    parser.add_argument("--node", metavar="NAME", help="this node's name in the policy; by default the host's")
    parser.add_argument("--controllers", action="append", metavar="ADDRESS", help="host:port; may be repeated")
    parser.add_argument("--devices", action="append", metavar="NAME[:key=value,…]", help="a backend; may be repeated")
    parser.add_argument("--state-dir", metavar="DIR", help="where the journal lies")
    add_shared_flags(parser)
    parser.add_argument(
        "--wait", type=_seconds, default=0.0, metavar="SECONDS", help="boot-cap: how long drivers may take to come up"
    )
    parser.add_argument("--json", action="store_true", help="doctor: one JSON object, for scripts")
    parser.add_argument(
        "--write-test", action="store_true", help="doctor: lower every cap by a few watts, put it back, and see"
    )
    parser.add_argument("--check", action="store_true", help="check the settings, start nothing")
    parser.add_argument("--version", action="version", version=f"rackpower-agent {version('rackpower')}")
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_WAIT_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to {LONGEST_WAIT_S:g}")
    return seconds


def _flags(options: argparse.Namespace) -> dict[str, Any]:
    return flags_of(options, ("node", "controllers", "state_dir")) | {"devices": _plugins(options.devices)}


def _plugins(texts: list[str] | None) -> dict[str, dict[str, str]] | None:
    """Return `name:key=value,key=value` texts as backends with options."""
    if texts is None:
        return None
    plugins = {}
    for text in texts:
        name, _, rest = text.partition(":")
        pairs = (pair.partition("=") for pair in rest.split(",") if pair)
        plugins[name] = {key: value for key, _, value in pairs}
    return plugins


if __name__ == "__main__":
    sys.exit(main())
