"""The keys of a policy beside its sections: objective, fallback, times, tolerances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rackpower_common.model.policy import Timing
from rackpower_common.policy.merge import Merged, place_of
from rackpower_common.policy.problems import Findings, Place, did_you_mean
from rackpower_common.policy.spec import SettingsSpec, TimingSpec
from rackpower_common.policy.tree import Entry, Mapping, Scalar
from rackpower_common.policy.validate import validate
from rackpower_common.quantity import format_duration, quoted

OBJECTIVES: Final = ("tokens",)
OTHER_OBJECTIVES: Final = ("tokens_per_watt", "gpus")
"""Known, for a later version."""
SHORTEST_S: Final = 0.05
LONGEST_S: Final = 3600.0


RULES: Final = (
    ("settle", 1, False, "lease", "below", "a lowered cap must settle before its lease ends"),
    ("tick", 3, True, "watchdog", "at most a third of", "a watchdog may not bite at one late tick"),
    ("watchdog", 1, False, "lease", "below", "a hung controller must be gone before its leases end"),
    ("tick", 2, True, "leader_ttl", "at most half of", "a reign is renewed once a tick and outlives a late one"),
    ("leader_ttl", 1, True, "lease", "at most", "another controller must take over before leases end"),
    ("report_period", 2, True, "settle", "at most half of", "one report confirms a lower, a later one settles it"),
    ("report_period", 3, True, "lease", "at most a third of", "a lease may not end at one lost report"),
)
"""So many times the first < (≤ where true) the second, in words, and why."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What applies to the whole policy; `fallback` is `auto` or whole watts, `tracking_error` a share."""

    objective: str = "tokens"
    fallback: int | str = "auto"
    tracking_error: float = 0.02
    dead_band_w: int = 5
    timing: Timing = Timing()


def compile_settings(merged: Merged, findings: Findings) -> Settings:
    """Check and compile the settings; a wrong one is noted and its default stands in for the checks that follow."""
    timing = _compile_timing(merged.settings.get("timing"), findings)
    sound = {key: entry for key, entry in merged.settings.items() if key != "timing"}
    if not _check_objective(sound.get("objective"), findings):
        sound.pop("objective", None)
    values: dict[str, object] = {}
    for key, entry in sound.items():
        one = {"version": _VERSION} | {key: entry}
        spec = validate(SettingsSpec, Mapping(one, entry.place), entry.place, "the policy", findings)
        if spec is not None:
            values[key] = getattr(spec, key)
    spec = SettingsSpec.model_construct(**values)  # type: ignore[arg-type]
    return Settings(spec.objective, spec.fallback, spec.tracking_error, spec.dead_band, timing)


_VERSION: Final = Entry(Place(""), Scalar(1, "1", Place("")))


def _check_objective(entry: Entry | None, findings: Findings) -> bool:
    """Objectives of later versions are known by name, so that the message can say so."""
    if entry is None or not isinstance(entry.value, Scalar):
        return True
    value = entry.value.text
    if value in OBJECTIVES:
        return True
    if value in OTHER_OBJECTIVES:
        message = f"objective {quoted(value)} is not available in this version"
        findings.error(entry.value.place, message, "write `objective: tokens`")
    else:
        hint = did_you_mean(value, OBJECTIVES, "write `objective: tokens`")
        findings.error(entry.value.place, f"unknown objective {quoted(value)}", hint)
    return False


def _compile_timing(entry: Entry | None, findings: Findings) -> Timing:
    if entry is None:
        return Timing()
    spec = validate(TimingSpec, entry.value, entry.place, "`timing`", findings)
    if spec is None:
        return Timing()
    default = Timing()
    timing = Timing(
        tick_s=default.tick_s if spec.tick is None else spec.tick,
        report_period_s=default.report_period_s if spec.report_period is None else spec.report_period,
        settle_s=default.settle_s if spec.settle is None else spec.settle,
        lease_s=default.lease_s if spec.lease is None else spec.lease,
        leader_ttl_s=default.leader_ttl_s if spec.leader_ttl is None else spec.leader_ttl,
        watchdog_s=default.watchdog_s if spec.watchdog is None else spec.watchdog,
    )
    _check_timing(timing, entry, findings)
    return timing


def _check_timing(timing: Timing, entry: Entry, findings: Findings) -> None:
    """Check what the safety argument asks of the times, at the key that was written."""
    times_s = {
        "tick": timing.tick_s,
        "report_period": timing.report_period_s,
        "settle": timing.settle_s,
        "lease": timing.lease_s,
        "leader_ttl": timing.leader_ttl_s,
        "watchdog": timing.watchdog_s,
    }
    for key, value_s in times_s.items():
        if not SHORTEST_S <= value_s <= LONGEST_S:
            span = f"{format_duration(SHORTEST_S)} to {format_duration(LONGEST_S)}"
            findings.error(place_of(entry, key), f"`{key}` of {format_duration(value_s)} is outside {span}", "")

    for first, times, at_most, second, words, why in RULES:
        if times * times_s[first] < times_s[second] or (at_most and times * times_s[first] == times_s[second]):
            continue
        places = (place_of(entry, first), place_of(entry, second))
        place = next((at for at in places if at != entry.place), entry.place)
        values = f"`{first}` {format_duration(times_s[first])}, `{second}` {format_duration(times_s[second])}"
        findings.error(place, f"`timing`: {first} must be {words} {second}: {values}", why)
