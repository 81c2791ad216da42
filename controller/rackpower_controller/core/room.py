"""Whether raises fit: the ledger's own sum, after all of them, under every ceiling (invariant 1)."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from rackpower_common.errors import invariant
from rackpower_common.model.identity import DomainName, GpuId, NodeName
from rackpower_common.model.messages import Grant
from rackpower_controller.core.ledger import Account, domain_loads_w, node_load_w
from rackpower_controller.core.state import RackState


@dataclass(frozen=True, slots=True)
class Raise:
    """A grant that raises a cap by `by_w`; the GPU counts at `exposure_w` from before it is sent."""

    grant: Grant
    by_w: int
    exposure_w: int


def fitting(state: RackState, books: Account, chosen: dict[GpuId, Raise]) -> dict[GpuId, Raise]:
    """Return the raises, less those that a rounding would carry over a ceiling; then the whole must fit."""
    while chosen:
        over = _overfull(state, books, chosen)
        if not over:
            break
        smallest = min(chosen, key=lambda gpu: (not _under(state, books, gpu, over), chosen[gpu].by_w, gpu))
        if not _under(state, books, smallest, over):
            break
        del chosen[smallest]
    over = _overfull(state, books, chosen)
    invariant(not over, 1, f"raises would carry {', '.join(sorted(over))} over its ceiling")
    return chosen


def _under(state: RackState, books: Account, gpu: GpuId, over: AbstractSet[str]) -> bool:
    return state.gpus[gpu].node in over or not books.carriers(gpu, state).isdisjoint(over)


def _overfull(state: RackState, books: Account, chosen: Mapping[GpuId, Raise]) -> set[str]:
    """Return the domains and nodes above a raise that would stand over their ceiling, by the ledger's own sum."""
    more_w: dict[NodeName, int] = {}
    for gpu, one in chosen.items():
        name = state.gpus[gpu].node
        more_w[name] = more_w.get(name, 0) + one.exposure_w - books.exposures_w[gpu]
    on_domains_w: dict[DomainName, float] = {}
    touched: set[str] = set()
    for name, node in books.nodes.items():
        spec = books.index.nodes.get(name)
        gpus_w = node.gpus_w + more_w.get(name, 0)
        limit_w = spec.limit_w if spec is not None and more_w.get(name, 0) > 0 else None
        if spec is not None and limit_w is not None and node_load_w(spec, gpus_w, node.beside_w) > limit_w:
            touched.add(name)
        for place in books.places(name, state):
            load_w = node_load_w(place, gpus_w, node.beside_w)
            for feed in place.feeds:
                if feed.domain in books.index.domains:
                    on_domains_w[feed.domain] = on_domains_w.get(feed.domain, 0.0) + load_w * feed.share
    growing = [gpu for gpu, one in chosen.items() if one.exposure_w > books.exposures_w[gpu]]
    loads_w = domain_loads_w(books.index, on_domains_w)
    for place_name, domain in books.index.domains.items():
        meter = state.meters.get(place_name)
        load_w = loads_w[place_name] + (meter.extra_w if meter is not None else 0)
        if load_w > domain.ceiling_w and any(_under(state, books, gpu, {place_name}) for gpu in growing):
            touched.add(place_name)
    return touched
