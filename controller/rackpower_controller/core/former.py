"""Former places of nodes as a text for the store: a controller that starts anew must go on counting them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rackpower_common.errors import RackpowerError
from rackpower_common.model.identity import ClassName, DomainName, NodeName
from rackpower_common.model.policy import Feed, Node, NodeGpus
from rackpower_controller.core.state import RackState


class FormerError(RackpowerError):
    """A recorded text that nobody of us wrote."""


@dataclass(frozen=True, slots=True)
class Former:
    """What a policy dropped or moved: places, watts of GPUs never listed, and the boot that ends it when it changes."""

    places: Mapping[NodeName, tuple[Node, ...]] = field(default_factory=dict)
    absent_w: Mapping[NodeName, int] = field(default_factory=dict)
    boot_ids: Mapping[NodeName, str] = field(default_factory=dict)


def former_text(state: RackState) -> str:
    """Return the former places of a state as JSON, empty when there are none."""
    if not state.former_nodes:
        return ""
    entries = {}
    for name, places in sorted(state.former_nodes.items()):
        book = state.nodes.get(name)
        entries[name] = {
            "boot_id": book.placed_boot_id if book is not None else "",
            "absent_w": state.former_absent_w.get(name, 0),
            "places": [asdict(place) for place in places],
        }
    return json.dumps(entries, sort_keys=True)


def former_from_text(text: str) -> Former:
    """Return what `former_text` wrote.

    Raises:
        FormerError: The text is something else.
    """
    if not text:
        return Former()
    try:
        entries = json.loads(text)
        return Former(
            places={NodeName(name): tuple(map(_node, entry["places"])) for name, entry in entries.items()},
            absent_w={NodeName(name): int(entry["absent_w"]) for name, entry in entries.items()},
            boot_ids={NodeName(name): str(entry["boot_id"]) for name, entry in entries.items()},
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise FormerError(f"the store's record of former places is unreadable: {why}") from error


def _node(fields: dict[str, Any]) -> Node:
    feeds = tuple(Feed(DomainName(feed["domain"]), float(feed["share"])) for feed in fields["feeds"])
    gpus = tuple(NodeGpus(ClassName(one["gpu_class"]), int(one["count"])) for one in fields["gpus"])
    return Node(**{**fields, "feeds": feeds, "gpus": gpus})
