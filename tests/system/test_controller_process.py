"""The controller as a process: start, stop, kill, reload, a store that is down, a rival."""

from __future__ import annotations

import asyncio
import os
import signal
import urllib.request
from pathlib import Path

import pytest

from rackpower_common.model.identity import StreamId
from rackpower_common.model.messages import ControllerGoodbye, GoodbyeReason, GrantBatch, Welcome
from rackpower_controller.store.embedded import EmbeddedServer, is_server_of
from support.controller_process import (
    PATIENCE_S,
    Controller,
    Site,
    controller,
    dialled,
    no_store_left,
    run_controller,
    site,
)
from support.policies import SMALL
from support.shell import FakeAgent
from support.stores import free_port
from support.waiting import wait_until

LOWER = SMALL.replace("60 kW", "50 kW")
LOWEST = SMALL.replace("60 kW", "40 kW")


def no_traceback(running: Controller) -> None:
    """Look that nothing an operator cannot read was written."""
    assert "Traceback" not in running.said, running.said


def gone(pid: int | None, of: Site) -> bool:
    """Whether a store's server has ended."""
    return pid is None or not is_server_of(pid, of.store_folder)


def test_it_starts_leads_and_feeds_the_watchdog_with_its_ticks(tmp_path: Path) -> None:
    """READY, a term, health, a status that names the tick's sentence, and one WATCHDOG a tick."""
    of = site(tmp_path)
    with controller(of) as running:
        term = running.leads()
        assert term.number == 1
        wait_until(running.serving, within_s=PATIENCE_S, what="its health")
        status = running.until(lambda now: now.tick > 2, "ticks")
        assert status.store == "ok"
        assert status.domains[0].name == "rack-1"
        assert len(running.ear.heard("WATCHDOG=1")) >= 3
        assert running.ear.heard("STATUS=")[-1].startswith("STATUS=No cap changed")
        assert (of.socket.stat().st_mode & 0o777) == 0o660
        no_traceback(running)


@pytest.mark.anyio
async def test_sigterm_says_goodbye_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Agents hear that the controller stops; exit code 0; the store has ended, the socket is gone."""
    of = site(tmp_path)
    with controller(of) as running:
        await asyncio.to_thread(running.leads)
        async with asyncio.timeout(PATIENCE_S), dialled(of, FakeAgent("gpu-01", StreamId(1))) as agent:
            assert isinstance(await agent.hears(Welcome), Welcome)
            store_pid = of.store_pid
            running.signal(signal.SIGTERM)
            goodbye = await agent.hears(ControllerGoodbye)
        assert isinstance(goodbye, ControllerGoodbye)
        assert goodbye.reason is GoodbyeReason.SHUTTING_DOWN
        assert await asyncio.to_thread(running.ends) == 0
        assert gone(store_pid, of)
        assert not of.socket.exists()
        assert running.ear.heard("STOPPING=1")
        assert "every agent keeps its caps and leases" in running.said
        no_traceback(running)


def test_a_killed_controller_s_store_is_adopted(tmp_path: Path) -> None:
    """Kill -9: the store lives on; the next controller takes it over, a higher term, the policy and the history."""
    of = site(tmp_path)
    with no_store_left(of):
        with controller(of) as running:
            first = running.leads()
            assert running.apply(LOWER).applied
            running.until(lambda now: "policy_applied" in running.events(), "the event")
            running.ticks()
            store_pid = of.store_pid
            running.kill()
        assert not gone(store_pid, of)
        with controller(of) as running:
            second = running.leads()
            assert of.store_pid == store_pid
            assert second.number == first.number + 1
            assert second.instance != first.instance
            assert running.limit_w() == 50_000
            assert "ann" in running.policy().author
            assert running.events().count("term_taken") == 2
            running.signal(signal.SIGTERM)
            assert running.ends() == 0
            no_traceback(running)
        assert gone(store_pid, of)


def test_a_store_that_ends_is_started_again_with_what_it_knew(tmp_path: Path) -> None:
    """The embedded server killed: the controller starts it anew from its file, and goes on in its term."""
    of = site(tmp_path)
    with controller(of) as running:
        term = running.leads()
        store_pid = of.store_pid
        assert store_pid is not None
        os.kill(store_pid, signal.SIGKILL)
        wait_until(lambda: of.store_pid not in {None, store_pid}, within_s=PATIENCE_S, what="another server")
        status = running.until(lambda now: now.store == "ok", "the store")
        assert (status.term.number, status.term.instance) == (term.number, term.instance)
        no_traceback(running)


def test_an_edit_of_the_policy_comes_into_force_by_itself(tmp_path: Path) -> None:
    """A lower limit in the file is in force within seconds, and told."""
    of = site(tmp_path)
    with controller(of) as running:
        running.leads()
        of.policy.write_text(LOWER)
        running.until(lambda now: now.domains[0].limit_milliwatts == 50_000_000, "the new limit")
        assert "policy_applied" in running.events()
        no_traceback(running)


def test_a_bad_edit_keeps_the_last_good_policy(tmp_path: Path) -> None:
    """The limit stays; status names file, line and column; a mended file counts at once; a restart is no way round."""
    of = site(tmp_path)
    with controller(of) as running:
        running.leads()
        running.until(lambda now: now.tick > 3, "the policy to be saved")
        of.policy.write_text(SMALL.replace("60 kW", "60 kg"))
        status = running.until(lambda now: any(one.reason == "policy_refused" for one in now.attention), "the notice")
        (notice,) = (one for one in status.attention if one.reason == "policy_refused")
        assert f"{of.policy}:3:" in notice.message
        assert status.domains[0].limit_milliwatts == 60_000_000
        running.signal(signal.SIGTERM)
        assert running.ends() == 0
    with controller(of) as running:
        running.leads()
        status = running.status()
        assert status.domains[0].limit_milliwatts == 60_000_000
        assert any(one.reason == "policy_refused" for one in status.attention)
        of.policy.write_text(LOWER)
        status = running.until(lambda now: now.domains[0].limit_milliwatts == 50_000_000, "the new limit")
        assert not any(one.reason == "policy_refused" for one in status.attention)
        no_traceback(running)


def test_sighup_reads_the_files_again(tmp_path: Path) -> None:
    """What an operator applied gives way to the files when they are asked for."""
    of = site(tmp_path)
    with controller(of) as running:
        running.leads()
        assert running.apply(LOWEST).applied
        assert running.limit_w() == 40_000
        running.signal(signal.SIGHUP)
        running.until(lambda now: now.domains[0].limit_milliwatts == 60_000_000, "the files' limit")
        assert running.ear.heard("RELOADING=1")
        no_traceback(running)


def test_a_store_that_is_down_at_the_start_is_waited_for(tmp_path: Path) -> None:
    """It says so, answers operators, keeps trying, and leads once the store is there."""
    of = site(tmp_path, store=f"unix://{tmp_path}/store/valkey.sock")
    with controller(of) as running:
        running.listens()
        status = running.until(lambda now: now.store != "ok", "the store's state")
        assert not status.HasField("term")
        assert "No term from the store yet: the store at" in status.sentence
        assert any(one.reason == "store_down" for one in status.attention)
        assert not running.serving()
        asyncio.run(_with_server(of.store_folder, running))
        no_traceback(running)


async def _with_server(folder: Path, running: Controller) -> None:
    server = EmbeddedServer(folder)
    await server.ensure()
    try:
        term = await asyncio.to_thread(running.leads)
        assert term.number == 1
        status = await asyncio.to_thread(running.until, lambda now: now.store == "ok", "the store")
        assert not any(one.reason == "store_down" for one in status.attention)
        running.signal(signal.SIGTERM)
        assert await asyncio.to_thread(running.ends) == 0
    finally:
        await server.stop()


def test_it_can_be_stopped_while_the_store_is_down(tmp_path: Path) -> None:
    """SIGTERM ends the waiting with exit code 0, with good files and with bad ones."""
    of = site(tmp_path, store=f"unix://{tmp_path}/none.sock")
    with controller(of) as running:
        running.listens()
        running.signal(signal.SIGTERM)
        assert running.ends() == 0
    of.policy.write_text("domains: {}\n")
    of.folder.joinpath("controller.log").unlink()
    with controller(of) as running:
        wait_until(lambda: "last good policy may be in the store" in running.said, within_s=PATIENCE_S, what="words")
        running.signal(signal.SIGTERM)
        assert running.ends() == 0
        no_traceback(running)


def test_a_second_controller_stands_by_and_takes_over_when_the_first_leaves(tmp_path: Path) -> None:
    """The second says who leads; after an orderly stop of the first it leads, with the policy in force."""
    server = EmbeddedServer(tmp_path / "shared")
    asyncio.run(_start(server))
    store = f"unix://{tmp_path}/shared/valkey.sock"
    try:
        with controller(site(tmp_path / "a", store=store)) as first:
            term = first.leads()
            with controller(site(tmp_path / "b", store=store)) as second:
                second.listens()
                status = second.until(lambda now: now.sentence.startswith("Standing by"), "it to stand by")
                assert f"controller {term.instance[:8]} at {first.site.agents} leads" in status.sentence
                assert first.apply(LOWER).applied
                first.ticks()
                first.signal(signal.SIGTERM)
                assert first.ends() == 0
                assert second.leads().number == term.number + 1
                assert second.limit_w() == 50_000
                no_traceback(second)
    finally:
        asyncio.run(_stop(server))


async def _start(server: EmbeddedServer) -> None:
    await server.ensure()


async def _stop(server: EmbeddedServer) -> None:
    server._busy = asyncio.Lock()  # another loop's
    await server.stop()


@pytest.mark.anyio
async def test_an_agent_is_granted_caps_and_finds_the_next_controller(tmp_path: Path) -> None:
    """Grants over a real stream; after a kill -9 the agent, which knows the term, is welcome in a higher one."""
    of = site(tmp_path)
    agent = FakeAgent("gpu-01", StreamId(1))
    with no_store_left(of):
        with controller(of) as running:
            await asyncio.to_thread(running.leads)
            async with asyncio.timeout(PATIENCE_S), dialled(of, agent) as stream:
                await stream.hears(Welcome)
                while not any(watts > 400 for watts in agent.caps_w.values()):
                    await stream.report()
                    await stream.hears(GrantBatch)
                before = agent.term
                assert before is not None
                running.kill()
        with controller(of) as running:
            await asyncio.to_thread(running.leads)
            async with asyncio.timeout(PATIENCE_S), dialled(of, agent) as stream:
                welcome = await stream.hears(Welcome)
                assert isinstance(welcome, Welcome)
                assert welcome.term.number == before.number + 1
                await stream.report()
                await stream.hears(GrantBatch)
            no_traceback(running)


@pytest.mark.parametrize("taken", ["agents", "socket", "metrics", "store"])
def test_what_another_controller_holds_is_told(tmp_path: Path, taken: str) -> None:
    """A port, socket or store in use: exit code 1 and a sentence, or for the store words and waiting; no traceback."""
    port = free_port()
    first = site(tmp_path / "a", metrics=f"127.0.0.1:{port}")
    second = site(tmp_path / "b")
    if taken == "agents":
        second.agents = first.agents
    elif taken == "metrics":
        second.metrics = first.metrics
    elif taken == "store":
        second.store = f"embedded:{first.store_folder}"
    arguments = ["--operators", f"unix:{first.socket}"] if taken == "socket" else []
    with controller(first) as running:
        running.leads()
        if taken == "store":
            with controller(second) as other:
                other.listens()
                status = other.until(lambda now: now.store != "ok", "the store's state")
                assert "belongs to a running controller" in status.store
                no_traceback(other)
            return
        ended = run_controller("--config", str(second.settings()), *arguments)
        assert ended.returncode == 1
        assert ended.stderr.startswith("rackpower-controller: error: cannot ")
        assert "in use" in ended.stderr or "another process" in ended.stderr
        assert "Traceback" not in ended.stderr + ended.stdout
        assert running.process.poll() is None
        assert gone(second.store_pid, second)


def test_metrics_are_served(tmp_path: Path) -> None:
    """Prometheus reads them over HTTP."""
    port = free_port()
    with controller(site(tmp_path, metrics=f"127.0.0.1:{port}")) as running:
        running.leads()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        assert 'rackpower_domain_limit_watts{domain="rack-1"} 60000.0' in text


def test_the_version_is_told() -> None:
    """One line, exit code 0."""
    ended = run_controller("--version")
    assert ended.returncode == 0
    assert ended.stdout.startswith("rackpower-controller ")
