"""Whether a policy's wishes fit its limits, and what a new policy may not do unseen. Pure.

The wish of a policy is that every node may boot: overhead and every GPU at its minimum, on every domain at once.
Explicit fallbacks are wishes too. Automatic fallbacks are not: they are computed to fit wherever minima do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rackpower_common.model.policy import Policy
from rackpower_common.policy.changes import left_nodes
from rackpower_common.policy.loaded import LoadedPolicy, Places
from rackpower_common.policy.loads import (
    domain_loads_w,
    fallback_gpu_sums_w,
    minimum_gpu_sums_w,
    node_load_w,
)
from rackpower_common.policy.names import nodes_named
from rackpower_common.policy.problems import Place, Problem, Severity
from rackpower_common.quantity import format_power, quoted

__all__ = ["Misfit", "domain_loads_w", "judge", "misfits"]

WISHES = ("boot", "fallback")
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Misfit:
    """A limit that a wish does not fit: `need_w` against `ceiling_w`; `path` names it as in `LoadedPolicy.places`.

    `need_before_w` is what the same wish asked under the policy in force, None where its owner is new.
    `ceiling_before_w` is the ceiling then, None for none. `alike` are further nodes with the same limit and need.
    """

    path: Path
    wish: str
    need_w: int
    ceiling_w: int
    headroom_w: int
    need_before_w: int | None = None
    ceiling_before_w: int | None = None
    alike: tuple[str, ...] = ()

    @property
    def only_lower(self) -> bool:
        """Whether no more is asked than before, so that only the limit is lower: that is never refused."""
        return self.need_before_w is not None and self.need_before_w >= self.need_w


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
    problems = [_problem(misfit, places) for misfit in _alike_joined(misfits(policy, old), places)]
    if old is not None:
        problems.extend(left_nodes(policy, old, places))
    return tuple(problems)


def misfits(policy: Policy, old: Policy | None = None) -> tuple[Misfit, ...]:
    """Return every limit that the policy's wishes do not fit: where the boot reserve does, the fallbacks may not."""
    found: dict[Path, Misfit] = {}
    headrooms_w = {_domain_path(domain.name): domain.headroom_w for domain in policy.domains}
    ceilings_w, before_w = _ceilings_w(policy), _ceilings_w(old) if old else {}
    for wish in WISHES:
        needs_before_w = _needs_w(old, wish) if old else {}
        for path, need_w in _needs_w(policy, wish).items():
            ceiling_w = ceilings_w.get(path)
            if ceiling_w is not None and need_w > ceiling_w and path not in found:
                found[path] = Misfit(
                    path=path,
                    wish=wish,
                    need_w=need_w,
                    ceiling_w=ceiling_w,
                    headroom_w=headrooms_w.get(path, 0),
                    need_before_w=needs_before_w.get(path),
                    ceiling_before_w=before_w.get(path),
                )
    return tuple(found.values())


def _domain_path(name: str) -> Path:
    return ("domains", str(name), "limit")


def _node_path(name: str) -> Path:
    return ("nodes", str(name), "limit")


def _ceilings_w(policy: Policy) -> Mapping[Path, int]:
    """Return what may be drawn, by path; nodes without a limit are left out."""
    domains = {_domain_path(domain.name): domain.ceiling_w for domain in policy.domains}
    return domains | {_node_path(node.name): node.limit_w for node in policy.nodes if node.limit_w is not None}


def _needs_w(policy: Policy, wish: str) -> Mapping[Path, int]:
    """Return what a wish asks of every domain and node, by path."""
    sums_w = minimum_gpu_sums_w(policy) if wish == "boot" else fallback_gpu_sums_w(policy)
    loads_w = domain_loads_w(policy, sums_w, boot=True)
    domains = {_domain_path(name): load_w for name, load_w in loads_w.items()}
    return domains | {_node_path(node.name): node_load_w(node, sums_w[node.name], boot=True) for node in policy.nodes}


def _alike_joined(found: Iterable[Misfit], places: Places) -> Iterable[Misfit]:
    """Join nodes that were written in one place, or that nothing tells apart, into one misfit."""
    joined: dict[object, Misfit] = {}
    for misfit in found:
        alike = (misfit.wish, misfit.need_w, misfit.ceiling_w, places.get(misfit.path), misfit.only_lower)
        key: object = misfit.path if misfit.path[0] == "domains" else alike
        first = joined.get(key)
        joined[key] = misfit if first is None else replace(first, alike=(*first.alike, misfit.path[1]))
    return joined.values()


def _problem(misfit: Misfit, places: Places) -> Problem:
    section, name, _ = misfit.path
    what = f"domain {quoted(name)}" if section == "domains" else nodes_named([name, *misfit.alike])
    over_w = misfit.need_w - misfit.ceiling_w
    wished = "all GPUs at their minimum and the overhead" if misfit.wish == "boot" else "the fallbacks"
    below = f" (limit less {format_power(misfit.headroom_w)} headroom)" if misfit.headroom_w else ""
    message = (
        f"{what}: {wished} need {format_power(misfit.need_w)}{' each' if misfit.alike else ''}, "
        f"{format_power(over_w)} more than {format_power(misfit.ceiling_w)}{below}"
    )
    place = places.get(misfit.path, Place(""))
    severity = Severity.WARNING if misfit.only_lower else Severity.ERROR
    return Problem(place.file, place.line, place.column, message, _hint(misfit, over_w), severity)


def _hint(misfit: Misfit, over_w: int) -> str:
    if misfit.only_lower:
        if misfit.wish == "fallback":
            return "the fallbacks are scaled down to fit"
        return "everything goes as low as it can; then power nodes off, or raise the limit"
    if misfit.wish == "fallback":
        return "write `fallback: auto`, or lower fallbacks"
    raise_w = over_w * (misfit.ceiling_w + misfit.headroom_w) // misfit.ceiling_w + 1  # a share of it is headroom
    hint = f"raise the limit by {format_power(raise_w)} or more, or take GPUs or nodes out"
    if misfit.ceiling_before_w is not None and misfit.ceiling_before_w > misfit.ceiling_w:
        hint += "; a lower limit alone is never refused: apply it first, by itself"
    return hint
