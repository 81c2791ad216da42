"""From merged files to `model.policy.Policy`: references, shares, times; every problem with its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from rackpower_common.model.identity import ClassName, DomainName, NodeName, Revision
from rackpower_common.model.policy import Feed, GpuClass, Node, NodeGpus, Objective, Policy
from rackpower_common.policy.classes import compile_classes
from rackpower_common.policy.exact import loss_of, times_loss_w
from rackpower_common.policy.loaded import Places
from rackpower_common.policy.match import overlap
from rackpower_common.policy.merge import SETTINGS, Merged, place_of
from rackpower_common.policy.names import MAX_NODES, InvalidNameError, expand
from rackpower_common.policy.problems import Findings, Place, did_you_mean, one_of
from rackpower_common.policy.settings import compile_settings
from rackpower_common.policy.spec import MAX_GPUS_PER_NODE, NodeSpec
from rackpower_common.policy.tree import Entry, find
from rackpower_common.policy.tree_of_domains import PowerTree, compile_domains, loss
from rackpower_common.policy.validate import validate
from rackpower_common.quantity import format_power, format_share, quoted


@dataclass(slots=True)
class _Nodes:
    """Compiled nodes, and where each name was written first."""

    nodes: list[Node] = field(default_factory=list)
    written: dict[str, Entry] = field(default_factory=dict)


def compile_policy(merged: Merged, revision: Revision, findings: Findings) -> tuple[Policy, Places]:
    """Compile merged files.

    Args:
        merged: The files.
        revision: Digest of their content.
        findings: Where problems go; the policy may be used only when there is no error among them.

    Returns:
        The policy, and where its parts were written.
    """
    settings = compile_settings(merged, findings)
    tree = compile_domains(merged, settings.tracking_error, findings)
    classes = compile_classes(merged, settings.fallback, findings)
    found = _compile_nodes(merged, tree, classes, findings)
    used = {item.gpu_class for node in found.nodes for item in node.gpus}
    kept = tuple(
        gpu_class
        for name, gpu_class in classes.items()
        if gpu_class is not None and (name in merged.sections["classes"] or name in used)
    )
    _check_presence(merged, findings)
    _check_empty_domains(merged, tree, found.nodes, findings)
    _check_fallback(merged, settings.fallback, kept, findings)
    _warn_overlaps(merged, kept, findings)
    policy = Policy(
        revision=revision,
        domains=tree.domains,
        nodes=tuple(found.nodes),
        classes=kept,
        timing=settings.timing,
        objective=Objective(settings.objective),
        tracking_error=settings.tracking_error,
        dead_band_w=settings.dead_band_w,
        fallback_auto=any(gpu_class.fallback_w is None for gpu_class in kept),
    )
    return policy, _places(merged, found)


def _compile_nodes(
    merged: Merged, tree: PowerTree, classes: Mapping[str, GpuClass | None], findings: Findings
) -> _Nodes:
    found = _Nodes()
    for written, entry in merged.sections["nodes"].items():
        label = f"node {quoted(written)}"
        spec = validate(NodeSpec, entry.value, entry.place, label, findings)
        try:
            names = expand(written)
        except InvalidNameError as error:
            findings.error(entry.place, error.message, error.hint)
            continue
        for name in names:
            first = found.written.setdefault(name, entry)
            if first is not entry:
                findings.error(entry.place, f"node {quoted(name)} is already in {first.place}", "keep one of them")
        if len(found.written) > MAX_NODES:
            findings.error(entry.place, f"more than {MAX_NODES:,} nodes", "split the site over several controllers")
            break
        if spec is None:
            continue
        pattern = _compile_node(names[0], spec, entry, label, tree, classes, merged, findings)
        fresh = [name for name in names if found.written[name] is entry]
        found.nodes.extend(replace(pattern, name=NodeName(name)) for name in dict.fromkeys(fresh))
    return found


def _compile_node(
    name: str,
    spec: NodeSpec,
    entry: Entry,
    label: str,
    tree: PowerTree,
    classes: Mapping[str, GpuClass | None],
    merged: Merged,
    findings: Findings,
) -> Node:
    boot_overhead_w = spec.overhead if spec.boot_overhead is None else spec.boot_overhead
    node = Node(
        name=NodeName(name),
        feeds=_feeds(spec, entry, label, tree, merged, findings),
        gpus=_gpus(spec, entry, label, classes, merged, findings),
        overhead_w=spec.overhead,
        boot_overhead_w=boot_overhead_w,
        loss=loss(spec, entry, label, findings),
        priority=spec.priority,
        weight=float(spec.weight),
        limit_w=spec.limit,
        off=spec.off,
    )
    own_w = times_loss_w(max(node.overhead_w, boot_overhead_w), loss_of(node.loss))
    if node.limit_w is not None and own_w >= node.limit_w:
        message = f"{label}: limit {format_power(node.limit_w)} is not above its own overhead of {format_power(own_w)}"
        findings.error(place_of(entry, "limit"), message, "raise the limit or leave it out")
    return node


def _feeds(
    spec: NodeSpec, entry: Entry, label: str, tree: PowerTree, merged: Merged, findings: Findings
) -> tuple[Feed, ...]:
    """Check that feeds exist, stand in different trees and carry the whole load."""
    feeds: list[Feed] = []
    roots: dict[str, str] = {}
    total = Fraction(0)
    whole = True
    for index, feed in enumerate(spec.feeds):
        place = _item_place(entry, "feeds", index, "domain")
        if feed.domain not in tree.parents:
            if "domains" not in merged.broken:
                known = list(tree.parents)
                hint = did_you_mean(feed.domain, known, f"domains are {one_of(known)}" if known else "")
                findings.error(place, f"{label}: unknown domain {quoted(feed.domain)} in `feeds`", hint)
            whole = False
            continue
        root = tree.root(feed.domain)
        if root in roots:
            _report_same_tree(label, feed.domain, roots[root], root, place, findings)
            whole = False
        roots[root] = feed.domain
        if feed.share is None and len(spec.feeds) > 1:
            message = f"{label}: feed {quoted(feed.domain)} lacks `share`"
            findings.error(place, message, f"write `share: {format_share(1 / len(spec.feeds)).replace(' ', '')}`")
            whole = False
        share = Fraction(1) if feed.share is None else feed.share
        total += share
        feeds.append(Feed(DomainName(feed.domain), float(share)))
    if whole and abs(total - 1) > Fraction(1, 10_000):
        message = f"{label}: the shares of its feeds add up to {format_share(total)}, not 100 %"
        findings.error(place_of(entry, "feeds"), message, "the feeds together carry the node's whole load")
    return tuple(feeds)


def _report_same_tree(label: str, domain: str, other: str, root: str, place: Place, findings: Findings) -> None:
    if domain == other:
        findings.error(place, f"{label}: domain {quoted(domain)} feeds it twice", "name it once, with the whole share")
        return
    message = f"{label} has two parents in one tree: {quoted(other)} and {quoted(domain)} are both under {quoted(root)}"
    findings.error(place, message, "keep one; A/B feeds are trees of their own, each with its root")


def _gpus(
    spec: NodeSpec,
    entry: Entry,
    label: str,
    classes: Mapping[str, GpuClass | None],
    merged: Merged,
    findings: Findings,
) -> tuple[NodeGpus, ...]:
    """Check that classes exist and that there are no more GPUs than a report carries."""
    counts: dict[str, int] = {}
    for index, item in enumerate(spec.gpus):
        place = _item_place(entry, "gpus", index, "class")
        if item.gpu_class not in classes:
            if "classes" not in merged.broken:
                hint = did_you_mean(item.gpu_class, classes, f"classes are {one_of(classes)}")
                findings.error(place, f"{label}: unknown GPU class {quoted(item.gpu_class)}", hint)
            continue
        if item.gpu_class in counts:
            message = f"{label}: class {quoted(item.gpu_class)} is in `gpus` twice"
            findings.error(place, message, "write it once, with the whole count")
            continue
        counts[item.gpu_class] = item.count
    if sum(counts.values()) > MAX_GPUS_PER_NODE:
        message = f"{label} has {sum(counts.values())} GPUs, a node reports at most {MAX_GPUS_PER_NODE}"
        findings.error(place_of(entry, "gpus"), message, "check `count`")
    return tuple(NodeGpus(ClassName(name), count) for name, count in counts.items())


def _check_presence(merged: Merged, findings: Findings) -> None:
    """A policy without domains or nodes is a slip: everything would be refused."""
    version = merged.settings.get("version")
    for section, example in (("domains", "rack-1: {limit: 60 kW}"), ("nodes", "gpu-node-[01-09]: {…}")):
        if not merged.sections[section] and section not in merged.broken and version is not None:
            place = Place(version.place.file, 1, 1)
            findings.error(place, f"the policy describes no {section}", f"add `{section}:` with `{example}` below it")


def _check_empty_domains(merged: Merged, tree: PowerTree, nodes: list[Node], findings: Findings) -> None:
    fed = {name for node in nodes for feed in node.feeds for name in tree.chain(feed.domain)}
    if findings.failed:
        return
    for name, entry in merged.sections["domains"].items():
        if name not in fed:
            findings.warn(
                entry.place, f"domain {quoted(name)} feeds no node", "name it in a node's `feeds`, or remove it"
            )


def _check_fallback(merged: Merged, fallback: int | str, classes: tuple[GpuClass, ...], findings: Findings) -> None:
    """A fallback for all classes must be one that each of them can be capped to."""
    entry = merged.settings.get("fallback")
    if entry is None or isinstance(fallback, str):
        return
    for gpu_class in classes:
        own = merged.sections["classes"].get(gpu_class.name)
        if own is not None and place_of(own, "fallback") != own.place:
            continue
        if not gpu_class.min_cap_w <= fallback <= gpu_class.max_cap_w:
            span = f"{format_power(gpu_class.min_cap_w)} to {format_power(gpu_class.max_cap_w)}"
            message = f"`fallback` {format_power(fallback)} is outside class {quoted(gpu_class.name)}: {span}"
            hint = f"write `auto`, or `classes: {{{gpu_class.name}: {{fallback: …}}}}`"
            findings.error(entry.value.place, message, hint)


def _warn_overlaps(merged: Merged, classes: tuple[GpuClass, ...], findings: Findings) -> None:
    for index, later in enumerate(classes):
        for earlier in classes[:index]:
            patterns = overlap(earlier, later)
            if patterns is None:
                continue
            names = (later.name, earlier.name)
            entry = next(merged.sections["classes"][name] for name in names if name in merged.sections["classes"])
            one, other = (quoted(pattern) for pattern in patterns)
            message = (
                f"one model may match two classes: {one} of {quoted(earlier.name)} and {other} of {quoted(later.name)}"
            )
            hint = f"{quoted(earlier.name)} is used where a node names neither; make `models` narrower"
            findings.warn(place_of(entry, "models"), message, hint)


def _item_place(entry: Entry, key: str, index: int, field_name: str) -> Place:
    """Return the place of a list item's field, however short the list was written."""
    for path in ((key, index, field_name), (key, field_name), (key, index), (key,)):
        tree, _, whole = find(entry.value, path)
        if whole:
            return tree.place
    return entry.place


def _places(merged: Merged, found: _Nodes) -> Places:
    places: dict[tuple[str, ...], Place] = {}
    for name, entry in merged.sections["domains"].items():
        places["domains", name] = entry.place
        places["domains", name, "limit"] = place_of(entry, "limit")
        places["domains", name, "parent"] = place_of(entry, "parent")
    for name, entry in found.written.items():
        places["nodes", name] = entry.place
        places["nodes", name, "limit"] = place_of(entry, "limit")
        places["nodes", name, "feeds"] = place_of(entry, "feeds")
    for name, entry in merged.sections["classes"].items():
        places["classes", name] = entry.place
    for name in SETTINGS:
        if name in merged.settings:
            places[(name,)] = merged.settings[name].place
    return places
