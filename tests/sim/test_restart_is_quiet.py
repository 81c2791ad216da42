"""A controller that starts anew takes a working rack over as it is."""

from __future__ import annotations

from rackpower_sim.world.link import Weather
from rackpower_sim.world.rack import World, small_policy


def test_a_restarted_controller_does_not_take_a_working_rack_to_its_minima() -> None:
    """Caps in force before were safe: no cap is lowered because its node is heard for the first time."""
    world = World(3, small_policy(nodes=4, gpus=2), Weather())
    lowest_w: list[int] = []

    def caps_w() -> int:
        return sum(true.enforced_w for node in world.hardware.values() for true in node.gpus.values())

    def look() -> None:
        lowest_w.append(caps_w())
        world.time.after(0.25, look)

    world.time.at(40.0, look)
    restart = [
        (40.0, "controller-0 killed", lambda world: world.controllers[0].kill()),
        (40.5, "controller-0 starts", lambda world: world.controllers[0].start()),
    ]
    world.run(60.0, restart)
    assert world.checker.excesses == []
    assert min(lowest_w) >= lowest_w[0] - world.policy.dead_band_w * 8, "\n".join(world.timeline[-60:])
