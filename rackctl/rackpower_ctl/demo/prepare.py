"""What was asked for on the command line, checked, and written into the demo's folder."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from rackpower_common.policy import PolicyError
from rackpower_common.policy.curves import CurveShape, load_curves, usable
from rackpower_ctl.demo.folder import Folder, fill, make_folder
from rackpower_ctl.demo.hardware import scenario_of
from rackpower_ctl.demo.rack_policy import loaded, policy_text
from rackpower_ctl.errors import UsageError
from rackpower_sim.scenario import Scenario
from rackpower_sim.traces import Trace, load_trace


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for on the command line."""

    seconds: float | None = None
    as_json: bool = False
    nodes: int = 9
    gpus_per_node: int = 8
    seed: int = 1
    trace: Path | None = None
    curves: Path | None = None
    policy: Path | None = None
    folder: Path | None = None
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """A rack that is ready to be put up."""

    folder: Folder
    scenario: Scenario
    trace: Trace | None
    keep: bool

    @property
    def limits_w(self) -> dict[str, int]:
        """Return the limits at the start, watts by domain."""
        return {domain.name: domain.limit_w for domain in self.scenario.domains}


def prepare(options: Options) -> Prepared:
    """Read and check everything, then fill the demo's folder.

    Raises:
        UsageError: Something that was asked for cannot be run.
    """
    content = _policy(options)
    policy = loaded(str(options.policy or "policy.yaml"), content).policy
    shapes = _shapes(options.curves)
    trace = load_trace(options.trace) if options.trace is not None else None
    trace_path = options.trace.absolute() if options.trace is not None else None
    scenario = scenario_of(policy, options.seed, shapes, trace_path)
    folder = make_folder(options.folder)
    try:
        fill(folder, content, scenario, options.curves)
    except BaseException:
        if options.folder is None:
            shutil.rmtree(folder.path, ignore_errors=True)
        raise
    return Prepared(folder, scenario, trace, options.keep or options.folder is not None)


def _policy(options: Options) -> bytes:
    if options.policy is None:
        return policy_text(options.nodes, options.gpus_per_node).encode()
    try:
        return options.policy.read_bytes()
    except OSError as error:
        raise UsageError(f"{options.policy} cannot be read: {error.strerror}", "give a policy file") from error


def _shapes(curves: Path | None) -> tuple[CurveShape, ...]:
    if curves is None:
        return ()
    try:
        return usable(load_curves(curves))
    except PolicyError as error:
        raise UsageError(error.message, error.hint) from error
