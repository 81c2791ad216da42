"""Several files to one tree: sections merge by name, and the same name in two files is an error that names both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rackpower_common.policy.problems import Findings, Place, did_you_mean, one_of
from rackpower_common.policy.spec import VERSION, PolicySpec
from rackpower_common.policy.tree import Entry, Mapping, Scalar, describe
from rackpower_common.quantity import quoted

SECTIONS = ("domains", "nodes", "classes")
SETTINGS = tuple(name for name in PolicySpec.model_fields if name not in SECTIONS)


@dataclass(slots=True)
class Merged:
    """All files as one: the sections' entries by name, and the settings. `broken` names sections that are unusable."""

    sections: dict[str, dict[str, Entry]] = field(default_factory=lambda: {name: {} for name in SECTIONS})
    settings: dict[str, Entry] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)


def merge(trees: Sequence[Mapping], findings: Findings) -> Merged:
    """Merge files; a file of another version is reported and left out."""
    merged = Merged()
    for tree in trees:
        if not _check_version(tree, findings):
            merged.broken.update(SECTIONS)
            continue
        for key, entry in tree.entries.items():
            if key in SECTIONS:
                _merge_section(key, entry, merged, findings)
            elif key == "timing" and isinstance(entry.value, Mapping):
                _merge_timing(entry, merged, findings)
            elif key == "version":
                merged.settings.setdefault(key, entry)
            elif key in SETTINGS:
                _put(merged.settings, key, entry, key, findings)
            else:
                known = [*SETTINGS, *SECTIONS]
                findings.error(
                    entry.place,
                    f"unknown key {quoted(key)} at the top of a policy",
                    did_you_mean(key, known, f"known keys: {one_of(known)}"),
                )
    return merged


def _check_version(tree: Mapping, findings: Findings) -> bool:
    entry = tree.entries.get("version")
    if entry is None:
        findings.error(tree.place, "the file lacks `version`", f"start it with `version: {VERSION}`")
        return True
    value = entry.value
    if isinstance(value, Scalar) and value.value == VERSION and not isinstance(value.value, bool):
        return True
    message = f"version {describe(value)} of the format is unknown"
    findings.error(value.place, message, f"this rackpower reads `version: {VERSION}`")
    return False


def _merge_section(section: str, entry: Entry, merged: Merged, findings: Findings) -> None:
    value = entry.value
    if isinstance(value, Scalar) and value.value is None:
        return
    if not isinstance(value, Mapping):
        hint = f"write `{section}:` and below it, indented, one name after the other, each with a `:`"
        findings.error(value.place, f"`{section}` is a mapping of names, not {describe(value)}", hint)
        merged.broken.add(section)
        return
    for name, item in value.entries.items():
        _put(merged.sections[section], name, item, f"{section}: {name}", findings)


def _merge_timing(entry: Entry, merged: Merged, findings: Findings) -> None:
    old = merged.settings.get("timing")
    if old is None or not isinstance(old.value, Mapping) or not isinstance(entry.value, Mapping):
        merged.settings["timing"] = entry
        return
    joined = dict(old.value.entries)
    for key, item in entry.value.entries.items():
        _put(joined, key, item, f"timing: {key}", findings)
    merged.settings["timing"] = Entry(old.place, Mapping(joined, old.value.place))


def _put(entries: dict[str, Entry], name: str, entry: Entry, what: str, findings: Findings) -> None:
    """Add an entry unless its name is taken; then both places are named."""
    first = entries.get(name)
    if first is None:
        entries[name] = entry
        return
    findings.error(entry.place, f"{quoted(what)} is already in {first.place}", "keep one of them")


def place_of(entry: Entry, *path: str) -> Place:
    """Return the place of the value at a path below an entry, else of the entry's key."""
    tree = entry.value
    for step in path:
        if not isinstance(tree, Mapping) or step not in tree.entries:
            return entry.place
        tree = tree.entries[step].value
    return tree.place
