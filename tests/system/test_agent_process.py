"""The agent as a process: start, stop, kill, restart, reboot, on simulated hardware that goes on without it."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackpower_common.clock import BootClock
from rackpower_common.model.device import Health
from rackpower_common.model.messages import WriteFailure
from rackpower_controller.core.facts import NodeLeft, NodeReported, WriteFailed
from rackpower_sim.node_layout import WriteMode
from support.agent_process import GPUS, NODE, PATIENCE_S, Agent, Controller, Hardware, agent, hardware, run_agent
from support.edge import edge
from support.golden import GOLDEN, check_golden
from support.waiting import async_wait_until, wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Hardware]:
    """Simulated hardware of one node, up at its default caps."""
    with hardware(tmp_path) as running:
        yield running


def no_traceback(running: Agent) -> None:
    """Look that nothing an operator cannot read was written."""
    assert "Traceback" not in running.said, running.said


async def test_ready_comes_once_every_gpu_stands_at_a_safe_cap(node: Hardware) -> None:
    """A first start finds default caps and lowers them to the minimum before it says READY=1, without a controller."""
    assert node.caps_w == [node.default_w] * GPUS
    with agent(node.settings(), watchdog_s=1.0) as running:
        await running.ready()
        assert node.caps_w == [node.min_w] * GPUS
        await async_wait_until(lambda: len(running.ear.heard("WATCHDOG=1")) > 1, within_s=PATIENCE_S, what="food")
        status = running.ear.heard("STATUS=")[-1]
        assert status.startswith("STATUS=no controller: cannot connect to 127.0.0.1:1: nobody listens there")
        assert await running.stop() == 0
        assert running.ear.heard("STOPPING=1")
        no_traceback(running)


async def test_a_stop_says_goodbye_with_the_caps_and_leaves_them(node: Hardware) -> None:
    """SIGTERM: the last words name every cap in force, the exit code is 0, and the hardware keeps what it had."""
    async with edge() as edges:
        controller = Controller(edges)
        with agent(node.settings(controllers=[edges.agents])) as running:
            connected = await controller.welcome()
            await controller.grant(connected, 500, 1)
            assert await running.stop() == 0
            left = await controller.fact(NodeLeft)
            assert left.goodbye is not None
            assert [holding.enforced_w for holding in left.goodbye.holdings] == [500] * GPUS
            assert node.caps_w == [500] * GPUS
            no_traceback(running)


async def test_a_killed_agent_keeps_its_cap_when_it_comes_back_within_the_lease(node: Hardware) -> None:
    """Kill -9: the hardware draws on; the next agent remembers term, sequence, grant and lease, and writes nothing."""
    async with edge() as edges:
        controller = Controller(edges)
        settings = node.settings(controllers=[edges.agents])
        with agent(settings) as running:
            connected = await controller.welcome()
            await controller.grant(connected, 500, 7, lease_s=60.0, fallback_w=300)
            running.kill()
        assert node.caps_w == [500] * GPUS
        with agent(settings) as running:
            await running.ready()
            assert node.caps_w == [500] * GPUS
            hello = (await controller.welcome()).hello
            assert (hello.journal_read, hello.highest_term) == (True, controller.term)
            assert [holding.sequence for holding in hello.holdings] == [7] * GPUS
            assert hello.agent_instance != connected.hello.agent_instance
            lowest_s = min(holding.lease_remaining_s or 0.0 for holding in hello.holdings)
            assert 20.0 < lowest_s < 60.0
        no_traceback(running)


async def test_a_lease_that_ended_while_the_agent_was_dead_is_ended_before_ready(node: Hardware) -> None:
    """Nobody lowers while the agent is dead; the next one sets min(cap in force, fallback) before READY=1."""
    async with edge() as edges:
        controller, clock = Controller(edges), BootClock()
        settings = node.settings(controllers=[edges.agents])
        with agent(settings) as running:
            connected = await controller.welcome()
            await controller.grant(connected, 500, 1, lease_s=1.0, fallback_w=300)
            ends_s = clock.now_s() + 1.0
            running.kill()
        wait_until(lambda: clock.now_s() > ends_s, within_s=PATIENCE_S, what="the lease's end")
        assert node.caps_w == [500] * GPUS
        with agent(settings) as running:
            await running.ready()
            assert node.caps_w == [300] * GPUS


async def test_a_lease_that_ends_without_a_controller_lowers_to_the_fallback_and_no_further(node: Hardware) -> None:
    """Alone the agent only ever lowers: to the fallback where the cap is higher, and where it is lower not at all."""
    async with edge() as edges:
        controller = Controller(edges)
        with agent(node.settings(controllers=[edges.agents])) as running:
            connected = await controller.welcome()
            await controller.grant(connected, 600, 1, lease_s=1.0, fallback_w=300)
            await async_wait_until(lambda: node.caps_w == [300] * GPUS, within_s=PATIENCE_S, what="the fallback")
            await controller.grant(connected, 250, 2, lease_s=0.5, fallback_w=400)
            await controller.fact(
                NodeReported, lambda said: all(line.holding.lease_remaining_s == 0 for line in said.report.gpus)
            )
            assert node.caps_w == [250] * GPUS
            assert running.process.poll() is None


async def test_after_a_reboot_a_node_stands_at_its_minimum(node: Hardware) -> None:
    """Another boot id: grants of before are worth nothing, terms and sequences stay."""
    async with edge() as edges:
        controller = Controller(edges)
        settings = node.settings(controllers=[edges.agents])
        with agent(settings) as running:
            connected = await controller.welcome()
            await controller.grant(connected, 500, 7, lease_s=60.0)
            running.kill()
        node.reboot()
        wait_until(lambda: node.caps_w == [node.default_w] * GPUS, within_s=PATIENCE_S, what="default caps")
        with agent(settings) as running:
            await running.ready()
            assert node.caps_w == [node.min_w] * GPUS
            hello = (await controller.welcome()).hello
            assert hello.boot_id != connected.hello.boot_id
            assert (hello.journal_read, hello.highest_term) == (True, controller.term)
            assert [holding.sequence for holding in hello.holdings] == [7] * GPUS


async def test_a_lost_journal_is_a_first_start_and_the_hello_says_so(node: Hardware) -> None:
    """What cannot be read is no memory: minimum, and a controller that knows of it."""
    async with edge() as edges:
        controller = Controller(edges)
        settings = node.settings(controllers=[edges.agents])
        with agent(settings) as running:
            await controller.grant(await controller.welcome(), 500, 7, lease_s=60.0)
            running.kill()
        (node.folder / "state" / "lease.json").write_bytes(b'{"format":1,"boot')
        with agent(settings) as running:
            await running.ready()
            assert node.caps_w == [node.min_w] * GPUS
            assert (await controller.welcome()).hello.journal_read is False
            assert "torn or was changed" in running.said


async def test_an_override_is_put_right_and_reported(node: Hardware) -> None:
    """Somebody raises a cap past the agent: it is lowered again, and the report names the cap that was found."""
    async with edge() as edges:
        controller = Controller(edges)
        with agent(node.settings(controllers=[edges.agents])):
            await controller.grant(await controller.welcome(), 400, 1)
            node.node.override(0, 650)
            said = await controller.fact(NodeReported, lambda said: said.report.gpus[0].override_w is not None)
            assert said.report.gpus[0].override_w == 650
            await async_wait_until(lambda: node.caps_w == [400] * GPUS, within_s=PATIENCE_S, what="the cap put right")


async def test_a_driver_that_hangs_is_told_and_others_go_on(node: Hardware) -> None:
    """One GPU's write never returns: a time-out is told, it counts as quarantined, the other GPU takes its caps."""
    async with edge() as edges:
        controller = Controller(edges)
        with agent(node.settings(controllers=[edges.agents])) as running:
            connected = await controller.welcome()
            await controller.grant(connected, 400, 1)
            node.node.fail_writes(0, WriteMode.HANG)
            controller.send(connected, 300, 2)
            late = await controller.fact(WriteFailed)
            assert (late.error.gpu, late.error.reason, late.error.cap_w) == (node.gpu, WriteFailure.TIMEOUT, 300)
            said = await controller.fact(NodeReported, lambda said: said.report.gpus[0].health is Health.QUARANTINED)
            assert [write.cap_w for write in said.report.gpus[0].holding.pending_writes] == [300]
            assert node.caps_w == [400, 300]
            node.node.fail_writes(0, WriteMode.OK)
            await async_wait_until(lambda: node.caps_w == [300] * GPUS, within_s=PATIENCE_S, what="the late write")
            await controller.fact(NodeReported, lambda said: said.report.gpus[0].health is Health.OK)
            assert await running.stop() == 0


async def test_a_driver_that_is_not_there_is_waited_for_and_a_stop_ends_the_wait(node: Hardware) -> None:
    """The status line says what is waited for; SIGTERM ends the agent at once."""
    missing = node.folder / "rack" / "gpu-99.node"
    with agent(node.settings(devices={"sim": {"path": str(missing)}})) as running:
        await async_wait_until(
            lambda: running.ear.heard("STATUS=waiting for the devices:"), within_s=PATIENCE_S, what="the status"
        )
        assert running.ear.heard("READY=1") == []
        assert await running.stop() == 0
        no_traceback(running)


async def test_a_second_agent_on_one_state_dir_is_refused(node: Hardware) -> None:
    """It says whose the folder is and what to do; the first goes on."""
    settings = node.settings()
    with agent(settings) as running:
        await running.ready()
        second = run_agent(settings)
        assert second.returncode == 1
        assert second.stderr.endswith(
            f"rackpower-agent: error: {node.folder}/state belongs to process {running.process.pid} "
            "(one agent a node: stop the other one first)\n"
        )
        assert "Traceback" not in second.stdout + second.stderr
        assert running.process.poll() is None


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_port_in_use_is_told_and_keeps_no_cap_up(node: Hardware) -> None:
    """The words name address and setting; every GPU stands at a safe cap first, however often systemd tries again."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run = run_agent(node.settings(metrics=f"127.0.0.1:{port}"))
    assert run.returncode == 1
    assert run.stderr.endswith(
        f"rackpower-agent: error: cannot serve metrics on 127.0.0.1:{port}: Address already in use "
        "(set metrics: to another address, or to '' for none)\n"
    )
    assert "Traceback" not in run.stdout + run.stderr
    assert node.caps_w == [node.min_w] * GPUS


async def test_metrics_have_the_names_that_dashboards_rely_on(node: Hardware) -> None:
    """Every name, type and help text is in the golden file; values carry GPU, node, vendor and model."""
    port = free_port()
    with agent(node.settings(metrics=f"127.0.0.1:{port}")) as running:
        await running.ready()
        await async_wait_until(lambda: 'meter/sim"} 1.0' in scrape(port), within_s=PATIENCE_S, what="the sources")
        text = scrape(port)
    names = "".join(line + "\n" for line in text.splitlines() if line.startswith("#"))
    check_golden(GOLDEN / "agent" / "metrics.txt", names)
    labels = f'gpu_uuid="{node.gpu}",model="{node.model}",node="{NODE}",vendor="nvidia"'
    assert f"rackpower_agent_gpu_enforced_cap_watts{{{labels}}} {float(node.min_w)}\n" in text
    assert "rackpower_agent_ready 1.0\n" in text


def scrape(port: int) -> str:
    """Return what Prometheus reads."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def test_boot_cap_sets_every_gpu_to_its_minimum(node: Hardware) -> None:
    """Exit code 0 says that the hardware holds it."""
    run = run_agent(node.settings(controllers=None), "boot-cap")
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines() == [f"{node.model} {gpu.uuid}: 200 W" for gpu in node.node.static.gpus]
    assert node.caps_w == [node.min_w] * GPUS


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        (WriteMode.REFUSE, "not capped: GPU {gpu}: the driver refused it when asked for 200 W"),
        (WriteMode.NO_PERMISSION, "not capped: GPU {gpu}: no permission when asked for 200 W"),
        (WriteMode.CLAMP, "asked for 200 W, the driver holds 600 W"),
    ],
)
def test_boot_cap_fails_where_a_gpu_does_not_take_it_and_caps_the_others(
    node: Hardware, mode: WriteMode, words: str
) -> None:
    """Work must not start: exit code 1, with the GPU and the driver's words on stderr."""
    node.node.fail_writes(0, mode, clamp_w=600)
    run = run_agent(node.settings(controllers=None), "boot-cap")
    assert run.returncode == 1
    assert run.stderr == f"{node.model} {node.gpu}: {words.format(gpu=node.gpu)}\n"
    assert node.caps_w[1] == node.min_w


def test_boot_cap_fails_without_a_driver(node: Hardware) -> None:
    """A node whose GPUs cannot be listed starts no work."""
    missing = node.folder / "rack" / "gpu-99.node"
    run = run_agent(node.settings(devices={"sim": {"path": str(missing)}}), "boot-cap", "--wait", "0")
    assert run.returncode == 1
    assert f"{missing}: no simulated node here" in run.stderr
    assert "Traceback" not in run.stderr
