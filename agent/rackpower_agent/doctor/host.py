"""The node around the GPUs: the agent's folder, certificates, the clock, the controllers."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import grpc

from rackpower_agent.doctor.finding import Area, Finding, Level
from rackpower_agent.settings import AgentSettings
from rackpower_common.address import parse_address
from rackpower_common.certificate import valid_until
from rackpower_common.tls import TlsError, TlsFiles

SOON: Final = timedelta(days=14)
"""A certificate that ends within this time is told."""

REACH_S: Final = 3.0
"""How long a controller may take to answer."""

TIMEDATECTL_S: Final = 3.0

HEALTH: Final = "/grpc.health.v1.Health/Check"
_SERVING: Final = b"\x08\x01"
"""`HealthCheckResponse{status: SERVING}`: a GPU node carries no health stubs for the sake of two bytes."""


def examine_folder(folder: Path) -> tuple[Finding, ...]:
    """Return whether the agent can keep its journal."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        return ()
    words = f"the journal cannot be kept there: {'no folder' if place.exists() else 'nothing'} we may write to"
    do = "run as root, or let systemd make it (StateDirectory=)"
    return (Finding(Level.PROBLEM, Area.SETTINGS, "state_dir", str(folder), words, do),)


def examine_tls(tls: TlsFiles | None, now: datetime) -> tuple[Finding, ...]:
    """Return what is wrong with the certificates, and what soon will be."""
    if tls is None:
        return ()
    try:
        tls.check()
    except TlsError as error:
        return (Finding(Level.PROBLEM, Area.SETTINGS, "tls", str(tls.cert), error.message, error.hint),)
    found = []
    for path in (tls.cert, tls.ca):
        ends = valid_until(path.read_bytes())
        if ends - now < SOON:
            words = f"it ends on {ends:%Y-%m-%d %H:%M} UTC"
            do = "issue a new one: rackctl pki issue"
            found.append(Finding(Level.NOTE, Area.SETTINGS, "tls_ends_soon", str(path), words, do))
    return tuple(found)


def examine_clock() -> tuple[Finding, ...]:
    """Return whether the clock is kept by somebody: leases do not need it, certificates and logs do."""
    command = ["timedatectl", "show", "--property=NTPSynchronized", "--value"]
    try:
        run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEDATECTL_S)
    except (OSError, subprocess.SubprocessError):
        return ()
    if run.stdout.strip() != "no":
        return ()
    words = "the clock is not synchronised: certificates may look expired, and logs of nodes do not line up"
    return (Finding(Level.NOTE, Area.CLOCK, "clock", "clock", words, "set up chrony or systemd-timesyncd"),)


def examine_controllers(settings: AgentSettings) -> tuple[Finding, ...]:
    """Return which controllers answer: a problem when none does, or when one does not take our certificate."""
    if not settings.controllers:
        words, do = "no controller is named: nothing would ever be granted", "set controllers: [host:port]"
        return (Finding(Level.PROBLEM, Area.SETTINGS, "no_controllers", "controllers", words, do),)
    tls = settings.tls.files() if settings.tls is not None else None
    try:
        if tls is not None:
            tls.check()
    except TlsError:
        return ()  # told already
    answers = asyncio.run(_ask_all(settings.controllers, tls))
    reached = [address for address, (code, _) in answers.items() if code in (None, grpc.StatusCode.UNIMPLEMENTED)]
    return tuple(_controller(address, *answer, others=bool(reached)) for address, answer in answers.items())


Answer = tuple[grpc.StatusCode | None, str]
"""What went wrong, None for nothing, and in words."""


async def _ask_all(addresses: Iterable[str], tls: TlsFiles | None) -> dict[str, Answer]:
    async with asyncio.TaskGroup() as group:
        asked = {address: group.create_task(_ask(address, tls)) for address in addresses}
    return {address: task.result() for address, task in asked.items()}


async def _ask(address: str, tls: TlsFiles | None) -> Answer:
    where = parse_address(address)
    secured = tls is not None and not where.path
    channel = (
        grpc.aio.secure_channel(where.target, tls.channel_credentials())
        if secured and tls is not None
        else grpc.aio.insecure_channel(where.target)
    )
    async with channel:
        check = channel.unary_unary(HEALTH, request_serializer=bytes, response_deserializer=bytes)
        try:
            answer = await check(b"", timeout=REACH_S)
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or error.code().name
    return None, "it leads" if answer == _SERVING else "it answers and does not lead now"


def _controller(address: str, code: grpc.StatusCode | None, words: str, *, others: bool) -> Finding:
    if code is None or code is grpc.StatusCode.UNIMPLEMENTED:
        return Finding(Level.FINE, Area.CONTROLLER, "reachable", address, words)
    refused = "handshake" in words.lower() or "ssl" in words.lower() or "certificate" in words.lower()
    level = Level.PROBLEM if refused or not others else Level.NOTE
    kind = "tls_refused" if refused else "unreachable"
    do = "check tls: on both sides, and the names in its certificate" if refused else "check address, firewall, service"
    return Finding(level, Area.CONTROLLER, kind, address, f"it does not answer: {words}", do)
