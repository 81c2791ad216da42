"""A reader finds things by name, and what is committed speaks of the product only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from support.tree import PRODUCT, files, python_files, text

SUBJECTLESS: Final = frozenset({"util", "utils", "helper", "helpers", "types", "misc", "common", "shared", "stuff"})
# Assembled, so that this file does not find itself.
FOREIGN: Final = {
    r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b": "do it now, or file an issue and say what holds until then",
    r"(?<![\w.])/wo" + r"rk/": "name no path of one machine; derive it from the repository's root",
    r"\.\./sha" + r"red\b": "say what the file is ('a trace file in the Azure CSV format'), not where one lay",
    r"(?<![\w.])/(ro" + r"ot|ho" + r"me)/\w": "name no home folder; derive paths or take them as arguments",
    r"(py" + r"pi\.org|python" + r"hosted\.org|npm" + r"js\.org|/opt/py" + r"pi)": "name no registry host",
}


def faults_of_name(path: Path) -> list[str]:
    """Return a sentence for each house rule that a Python file's name breaks."""
    faults = []
    if path.stem in SUBJECTLESS:
        faults.append(f"{path}: name it by its subject (units.py, quantity.py), not by what kind of thing it is")
    if path.name == "__init__.py" and len(path.parts) == 2:
        faults.append(f"{path}: first-level folders are no packages ('import proto' would find ours); remove it")
    if path.name == "__init__.py" and path.parts[0] == "tests":
        faults.append(f"{path}: tests are imported by path and share code through tests/support; remove it")
    return faults


def foreign_words(path: Path, content: str) -> list[str]:
    """Return a sentence for each line that speaks of the place where it was written."""
    return [
        f"{path}:{number}: {found.group()!r}: {advice}"
        for number, line in enumerate(content.splitlines(), start=1)
        for pattern, advice in FOREIGN.items()
        if (found := re.search(pattern, line))
    ]


def test_python_files_are_named_by_subject() -> None:
    """No file is called utils, helpers or types, and no first-level folder is a package."""
    faults = [fault for path in python_files() for fault in faults_of_name(path)]
    assert not faults, "\n".join(faults)


def test_every_package_says_what_lives_in_it() -> None:
    """Each folder of the product with code is a package whose docstring tells what lives there."""
    folders = {path.parent for path in python_files(*PRODUCT)}
    faults = [
        f"{folder}/__init__.py: write a docstring: what lives here and what must never"
        for folder in sorted(folders)
        if not (folder / "__init__.py" in python_files() and '"""' in text(folder / "__init__.py"))
    ]
    assert not faults, "\n".join(faults)


def test_nothing_names_the_place_where_it_was_written() -> None:
    """No committed text holds unfinished-work marks, machine paths or registry hosts."""
    faults = [fault for path in files() for fault in foreign_words(path, text(path))]
    assert not faults, "\n".join(faults[:50])


def test_names_and_words_are_told_with_their_replacement() -> None:
    """A bad name or word is found, and the message names what to do instead."""
    assert "by its subject" in faults_of_name(Path("agent/rackpower_agent/utils.py"))[0]
    assert "no packages" in faults_of_name(Path("agent/__init__.py"))[0]
    assert "tests/support" in faults_of_name(Path("tests/unit/__init__.py"))[0]
    assert faults_of_name(Path("agent/rackpower_agent/__init__.py")) == []
    assert "do it now" in foreign_words(Path("a.md"), "fine\n# TO" + "DO later\n")[0]
    assert foreign_words(Path("a.md"), "a pseudo-TO" + "DOs page at example.org/work/page") == []
