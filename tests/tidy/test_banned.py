"""Calls that have a better replacement, and what the core may import."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.tree import PRODUCT, Use, files, python_files, text, uses


@dataclass(frozen=True, slots=True)
class Ban:
    """A dotted name that may not be used in some folders."""

    name: str
    folders: tuple[str, ...]
    instead: str
    but: tuple[str, ...] = ()


EVERYWHERE: Final = (*PRODUCT, "tests", "tools", "bench")
FAKE: Final = "write a fake with a memory in tests/support that implements the Protocol, and inject it"
GROUP: Final = "start tasks in an asyncio.TaskGroup, so that none is lost or left behind"
BANS: Final = (
    Ban("unittest.mock", EVERYWHERE, FAKE),
    Ban("mocker", ("tests",), FAKE),
    Ban("monkeypatch.setattr", ("tests",), FAKE),
    Ban("monkeypatch.setitem", ("tests",), FAKE),
    Ban("monkeypatch.delattr", ("tests",), FAKE),
    Ban("asyncio.create_task", EVERYWHERE, GROUP),
    Ban("asyncio.ensure_future", EVERYWHERE, GROUP),
    Ban("asyncio.gather", EVERYWHERE, GROUP),
    Ban("asyncio.get_event_loop", EVERYWHERE, "asyncio.get_running_loop, inside a coroutine"),
    Ban("asyncio.get_running_loop().create_task", EVERYWHERE, GROUP),
    Ban(
        "time.sleep",
        ("tests",),
        "wait for a condition with a deadline: support.waiting.wait_until",
        but=("tests/support/waiting.py",),
    ),
    Ban("time.time", ("controller", "agent"), "take a rackpower_common.clock.Clock"),
    Ban("time.monotonic", ("controller", "agent"), "take a rackpower_common.clock.Clock"),
    Ban("datetime.datetime.now", ("controller", "agent"), "take a rackpower_common.clock.Clock"),
    Ban("os._exit", PRODUCT, "raise, or return an exit code to main"),
    Ban("pickle", EVERYWHERE, "the wire's own codec, or JSON"),
)
CORE: Final = Path("controller/rackpower_controller/core")
# What the core may import: our words, numpy, and the parts of the standard library that can do no I/O.
CORE_MAY_IMPORT: Final = (
    "__future__", "bisect", "collections", "dataclasses", "enum", "fnmatch", "fractions", "functools", "hashlib",
    "heapq", "itertools", "json", "math", "numpy", "operator", "rackpower_common", "rackpower_controller.core", "types",
    "typing",
)  # fmt: skip
CORE_MAY_NOT_IMPORT: Final = ("rackpower_common.wire", "rackpower_common.clock", "rackpower_common.logs")


def within(name: str, prefix: str) -> bool:
    """Return whether a dotted name is another one or lies below it."""
    return name == prefix or name.startswith((prefix + ".", prefix + "()"))


def banned(use: Use) -> list[str]:
    """Return a sentence for each ban that a use breaks."""
    return [
        f"{use.path}:{use.line}: {ban.name} is banned here; instead: {ban.instead}"
        for ban in BANS
        if use.path.parts[0] in ban.folders and str(use.path) not in ban.but and within(use.name, ban.name)
    ]


def impure(use: Use) -> bool:
    """Return whether a core file's import is of something that the core must not know."""
    if use.name.partition(".")[0] in sys.stdlib_module_names or within(use.name, "rackpower_controller"):
        return not any(within(use.name, name) for name in CORE_MAY_IMPORT)
    return any(within(use.name, name) for name in CORE_MAY_NOT_IMPORT)


def test_nothing_banned_is_called() -> None:
    """Calls with a better replacement are not used, and the message names it."""
    faults = sorted({fault for path in python_files(*EVERYWHERE) for use in uses(path) for fault in banned(use)})
    assert not faults, "\n".join(faults)


def test_core_imports_only_what_can_do_no_io() -> None:
    """The core imports our words, numpy and a short list of the standard library; the rest is import-linter's."""
    faults = sorted(
        {
            f"{path}:{use.line}: core is pure, {use.name} is not for it; take the value as an argument"
            for path in python_files("controller")
            if path.is_relative_to(CORE)
            for use in uses(path)
            if use.is_import and impure(use)
        }
    )
    assert not faults, "\n".join(faults)


def test_every_module_is_used_by_another_file() -> None:
    """No module of the product lies dead: some other file, entry point or unit names it."""
    corpus = {path: {use.name for use in uses(path)} for path in python_files()}
    words = " ".join(text(path) for path in files() if path.suffix in {".toml", ".service"} or path.name == "Makefile")
    faults = []
    for path in python_files(*PRODUCT):
        module = ".".join(path.with_suffix("").parts[1:])
        if path.stem in {"__init__", "__main__"} or module in words:
            continue
        others = (names for other, names in corpus.items() if other != path)
        if not any(within(name, module) for names in others for name in names):
            faults.append(f"{path}: nothing imports {module}; use it or remove it")
    assert not faults, "\n".join(faults)


def test_a_banned_call_is_found_under_any_alias(tmp_path: Path) -> None:
    """`from time import sleep as nap` is time.sleep, and a task group's create_task is fine."""
    path = tmp_path / "probe.py"
    path.write_text(
        "import asyncio\nfrom time import sleep as nap\nfrom unittest import mock\n"
        "nap(1)\nasyncio.create_task(f())\nasyncio.get_running_loop().create_task(f())\n"
        "async def g(group):\n    group.create_task(f())\n"
    )
    found = [banned(Use(Path("tests/unit/probe.py"), use.line, use.name)) for use in uses(path)]
    lines = sorted({int(fault.split(":")[1]) for faults in found for fault in faults})
    assert lines == [2, 3, 4, 5, 6]
