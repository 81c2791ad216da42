"""The store as controllers see it: terms by compare-and-set, records at one's own term only."""

from __future__ import annotations

from rackpower_common.model.identity import GpuId, NodeName, Term
from rackpower_common.model.policy import Policy


class Store:
    """A store that may be down, or come back empty."""

    def __init__(self) -> None:
        self.up = True
        self.term = Term(0, "")
        self.exposures_w: dict[GpuId, int] = {}
        self.nodes: dict[GpuId, NodeName] = {}
        self.former = ""
        self.policy: Policy | None = None

    def take_term(self, instance: str, above: int) -> Term | None:
        """Hand out the next term, None while down."""
        if not self.up:
            return None
        self.term = Term(max(self.term.number, above) + 1, instance)
        return self.term

    def record(
        self, term: Term, exposures_w: dict[GpuId, int], nodes: dict[GpuId, NodeName], former: str, policy: Policy
    ) -> bool:
        """Record exposures at the writer's own term; False when it is not the newest, or the store is down."""
        if not self.up or term != self.term:
            return False
        self.exposures_w |= exposures_w
        self.nodes |= nodes
        self.former, self.policy = former, policy
        return True

    def lose_everything(self) -> None:
        """Come back empty, terms included: agents remember the highest."""
        self.term = Term(0, "")
        self.exposures_w = {}
        self.former, self.policy = "", None
        self.nodes = {}
