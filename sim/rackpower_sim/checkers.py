"""What must hold in the true world, judged without asking the code under test.

Sums what the hardware could draw, by the policy's own tree, and compares it with the limits that bind. Shares no
code with the product's core.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rackpower_common.model.policy import Domain, Node, Policy


@dataclass(frozen=True, slots=True)
class Excess:
    """A domain whose hardware could draw more than its limit."""

    at_s: float
    domain: str
    could_draw_w: float
    limit_w: int


@dataclass(slots=True)
class BudgetChecker:
    """Compares truth with limits at every instant. A limit that was lowered binds from its deadline."""

    policy: Policy
    grace_s: float
    excesses: list[Excess] = field(default_factory=list)
    highest_share: float = 0.0
    _limits: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    def policy_changed(self, policy: Policy, now_s: float) -> None:
        """Note new limits: a higher one binds at once, a lower one after the grace."""
        for domain in policy.domains:
            before = self.limit_w(domain.name, now_s, domain.limit_w)
            if domain.limit_w < before:
                self._limits.setdefault(domain.name, []).append((now_s + self.grace_s, before))
        self.policy = policy

    def limit_w(self, name: str, now_s: float, otherwise_w: int) -> int:
        """Return the limit that binds now."""
        pending = [limit_w for until_s, limit_w in self._limits.get(name, []) if now_s < until_s]
        current = next((domain.limit_w for domain in self.policy.domains if domain.name == name), otherwise_w)
        return max([current, *pending])

    def look(self, now_s: float, nodes_w: Mapping[str, float], places: Iterable[Node]) -> None:
        """Judge one instant; `nodes_w` is what each node's GPUs could draw, `places` where the nodes truly hang."""
        draws = {domain.name: 0.0 for domain in self.policy.domains}
        for spec in places:
            load_w = spec.loss * (nodes_w.get(spec.name, 0.0) + spec.overhead_w)
            for feed in spec.feeds:
                draws[feed.domain] += load_w * feed.share
        for domain in self._leaves_first():
            total_w = domain.loss * (draws[domain.name] + domain.overhead_w)
            if domain.parent is not None:
                draws[domain.parent] += total_w
            limit_w = self.limit_w(domain.name, now_s, domain.limit_w)
            self.highest_share = max(self.highest_share, total_w / limit_w)
            if total_w > limit_w + 1e-6:
                self.excesses.append(Excess(now_s, domain.name, total_w, limit_w))

    def _leaves_first(self) -> list[Domain]:
        by_name = {domain.name: domain for domain in self.policy.domains}

        def depth(domain: Domain) -> int:
            return 0 if domain.parent is None else 1 + depth(by_name[domain.parent])

        return sorted(self.policy.domains, key=depth, reverse=True)
