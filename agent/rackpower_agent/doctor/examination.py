"""The whole examination of a node, in the order in which an operator would ask."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from rackpower_agent.deadline import all_within
from rackpower_agent.devices.base import BackendUnavailable, Gpu
from rackpower_agent.doctor.finding import Area, Finding, Level
from rackpower_agent.doctor.gpus import Examined, examine, findings_of, unlike
from rackpower_agent.doctor.host import examine_clock, examine_controllers, examine_folder, examine_tls
from rackpower_agent.doctor.units import Systemctl, examine_units, systemctl, unit_of
from rackpower_agent.doctor.write_test import write_test
from rackpower_agent.hardware import Backends, Hardware, HardwareError
from rackpower_agent.journal import Journal, JournalError
from rackpower_agent.settings import AgentSettings
from rackpower_common.clock import Clock

LIST_S: Final = 15.0
"""How long a driver may take to list its GPUs."""

CALLS_S: Final = 10.0
"""How long one GPU may take to answer everything."""


@dataclass(frozen=True, slots=True)
class Examination:
    """What was seen and what is to be said about it."""

    node: str
    gpus: tuple[Examined, ...]
    findings: tuple[Finding, ...]

    @property
    def manageable(self) -> bool:
        """Whether nothing stands in the way of managing the node."""
        return all(one.level is not Level.PROBLEM for one in self.findings)


def examine_node(
    settings: AgentSettings, clock: Clock, *, try_writes: bool = False, show: Systemctl = systemctl
) -> Examination:
    """Examine a node.

    Args:
        settings: The agent's.
        clock: Time.
        try_writes: Lower every GPU's cap by a few watts and put it back; only while no agent runs.
        show: Asks systemd.

    Raises:
        PluginError: A backend that the settings name is not installed.
    """
    found: list[Finding] = []
    hardware = _listed(settings, clock, found)
    gpus = [gpu for one in hardware for gpu in one.gpus]
    seen = _examined(gpus, clock)
    for one in seen:
        found.extend(findings_of(one))
    found.extend(unlike(seen))
    if try_writes:
        answering = {one.device.gpu for one in seen if not one.hung}  # a hung device takes no further call
        found.extend(_written(settings, [gpu for gpu in gpus if gpu.device.gpu in answering], clock))
    found.extend(examine_folder(settings.state_dir))
    now = datetime.fromtimestamp(clock.unix_s(), UTC)
    found.extend(examine_tls(settings.tls.files() if settings.tls is not None else None, now))
    found.extend(examine_controllers(settings))
    found.extend(examine_clock())
    in_use = sorted({unit_of(process.pid) for one in seen for process in one.processes})
    found.extend(examine_units(show, in_use))
    return Examination(settings.node, seen, tuple(found))


def _listed(settings: AgentSettings, clock: Clock, found: list[Finding]) -> list[Hardware]:
    """List the GPUs of each backend by itself, so that one that is not there hides no other."""
    listed: list[Hardware] = []
    for name, options in settings.devices.items():
        backends = Backends({name: options})
        answer = all_within({name: partial(_open, backends)}, clock, LIST_S).get(name)
        if answer is None:
            words = f"its driver has not listed the GPUs within {LIST_S:g} s"
            found.append(_device(Level.PROBLEM, "hung", name, words, "look for Xid errors or amdgpu resets in dmesg"))
        elif isinstance(answer, Hardware):
            listed.append(answer)
            if not answer.complete:
                words = f"not every GPU could be listed: {answer.detail}"
                found.append(_device(Level.PROBLEM, "incomplete", name, words, "look for lost GPUs in dmesg"))
        else:
            found.append(answer)
    if not any(one.gpus for one in listed):
        found.append(_device(Level.PROBLEM, "no_gpu", "node", "no GPU can be seen", "install the vendor's driver"))
    return listed


def _open(backends: Backends) -> Hardware | Finding:
    name = ", ".join(backends.names)
    try:
        return backends.open()
    except (BackendUnavailable, HardwareError) as error:
        return _device(Level.PROBLEM, "unavailable", name, error.message, error.hint)
    except Exception as error:  # noqa: BLE001 - a vendor library may raise anything
        words = f"its library failed: {type(error).__name__}: {error}"
        return _device(Level.PROBLEM, "unavailable", name, words, "reinstall driver and library of one version")


def _device(level: Level, code: str, subject: str, words: str, do: str) -> Finding:
    return Finding(level, Area.DEVICES, code, subject, words, do)


def _examined(gpus: Iterable[Gpu], clock: Clock) -> tuple[Examined, ...]:
    gpus = tuple(gpus)
    done = all_within({gpu.device.gpu: partial(examine, gpu) for gpu in gpus}, clock, CALLS_S)
    return tuple(done.get(gpu.device.gpu) or Examined(gpu.device, hung=True) for gpu in gpus)


def _written(settings: AgentSettings, gpus: Iterable[Gpu], clock: Clock) -> Iterable[Finding]:
    """Try a write on every GPU, holding the agent's lock: two hands on one cap would prove nothing."""
    gpus = tuple(gpus)
    journal = Journal(settings.state_dir)
    try:
        former_writer_alive = journal.open().former_writer_alive
    except JournalError as error:
        words = f"no write tried: {error.message}"
        return (Finding(Level.PROBLEM, Area.SETTINGS, "agent_runs", str(settings.state_dir), words, error.hint),)
    try:
        if former_writer_alive:
            words = "no write tried: an agent that was killed has a driver call under way"
            do = "wait until it has gone"
            return (Finding(Level.PROBLEM, Area.SETTINGS, "agent_runs", str(settings.state_dir), words, do),)
        done = all_within({gpu.device.gpu: partial(write_test, gpu) for gpu in gpus}, clock, CALLS_S)
    finally:
        journal.close()
    return tuple(done.get(gpu.device.gpu) or _write_hung(gpu) for gpu in gpus)


def _write_hung(gpu: Gpu) -> Finding:
    words = f"a cap write has not returned within {CALLS_S:g} s"
    return Finding(Level.PROBLEM, Area.GPU, "write_hung", gpu.device.gpu, words, "reset the GPU or the node")
