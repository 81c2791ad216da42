"""Faults by seed: what software must make harmless."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from rackpower_common.model.identity import DomainName, NodeName, Revision
from rackpower_common.model.policy import Feed, Node
from rackpower_sim.world.rack import Fault, World, with_limits

STOP_FAULTS_S = 75.0
"""After this nothing new goes wrong, and liveness is judged."""

CUT_S = STOP_FAULTS_S + 25.0
"""When half of the seeds cut every limit, every node reachable: what silent nodes make unmeetable is not ours."""

END_S = CUT_S + 25.0
"""When the run ends."""


def schedule(seed: int, world: World) -> list[tuple[float, str, Fault]]:
    """Return a seed's faults, in time order, each with words for the timeline."""
    random = Random(seed * 7919 + 1)
    names = list(world.agents)
    faults: list[tuple[float, str, Fault]] = []
    for _ in range(random.randint(2, 7)):
        at_s = random.uniform(8.0, STOP_FAULTS_S - 25.0)
        faults += random.choice(_KINDS)(random, at_s, names)
    faults.append((STOP_FAULTS_S, "everything is mended", _mend))
    if random.random() < 0.5:
        factor = random.choice([0.75, 0.85])
        faults.append((CUT_S, f"limits times {factor}", _limits_times(factor, CUT_S)))
    return sorted(faults, key=lambda fault: fault[0])


def _mend(world: World) -> None:
    world.network.cut_to_agent.clear()
    world.network.cut_to_controller.clear()
    world.store.up = True
    _nodes_back(world)
    for agent in world.agents.values():
        agent.start()
        agent.former_writer_gone()
    for other in world.controllers[1:]:
        other.retired = True
        other.kill()
    world.controllers[0].start()


def _agent_restarts(random: Random, at_s: float, names: list[str]) -> list[tuple[float, str, Fault]]:
    name, down_s = random.choice(names), random.choice([0.3, 4.0, 25.0])
    return [
        (at_s, f"agent of {name} killed", lambda world: world.agents[name].kill()),
        (at_s + down_s, f"agent of {name} starts", lambda world: world.agents[name].start()),
        (at_s + down_s + 7.0, f"old agent of {name} gone", lambda world: world.agents[name].former_writer_gone()),
    ]


def _journal_lost(random: Random, at_s: float, names: list[str]) -> list[tuple[float, str, Fault]]:
    name = random.choice(names)

    def lose(world: World) -> None:
        world.agents[name].kill()
        world.agents[name].disk = None

    return [
        (at_s, f"agent of {name} killed, its journal lost", lose),
        (at_s + random.uniform(7.0, 9.0), f"agent of {name} starts", lambda world: world.agents[name].start()),
    ]


def _reboot(random: Random, at_s: float, names: list[str]) -> list[tuple[float, str, Fault]]:
    name = random.choice(names)

    return [
        (at_s, f"{name} loses power and boots", lambda world: world.power_cycle(NodeName(name))),
        (at_s + random.uniform(3.0, 20.0), f"agent of {name} starts", lambda world: world.agents[name].start()),
    ]


def _cut(random: Random, at_s: float, names: list[str]) -> list[tuple[float, str, Fault]]:
    some = random.sample(names, random.randint(1, len(names)))
    one_way = random.choice(["both", "to agents", "to controller"])

    def cut(world: World) -> None:
        if one_way != "to controller":
            world.network.cut_to_agent.update(some)
        if one_way != "to agents":
            world.network.cut_to_controller.update(some)

    def heal(world: World) -> None:
        world.network.cut_to_agent.difference_update(some)
        world.network.cut_to_controller.difference_update(some)

    return [
        (at_s, f"network of {', '.join(some)} cut, {one_way}", cut),
        (at_s + random.uniform(1.0, 22.0), f"network of {', '.join(some)} back", heal),
    ]


def _controller_restarts(random: Random, at_s: float, names: list[str]) -> list[tuple[float, str, Fault]]:
    del names
    return [
        (at_s, "controller-0 killed", lambda world: world.controllers[0].kill()),
        (at_s + random.choice([0.5, 3.0, 20.0]), "controller-0 starts", lambda world: world.controllers[0].start()),
    ]


def _second_controller(random: Random, at_s: float, names: list[str]) -> list[tuple[float, str, Fault]]:
    del names

    def second(world: World) -> None:
        if len(world.controllers) > 1:
            world.controllers[1].start()

    def gone(world: World) -> None:
        if len(world.controllers) > 1:
            world.controllers[1].kill()

    return [
        (at_s, "controller-1 starts beside controller-0", second),
        (at_s + random.uniform(2.0, 25.0), "controller-1 killed", gone),
    ]


def _store_trouble(random: Random, at_s: float, names: list[str]) -> list[tuple[float, str, Fault]]:
    del names
    empty = random.random() < 0.5

    def down(world: World) -> None:
        world.store.up = False
        if empty and set(world.places.values()) == set(world.policy.nodes):
            world.store.lose_everything()  # not while it alone may know where a dropped node hangs: docs/safety-case.md

    def back(world: World) -> None:
        world.store.up = True

    return [
        (at_s, f"store down{', comes back empty' if empty else ''}", down),
        (at_s + random.uniform(1.0, 20.0), "store up", back),
    ]


def _limits(random: Random, at_s: float, names: list[str]) -> list[tuple[float, str, Fault]]:
    del names
    factor = random.choice([1.05, 1.15])
    return [(at_s, f"limits times {factor}", _limits_times(factor, at_s))]


def _limits_times(factor: float, at_s: float) -> Fault:
    return lambda world: world.apply(with_limits(world.policy, factor, f"x{factor}-at-{at_s:.1f}"))


def _policy_edits(random: Random, at_s: float, names: list[str]) -> list[tuple[float, str, Fault]]:
    """A policy that moves a node to another PDU, or drops it, while the node draws on where it is."""
    name, drops = random.choice(names), random.random() < 0.5

    def edit(world: World) -> None:
        if world.store.policy is None:
            return  # the same: a node dropped while nobody remembers where it hung
        nodes = [_moved(spec) if spec.name == name and not drops else spec for spec in world.policy.nodes]
        kept = tuple(spec for spec in nodes if spec.name != name or not drops)
        revision = Revision(f"{'without' if drops else 'moving'} {name} at {at_s:.1f}")
        world.apply(replace(world.policy, revision=revision, nodes=kept))

    return [
        (at_s, f"the policy {'drops' if drops else 'moves'} {name}", edit),
        (at_s + random.uniform(2.0, 20.0), "the policy has its nodes back", _nodes_back),
    ]


def _moved(spec: Node) -> Node:
    other = "pdu-a" if spec.feeds[0].domain == "pdu-b" else "pdu-b"
    return replace(spec, feeds=(Feed(DomainName(other), 1.0),))


def _nodes_back(world: World) -> None:
    nodes = tuple(world.described.values())
    if nodes != world.policy.nodes:
        world.apply(replace(world.policy, revision=Revision(f"all back at {world.time.now_s:.1f}"), nodes=nodes))


def _load(random: Random, at_s: float, names: list[str]) -> list[tuple[float, str, Fault]]:
    name = random.choice(names)
    share = random.choice([0.0, 0.3, 0.6, 1.0])
    return [
        (at_s, f"load of {name} at {share:.0%}", _busy(name, share)),
        (STOP_FAULTS_S - 1.0, f"load of {name} full", lambda world: _full(world, name)),
    ]


def _flicker(random: Random, at_s: float, names: list[str]) -> list[tuple[float, str, Fault]]:
    """Bursts of work shorter than the sensor's window: the average says little about the highest draw."""
    name = random.choice(names)
    shares = [random.choice([0.0, 0.1, 0.5, 1.0]) for _ in range(8)]
    faults: list[tuple[float, str, Fault]] = []
    for step in range(100):
        words = f"load of {name} flickers" if step == 0 else ""
        faults.append((at_s + 0.25 * step, words, _busy(name, shares[(step * 3 + step // 8) % len(shares)])))
    return [*faults, (STOP_FAULTS_S - 1.0, f"load of {name} full", lambda world: _full(world, name))]


def _busy(name: str, share: float) -> Fault:
    def change(world: World) -> None:
        for true in world.hardware[name].gpus.values():
            true.busy_share = share

    return change


def _full(world: World, name: str) -> None:
    for true in world.hardware[name].gpus.values():
        true.busy_share = 1.0


_KINDS = [
    _agent_restarts,
    _journal_lost,
    _reboot,
    _cut,
    _controller_restarts,
    _second_controller,
    _store_trouble,
    _limits,
    _load,
    _flicker,
    _policy_edits,
]
