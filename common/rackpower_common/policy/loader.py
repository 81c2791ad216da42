"""Files in, a compiled policy out: the one door for `rackctl`, the controller's folder and the wire."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from rackpower_common.model.identity import Revision
from rackpower_common.policy.compile import compile_policy
from rackpower_common.policy.loaded import LoadedPolicy
from rackpower_common.policy.merge import merge
from rackpower_common.policy.problems import Findings, Place, PolicyError
from rackpower_common.policy.tree import MAX_FILE_BYTES, parse

MAX_FILES: Final = 256
SUFFIXES: Final = (".yaml", ".yml")


def load(paths: Sequence[Path]) -> LoadedPolicy:
    """Read, merge, check and compile policy files.

    Args:
        paths: Files, and folders of which every `*.yaml` and `*.yml` is read, sorted by name.

    Returns:
        The policy, with warnings.

    Raises:
        PolicyError: A file cannot be read, or the policy is wrong; holds every problem that was found.
    """
    findings = Findings()
    files: list[tuple[str, bytes]] = []
    for path in _files(paths, findings):
        try:
            with path.open("rb") as file:
                files.append((str(path), file.read(MAX_FILE_BYTES + 1)))
        except OSError as error:
            findings.error(Place(str(path)), f"the file cannot be read: {error.strerror or error}", "")
    if findings.failed:
        raise PolicyError(findings.in_order())
    return load_files(files)


def load_files(files: Sequence[tuple[str, bytes]], author: str = "") -> LoadedPolicy:
    """Merge, check and compile policy files that are at hand.

    Args:
        files: Names and bytes, in the order in which they merge.
        author: Who gives them, kept in the answer.

    Returns:
        The policy, with warnings.

    Raises:
        PolicyError: The policy is wrong; holds every problem that was found.
    """
    findings = Findings()
    kept = tuple((name, content) for name, content in files)
    _check_files(kept, findings)
    trees = [parse(name, content, findings) for name, content in kept] if not findings.failed else []
    merged = merge([tree for tree in trees if tree is not None], findings)
    if any(tree is None for tree in trees):
        merged.broken.update(merged.sections)
    policy, places = compile_policy(merged, revision_of(kept), findings)
    if findings.failed:
        raise PolicyError(findings.in_order())
    return LoadedPolicy(policy, findings.in_order(), kept, places, author)


def revision_of(files: Iterable[tuple[str, bytes]]) -> Revision:
    """Return the revision of a policy: a digest of its files' bytes in order, whatever their names."""
    digest = hashlib.sha256()
    for _, content in files:
        digest.update(len(content).to_bytes(8, "big"))
        digest.update(content)
    return Revision(digest.hexdigest()[:12])


def _check_files(files: tuple[tuple[str, bytes], ...], findings: Findings) -> None:
    if not files:
        findings.error(Place(""), "no policy file is given", "name a file, or a folder with `*.yaml` in it")
    if len(files) > MAX_FILES:
        findings.error(Place(""), f"{len(files)} files, at most {MAX_FILES} are read", "put more into one file")
    size = sum(len(content) for _, content in files)
    if len(files) > 1 and size > MAX_FILE_BYTES:
        findings.error(Place(""), f"the files have {size:,} bytes, at most {MAX_FILE_BYTES:,} are read", "use ranges")


def _files(paths: Sequence[Path], findings: Findings) -> list[Path]:
    """Return the files that paths stand for; a folder without any is an error."""
    files: list[Path] = []
    for path in paths:
        try:
            if not path.is_dir():
                files.append(path)
                continue
            inside = sorted(
                item for item in path.iterdir() if item.suffix in SUFFIXES and not item.name.startswith(".")
            )
        except OSError as error:
            findings.error(Place(str(path)), f"the folder cannot be read: {error.strerror or error}", "")
            continue
        if not inside:
            findings.error(Place(str(path)), "the folder holds no policy file", "policy files end in `.yaml` or `.yml`")
        files.extend(inside[: MAX_FILES + 1])
    return list(dict.fromkeys(files))
