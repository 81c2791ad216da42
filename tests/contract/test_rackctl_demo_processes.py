"""Nothing that a demo starts outlives it: however the demo ends, and however stubborn its processes are."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rackpower_ctl.demo.control import Controllers, News
from rackpower_ctl.demo.guardian import Store, Ward, end, lives, start_ticks
from rackpower_ctl.demo.peer import listener_pid
from rackpower_ctl.demo.processes import Processes
from support.waiting import wait_until

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)",
]
WITHIN_S = 20.0


def ward(process: subprocess.Popen[bytes], phase: int = 0) -> Ward:
    """Return a process that leads its group."""
    begun = start_ticks(process.pid)
    assert begun is not None
    return Ward(process.pid, begun, leads=True, phase=phase)


def test_processes_end_with_the_block_and_the_folder_goes(tmp_path: Path) -> None:
    """At the end of the `with` nothing runs and the folder is gone."""
    folder = tmp_path / "demo"
    with Processes(folder / "logs") as processes:
        processes.remove_with_us(folder)
        children = [processes.start(name, SLEEPS) for name in ("a", "b")]
        wards = [ward(child.process) for child in children]
        assert all(map(lives, wards))
    assert not any(map(lives, wards))
    assert not folder.exists()


def test_a_killed_demo_leaves_no_orphans(tmp_path: Path) -> None:
    """A kill -9 of the demo itself: its guardian ends what it started, and removes the folder."""
    folder = tmp_path / "demo"
    script = (
        "import sys, time; from pathlib import Path; from rackpower_ctl.demo.processes import Processes\n"
        f"folder = Path({str(folder)!r})\n"
        "with Processes(folder / 'logs') as processes:\n"
        "    processes.remove_with_us(folder)\n"
        f"    child = processes.start('child', {SLEEPS!r})\n"
        "    print(child.process.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        pid = int(demo.stdout.readline())
        begun = start_ticks(pid)
        assert begun is not None
        demo.kill()
    wait_until(lambda: start_ticks(pid) != begun, within_s=WITHIN_S, what="the child's end")
    wait_until(lambda: not folder.exists(), within_s=WITHIN_S, what="the folder's removal")


def test_what_does_not_hear_is_killed() -> None:
    """A process that ignores SIGTERM ends all the same, after the patience."""
    with subprocess.Popen(STUBBORN, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        end([ward(process)], patience_s=0.1)
        assert process.wait(WITHIN_S) == -signal.SIGKILL


def test_the_hardware_ends_last() -> None:
    """A later phase is asked only when the earlier one is gone."""
    note = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(print(time.monotonic())))\n"
    command = [sys.executable, "-c", note + "print('up', flush=True); time.sleep(600)"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    end([ward(processes[0], phase=1), ward(processes[1], phase=0)])
    ended_s = [float(process.communicate(timeout=WITHIN_S)[0]) for process in processes]
    assert ended_s[1] < ended_s[0]


def test_a_pid_that_is_another_process_now_is_left_alone() -> None:
    """What began at another time is not ours."""
    with subprocess.Popen(SLEEPS, start_new_session=True) as process:
        mine = ward(process)
        end([Ward(mine.pid, mine.start_ticks - 1, leads=True, phase=0)], patience_s=0.1)
        assert lives(mine)
        process.kill()


def test_a_store_is_known_by_its_pid_file_and_its_folder(tmp_path: Path) -> None:
    """A server that its starter left behind is ended; a process that only has its pid is not."""
    from rackpower_ctl.demo.guardian import end_store

    pid_file = tmp_path / "valkey.pid"
    with subprocess.Popen([*SLEEPS, "--dir", str(tmp_path)], start_new_session=True) as process:
        pid_file.write_text(f"{process.pid}\n")
        end_store(Store(str(pid_file), str(tmp_path / "other")))
        assert process.poll() is None
        end_store(Store(str(pid_file), str(tmp_path)))
        assert process.wait(WITHIN_S) == -signal.SIGTERM


def test_the_end_of_a_child_is_seen_with_its_last_words(tmp_path: Path) -> None:
    """Exit code and log are there to be told."""
    with Processes(tmp_path / "logs") as processes:
        child = processes.start("agent", [sys.executable, "-c", "import sys; print('no permission'); sys.exit(3)"])
        wait_until(processes.ended, within_s=WITHIN_S, what="the end")
        assert (child.exit_code, child.last_words()) == (3, "no permission")


def test_who_listens_on_a_socket_is_known(tmp_path: Path) -> None:
    """Also after its predecessor was killed and left the file behind."""
    path = tmp_path / "operator.sock"
    assert listener_pid(path) is None
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        assert listener_pid(path) == os.getpid()
    assert listener_pid(path) is None


@pytest.mark.parametrize("times", [1, 2])
def test_a_controller_that_somebody_started_again_is_adopted(tmp_path: Path, times: int) -> None:
    """Down is told once, back is told once, and each new one ends with the demo."""
    path = tmp_path / "operator.sock"
    listens = (
        "import socket, sys, time; s = socket.socket(socket.AF_UNIX)\n"
        f"import os; os.path.exists({str(path)!r}) and os.unlink({str(path)!r})\n"
        f"s.bind({str(path)!r}); s.listen(); time.sleep(600)"
    )
    adopted: list[int] = []
    running = subprocess.Popen([sys.executable, "-c", listens])
    controllers = Controllers(path, running.pid, adopted.append)
    for _ in range(times):
        assert controllers.look(time.monotonic()) is News.NONE
        running.kill()
        running.wait(WITHIN_S)
        assert controllers.look(5.0) is News.DOWN
        assert controllers.look(6.0) is News.NONE
        assert controllers.down_since_s == 5.0
        running = subprocess.Popen([sys.executable, "-c", listens])
        wait_until(lambda: controllers.look(7.0) is News.BACK, within_s=WITHIN_S, what="the new controller")
        assert not controllers.down_since_s
        assert adopted[-1] == controllers.pid == running.pid
    running.kill()
    running.wait(WITHIN_S)
