"""Whether a policy's wishes fit its limits, and what a new policy does to nodes of the old one. Pure.

The wish of a policy is that every node may boot: overhead and every GPU at its minimum, on every domain at once.
Explicit fallbacks are wishes too. Automatic fallbacks are not: they are computed to fit wherever minima do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from rackpower_common.errors import RackpowerError
from rackpower_common.model.identity import ClassName, DomainName, NodeName
from rackpower_common.model.policy import GpuClass, Node, Policy
from rackpower_common.policy.exact import loss_of, share_of, times_loss_w
from rackpower_common.policy.loaded import LoadedPolicy, Places
from rackpower_common.policy.names import fold
from rackpower_common.policy.problems import Place, Problem, Severity
from rackpower_common.quantity import format_power, quoted


class FitError(RackpowerError):
    """Watts were asked for of a policy with nodes that are not accounted for."""


def domain_loads_w(
    policy: Policy, node_gpu_sum_w: Mapping[NodeName, int], *, boot: bool = False
) -> Mapping[DomainName, int]:
    """Return what every domain carries when its nodes' GPUs draw so much.

    load(domain) = loss × (Σ share × load of its nodes + Σ load of its child domains + its own overhead), computed in
    exact fractions and rounded up once a domain; never below the true value, less than 1 W above it.

    Args:
        policy: The tree, with losses and overheads.
        node_gpu_sum_w: Whole watts of all GPUs of a node, for every node of the policy.
        boot: Count the larger of overhead and boot overhead for every node.

    Returns:
        Whole watts at each domain's input, in the policy's order.

    Raises:
        FitError: A node of the policy is missing: silence is not 0 W.
    """
    inside: dict[DomainName, Fraction] = {domain.name: Fraction(domain.overhead_w) for domain in policy.domains}
    for node in policy.nodes:
        if node.name not in node_gpu_sum_w:
            raise FitError(f"no watts are given for node {quoted(node.name)}", "count an unknown node at its maximum")
        load_w = _node_load(node, node_gpu_sum_w[node.name], boot)
        for feed in node.feeds:
            inside[feed.domain] += load_w * share_of(feed.share)
    loads: dict[DomainName, int] = {}
    for domain in reversed(policy.domains):  # parents come before their children
        load = inside[domain.name] * loss_of(domain.loss)
        loads[domain.name] = -(-load.numerator // load.denominator)
        if domain.parent is not None:
            inside[domain.parent] += load
    return {domain.name: loads[domain.name] for domain in policy.domains}


def node_load_w(node: Node, gpu_sum_w: int, *, boot: bool = False) -> int:
    """Return what a node draws at its input when its GPUs draw `gpu_sum_w`, whole watts, rounded up."""
    overhead_w = max(node.overhead_w, node.boot_overhead_w) if boot else node.overhead_w
    return times_loss_w(gpu_sum_w + overhead_w, loss_of(node.loss))


def minimum_gpu_sums_w(policy: Policy) -> Mapping[NodeName, int]:
    """Return Σ minimum cap of each node's GPUs, whole watts."""
    classes = _classes(policy)
    return {node.name: _sum_w(node, {name: item.min_cap_w for name, item in classes.items()}) for node in policy.nodes}


def maximum_gpu_sums_w(policy: Policy) -> Mapping[NodeName, int]:
    """Return Σ largest draw of each node's GPUs, whole watts: what counts where nothing is known."""
    classes = _classes(policy)
    most = {name: max(item.largest_draw_w, item.max_cap_w) for name, item in classes.items()}
    return {node.name: _sum_w(node, most) for node in policy.nodes}


def default_gpu_sums_w(policy: Policy) -> Mapping[NodeName, int]:
    """Return Σ default cap (nameplate) of each node's GPUs, whole watts."""
    classes = _classes(policy)
    return {
        node.name: _sum_w(node, {name: item.default_cap_w for name, item in classes.items()}) for node in policy.nodes
    }


def fallback_gpu_sums_w(policy: Policy) -> Mapping[NodeName, int]:
    """Return Σ fallback of each node's GPUs, whole watts; automatic ones count at their minimum."""
    classes = _classes(policy)
    falls = {
        name: item.min_cap_w if item.fallback_w is None else max(item.fallback_w, item.min_cap_w)
        for name, item in classes.items()
    }
    return {node.name: _sum_w(node, falls) for node in policy.nodes}


@dataclass(frozen=True, slots=True)
class Misfit:
    """A limit that a wish does not fit: `need_w` against `ceiling_w`; `path` names it as in `LoadedPolicy.places`."""

    path: tuple[str, ...]
    wish: str
    need_w: int
    ceiling_w: int
    headroom_w: int


def judge(new: LoadedPolicy | Policy, old: Policy | None) -> tuple[Problem, ...]:
    """Judge a policy that loaded without error against the one in force.

    Args:
        new: The new policy; a `LoadedPolicy` gives problems their place.
        old: The policy in force, None for none.

    Returns:
        Problems. An error refuses the new policy: a wish does not fit. It is a warning where an old domain or node
        asks for no more than before, so that only its limit is lower: that is never refused. Warnings also name the
        nodes that are dropped, renamed or moved: they keep their exposure where they were.
    """
    policy = new.policy if isinstance(new, LoadedPolicy) else new
    places = new.places if isinstance(new, LoadedPolicy) else {}
    problems = [_misfit_problem(misfit, old, places) for misfit in misfits(policy)]
    if old is not None:
        problems.extend(_left_nodes(policy, old, places))
    return tuple(problems)


def misfits(policy: Policy) -> tuple[Misfit, ...]:
    """Return every limit that the policy's wishes do not fit, boots first, then explicit fallbacks."""
    found = {misfit.path: misfit for misfit in _over(policy, "boot", minimum_gpu_sums_w(policy), boot=True)}
    for misfit in _over(policy, "fallback", fallback_gpu_sums_w(policy), boot=False):
        found.setdefault(misfit.path, misfit)
    return tuple(found.values())


def _over(policy: Policy, wish: str, sums_w: Mapping[NodeName, int], *, boot: bool) -> Iterable[Misfit]:
    loads_w = domain_loads_w(policy, sums_w, boot=boot)
    for domain in policy.domains:
        need_w = loads_w[domain.name]
        if need_w > domain.ceiling_w:
            path = ("domains", str(domain.name), "limit")
            yield Misfit(path, wish, need_w, domain.ceiling_w, domain.headroom_w)
    for node in policy.nodes:
        need_w = node_load_w(node, sums_w[node.name], boot=boot)
        if node.limit_w is not None and need_w > node.limit_w:
            yield Misfit(("nodes", str(node.name), "limit"), wish, need_w, node.limit_w, 0)


def _misfit_problem(misfit: Misfit, old: Policy | None, places: Places) -> Problem:
    section, name, _ = misfit.path
    what = f"{section.removesuffix('s')} {quoted(name)}"
    over_w = misfit.need_w - misfit.ceiling_w
    wished = "all GPUs at their minimum and every node's overhead" if misfit.wish == "boot" else "the fallbacks"
    below = f" (limit less {format_power(misfit.headroom_w)} headroom)" if misfit.headroom_w else ""
    message = (
        f"{what}: {wished} need {format_power(misfit.need_w)}, {format_power(over_w)} more than "
        f"{format_power(misfit.ceiling_w)}{below}"
    )
    only_lower = old is not None and _need_before(misfit, old) >= misfit.need_w
    if only_lower:
        hint = "everything goes as low as it can; then power nodes off, or raise the limit"
        hint = "fallbacks are scaled down to fit" if misfit.wish == "fallback" else hint
    elif misfit.wish == "fallback":
        hint = "write `fallback: auto`, or lower fallbacks"
    else:
        hint = f"raise the limit by {format_power(over_w)} or more, or take GPUs or nodes out"
        if old is not None and _limit_fell(misfit, old):
            hint += "; a lower limit alone is never refused: apply it first, by itself"
    place = places.get(misfit.path, Place(""))
    severity = Severity.WARNING if only_lower else Severity.ERROR
    return Problem(place.file, place.line, place.column, message, hint, severity)


def _need_before(misfit: Misfit, old: Policy) -> int:
    """Return what the same wish asked of the same limit's owner under the old policy, −1 if it had none."""
    section, name, _ = misfit.path
    boot = misfit.wish == "boot"
    sums_w = minimum_gpu_sums_w(old) if boot else fallback_gpu_sums_w(old)
    if section == "domains":
        return domain_loads_w(old, sums_w, boot=boot).get(DomainName(name), -1)
    for node in old.nodes:
        if node.name == name:
            return node_load_w(node, sums_w[node.name], boot=boot)
    return -1


def _limit_fell(misfit: Misfit, old: Policy) -> bool:
    """Whether the limit's owner is an old one with a lower limit."""
    section, name, _ = misfit.path
    if section == "domains":
        before = {domain.name: domain.ceiling_w for domain in old.domains}
        return before.get(DomainName(name), misfit.ceiling_w) > misfit.ceiling_w
    limits = {node.name: node.limit_w for node in old.nodes}
    return name in limits and (limits[NodeName(name)] is None or (limits[NodeName(name)] or 0) > misfit.ceiling_w)


def _left_nodes(policy: Policy, old: Policy, places: Places) -> Iterable[Problem]:
    """Name nodes that the new policy drops, renames or moves."""
    now = {node.name: node for node in policy.nodes}
    before = {node.name: node for node in old.nodes}
    new_chains, old_chains = _chains(policy), _chains(old)
    fresh = [node for node in policy.nodes if node.name not in before]
    moved = [
        name for name in now if name in before and _under(now[name], new_chains) != _under(before[name], old_chains)
    ]
    dropped: list[NodeName] = []
    renamed: list[tuple[NodeName, NodeName]] = []
    for name, node in before.items():
        if name in now:
            continue
        twin = next((other for other in fresh if (other.feeds, other.gpus) == (node.feeds, node.gpus)), None)
        if twin is None:
            dropped.append(name)
        else:
            fresh.remove(twin)
            renamed.append((name, twin.name))
    hint = "declare a node off, drain it or boot it again to free them"
    keep = "its exposure stays booked in its old domains"
    if dropped:
        yield Problem(
            "", 0, 0, f"{_nodes(dropped)} {_is(dropped)} no longer in the policy; {keep}", hint, Severity.WARNING
        )
    if renamed:
        old_names, new_names = fold(pair[0] for pair in renamed), fold(pair[1] for pair in renamed)
        place = places.get(("nodes", str(renamed[0][1])), Place(""))
        message = f"{old_names} may be renamed to {new_names}; {keep}, and it counts under the new name too"
        yield Problem(place.file, place.line, place.column, message, hint, Severity.WARNING)
    if moved:
        place = places.get(("nodes", str(moved[0]), "feeds"), Place(""))
        message = f"{_nodes(moved)} {_is(moved)} moved to other domains; {keep} and counts in the new ones too"
        yield Problem(place.file, place.line, place.column, message, hint, Severity.WARNING)


def _chains(policy: Policy) -> Mapping[DomainName, frozenset[DomainName]]:
    """Return every domain with itself and all domains above it."""
    chains: dict[DomainName, frozenset[DomainName]] = {}
    for domain in policy.domains:  # parents come before their children
        above = frozenset[DomainName]() if domain.parent is None else chains[domain.parent]
        chains[domain.name] = above | {domain.name}
    return chains


def _under(node: Node, chains: Mapping[DomainName, frozenset[DomainName]]) -> frozenset[DomainName]:
    return frozenset[DomainName]().union(*(chains[feed.domain] for feed in node.feeds))


def _classes(policy: Policy) -> Mapping[ClassName, GpuClass]:
    return {gpu_class.name: gpu_class for gpu_class in policy.classes}


def _sum_w(node: Node, each_w: Mapping[ClassName, int]) -> int:
    return sum(each_w[item.gpu_class] * item.count for item in node.gpus)


def _node_load(node: Node, gpu_sum_w: int, boot: bool) -> Fraction:
    overhead_w = max(node.overhead_w, node.boot_overhead_w) if boot else node.overhead_w
    return (gpu_sum_w + overhead_w) * loss_of(node.loss)


def _nodes(names: list[NodeName]) -> str:
    return f"{'node' if len(names) == 1 else f'{len(names)} nodes'} {fold(names)}"


def _is(names: list[NodeName]) -> str:
    return "is" if len(names) == 1 else "are"
