"""The repository's own files, for the house rules of tests/tidy."""

from __future__ import annotations

import ast
import functools
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
# Folders with a package of the product each, in the order of docs/architecture.md.
PRODUCT: Final = ("common", "agent", "controller", "rackctl", "sim")
GENERATED: Final = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")


@functools.cache
def files() -> tuple[Path, ...]:
    """Return every file that is or may be committed, sorted, relative to the root; of an unpacked archive all."""
    if (ROOT / ".git").exists():
        git = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = subprocess.run(git, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout.decode()
        paths = [Path(name) for name in listed.split("\0") if name]
    else:
        paths = [path.relative_to(ROOT) for path in ROOT.rglob("*")]
        paths = [path for path in paths if not any(part.startswith(".") for part in path.parts[:-1])]
    return tuple(sorted(path for path in paths if (ROOT / path).is_file()))


def text(path: Path) -> str:
    """Return a file's text; bytes that are not UTF-8 are replaced."""
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


def python_files(*folders: str) -> tuple[Path, ...]:
    """Return the hand-written Python files below some first-level folders, or of all."""
    return tuple(
        path
        for path in files()
        if path.suffix == ".py" and not path.name.endswith(GENERATED) and (not folders or path.parts[0] in folders)
    )


@functools.cache
def parsed(path: Path) -> ast.Module:
    """Return a file's syntax tree."""
    return ast.parse(text(path), filename=str(path))


@dataclass(frozen=True, slots=True)
class Use:
    """A dotted name that a file uses, with what it was imported as resolved."""

    path: Path
    line: int
    name: str
    is_import: bool = False


@functools.cache
def uses(path: Path) -> tuple[Use, ...]:
    """Return every import and every dotted name of a file, `from time import sleep; sleep()` as `time.sleep`."""
    tree = parsed(path)
    origin: dict[str, str] = {}
    found: list[Use] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                origin[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
                found.append(Use(path, node.lineno, alias.name, is_import=True))
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                origin[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                found.append(Use(path, node.lineno, f"{node.module}.{alias.name}", is_import=True))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and (dotted := _dotted(node)):
            first, dot, rest = dotted.partition(".")
            found.append(Use(path, node.lineno, origin.get(first, first) + dot + rest))
    return tuple(found)


def _dotted(node: ast.expr) -> str:
    """Return `a.b.c` for an attribute chain, with `()` after what is called on the way, else an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (head := _dotted(node.value)):
        return f"{head}.{node.attr}"
    if isinstance(node, ast.Call) and (head := _dotted(node.func)):
        return f"{head}()"
    return ""
