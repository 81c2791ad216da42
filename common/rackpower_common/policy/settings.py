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

    def rule(holds: bool, first: str, words: str, second: str, why: str) -> None:
        if holds:
            return
        place = next((at for at in (place_of(entry, first), place_of(entry, second)) if at != entry.place), entry.place)
        values = f"`{first}` {format_duration(times_s[first])}, `{second}` {format_duration(times_s[second])}"
        findings.error(place, f"`timing`: {first} must be {words} {second}: {values}", why)

    rule(
        timing.settle_s < timing.lease_s, "settle", "below", "lease", "a lowered cap must settle before its lease ends"
    )
    rule(
        3 * timing.tick_s <= timing.watchdog_s,
        "watchdog",
        "at least three times",
        "tick",
        "a watchdog may not bite at one late tick",
    )
    rule(
        timing.watchdog_s < timing.lease_s,
        "watchdog",
        "below",
        "lease",
        "a hung controller must be gone before its leases end",
    )
    rule(
        2 * timing.tick_s <= timing.leader_ttl_s,
        "leader_ttl",
        "at least twice",
        "tick",
        "a reign is renewed once a tick and may not end at one late tick",
    )
    rule(
        timing.leader_ttl_s <= timing.lease_s,
        "leader_ttl",
        "at most",
        "lease",
        "another controller must be able to take over before leases end",
    )
    rule(
        2 * timing.report_period_s <= timing.settle_s,
        "report_period",
        "at most half of",
        "settle",
        "a lowered cap is confirmed by one report and settled by a later one",
    )
    rule(
        timing.report_period_s * 3 <= timing.lease_s,
        "lease",
        "at least three times",
        "report_period",
        "a lease may not end at one lost report",
    )
