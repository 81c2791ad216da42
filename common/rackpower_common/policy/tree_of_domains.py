"""The power tree: domains compiled, parents found, cycles refused, parents before children."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from rackpower_common.model.identity import DomainName
from rackpower_common.model.policy import Domain
from rackpower_common.policy.exact import loss_of, times_loss_w
from rackpower_common.policy.merge import Merged, place_of
from rackpower_common.policy.names import InvalidNameError, check_name
from rackpower_common.policy.problems import Findings, did_you_mean, one_of
from rackpower_common.policy.spec import DomainSpec, NodeSpec
from rackpower_common.policy.tree import Entry, Scalar, find
from rackpower_common.policy.validate import validate
from rackpower_common.quantity import format_power, format_share, quoted

MAX_DOMAINS: Final = 10_000
MAX_TREE_DEPTH: Final = 32


@dataclass(slots=True)
class PowerTree:
    """Compiled domains. `parents` has every name that was written, with None for roots and for broken parents.

    `domains` holds those without an error, parents before children, siblings in the order of the files.
    """

    domains: tuple[Domain, ...] = ()
    parents: dict[str, str | None] = field(default_factory=dict)

    def chain(self, name: str) -> tuple[str, ...]:
        """Return a domain and everything above it, root last; cycles were cut."""
        chain: list[str] = []
        at: str | None = name
        while at is not None and at not in chain:
            chain.append(at)
            at = self.parents.get(at)
        return tuple(chain)

    def root(self, name: str) -> str:
        """Return the root of a domain's tree."""
        return self.chain(name)[-1]


def compile_domains(merged: Merged, tracking_error: float, findings: Findings) -> PowerTree:
    """Compile all domains; every problem is noted and the rest goes on."""
    entries = merged.sections["domains"]
    tree = PowerTree()
    compiled: dict[str, Domain] = {}
    for name, entry in entries.items():
        if len(tree.parents) == MAX_DOMAINS:
            findings.error(entry.place, f"more than {MAX_DOMAINS:,} domains", "split the site over several controllers")
            break
        tree.parents[name] = _written_parent(entry, merged)
        spec = validate(DomainSpec, entry.value, entry.place, f"domain {quoted(name)}", findings)
        try:
            check_name(name)
        except InvalidNameError as error:
            hint = "ranges are for nodes only" if "[" in name else error.hint
            findings.error(entry.place, error.message, hint)
            continue
        if spec is None:
            continue
        tree.parents[name] = _parent(name, spec, entry, merged, findings)
        domain = _compile_domain(name, spec, entry, tree.parents[name], tracking_error, findings)
        if domain is not None:
            compiled[name] = domain
    _cut_cycles(tree, entries, findings)
    order = _parents_first(tree)
    tree.domains = tuple(compiled[name] for name in order if name in compiled)
    return tree


def loss(spec: DomainSpec | NodeSpec, entry: Entry, label: str, findings: Findings) -> float:
    """Return input over output from either way of writing it; both at once is an error."""
    if spec.loss is not None and spec.psu_efficiency is not None:
        message = f"{label} has both `loss` and `psu_efficiency`"
        findings.error(place_of(entry, "loss"), message, "keep one: `psu_efficiency: 94%` is `loss: 1.0638`")
    if spec.psu_efficiency is not None:
        return float(1 / spec.psu_efficiency)
    return 1.0 if spec.loss is None else float(spec.loss)


def _written_parent(entry: Entry, merged: Merged) -> str | None:
    """Return the parent of a domain that may be wrong otherwise, so that cycles are seen all the same."""
    found, _, whole = find(entry.value, ("parent",))
    parent = found.text if whole and isinstance(found, Scalar) else None
    return parent if parent in merged.sections["domains"] else None


def _parent(name: str, spec: DomainSpec, entry: Entry, merged: Merged, findings: Findings) -> str | None:
    """Return a domain's parent if there is such a domain."""
    if spec.parent is None:
        return None
    others = [other for other in merged.sections["domains"] if other != name]
    place = place_of(entry, "parent")
    if spec.parent == name:
        findings.error(place, f"domain {quoted(name)} is its own parent", "leave `parent` out for a root")
        return None
    if spec.parent in merged.sections["domains"]:
        return spec.parent
    if "domains" not in merged.broken:
        hint = did_you_mean(
            spec.parent, others, f"domains are {one_of(others)}" if others else "there is no other domain"
        )
        findings.error(place, f"domain {quoted(name)}: unknown parent {quoted(spec.parent)}", hint)
    return None


def _compile_domain(
    name: str, spec: DomainSpec, entry: Entry, parent: str | None, tracking_error: float, findings: Findings
) -> Domain | None:
    label = f"domain {quoted(name)}"
    headroom_w = spec.headroom.of(spec.limit)
    domain = Domain(
        name=DomainName(name),
        parent=None if parent is None else DomainName(parent),
        kind=spec.kind,
        limit_w=spec.limit,
        headroom_w=headroom_w,
        overhead_w=spec.overhead,
        loss=loss(spec, entry, label, findings),
    )
    own_w = times_loss_w(spec.overhead, loss_of(domain.loss))
    ceiling = f"limit {format_power(spec.limit)} less headroom {format_power(headroom_w)}"
    if domain.ceiling_w <= 0:
        findings.error(
            place_of(entry, "limit"), f"{label}: {ceiling} leaves nothing", "raise the limit or lower the headroom"
        )
    elif own_w > domain.ceiling_w:
        message = f"{label}: {ceiling} is below its own overhead of {format_power(own_w)}"
        findings.error(place_of(entry, "limit"), message, f"write at least {format_power(_least_limit_w(spec, own_w))}")
    elif headroom_w < tracking_error * (domain.ceiling_w - own_w) * 0.999:
        place = place_of(entry, "headroom")
        short = f"headroom {format_power(headroom_w)} is less than the tracking error"
        message = f"{label}: {short} of {format_share(tracking_error)}"
        findings.warn(place, message, "a steady draw may pass the limit by the difference")
    return domain


def _least_limit_w(spec: DomainSpec, own_w: int) -> int:
    """Return the lowest limit that leaves `own_w` below the headroom."""
    limit_w = math.floor(own_w / (1 - (spec.headroom.share or 0)))
    while limit_w - spec.headroom.of(limit_w) < own_w:
        limit_w += 1 if spec.headroom.power_w is None else spec.headroom.power_w
    return limit_w


def _cut_cycles(tree: PowerTree, entries: dict[str, Entry], findings: Findings) -> None:
    """Report each cycle once and cut it at the domain that was written first."""
    done: set[str] = set()
    for start in tree.parents:
        path: list[str] = []
        at: str | None = start
        while at is not None and at not in done and at not in path:
            path.append(at)
            at = tree.parents[at]
        if at is not None and at in path:
            cycle = path[path.index(at) :]
            arrows = " → ".join(quoted(name) for name in [*cycle, cycle[0]])
            findings.error(
                place_of(entries[cycle[0]], "parent"), f"domains are in a cycle: {arrows}", "one must be a root"
            )
            tree.parents[cycle[0]] = None
        elif len(path) > MAX_TREE_DEPTH:
            message = f"domain {quoted(start)} is more than {MAX_TREE_DEPTH} levels deep"
            findings.error(entries[start].place, message, "flatten the tree")
        done.update(path)


def _parents_first(tree: PowerTree) -> list[str]:
    """Return names with each parent before its children and children in the order of the files."""
    children: dict[str | None, list[str]] = {}
    for name, parent in tree.parents.items():
        children.setdefault(parent, []).append(name)
    order: list[str] = []
    waiting = list(reversed(children.get(None, [])))
    while waiting:
        name = waiting.pop()
        order.append(name)
        waiting.extend(reversed(children.get(name, [])))
    return order
