"""The demo's last word: one JSON object for scripts, a few lines for people."""

from __future__ import annotations

from dataclasses import dataclass

from rackpower_ctl.demo.measuring import Account
from rackpower_ctl.render import words


@dataclass(frozen=True, slots=True)
class Report:
    """What a demo showed. Watts are at the rack's input, rates are means of the measured window; None is unknown."""

    budget_watts: int
    gpus_running: int
    gpus_at_nameplate: int | None
    peak_power_watts: float
    over_budget_seconds: float
    tokens_per_second: float
    tokens_per_watt: float
    best_uniform_cap_tokens_per_second: float | None
    ticks: int
    decide_ms_p99: float
    plan_ms_p99: float

    @property
    def held(self) -> bool:
        """Whether the budget held."""
        return self.over_budget_seconds == 0

    def document(self) -> dict[str, object]:
        """Return the report as JSON's values, rounded to what was measured."""
        uniform = self.best_uniform_cap_tokens_per_second
        return {
            "budget_watts": self.budget_watts,
            "gpus_running": self.gpus_running,
            "gpus_at_nameplate": self.gpus_at_nameplate,
            "peak_power_watts": round(self.peak_power_watts, 1),
            "over_budget_seconds": round(self.over_budget_seconds, 2),
            "tokens_per_second": round(self.tokens_per_second, 1),
            "tokens_per_watt": round(self.tokens_per_watt, 5),
            "best_uniform_cap_tokens_per_second": None if uniform is None else round(uniform, 1),
            "ticks": self.ticks,
            "decide_ms_p99": round(self.decide_ms_p99, 3),
            "plan_ms_p99": round(self.plan_ms_p99, 3),
        }

    def lines(self, account: Account) -> list[str]:
        """Return the report for people."""
        share = words.percent(self.peak_power_watts, self.budget_watts)
        worst = "" if self.held else f", worst {account.worst_over_w:,.0f} W over {account.worst_domain}"
        lines = [
            f"budget   {self.budget_watts:,} W; peak {self.peak_power_watts:,.0f} W ({share})",
            f"         over budget for {self.over_budget_seconds:g} s{worst}",
            f"caps     at most {account.peak_caps_w:,.0f} W with overheads and losses, as the hardware enforced them;",
            f"         above limit less headroom for {account.over_caps_s:g} s",
            f"GPUs     {self.gpus_running} running; nameplate would allow {_known(self.gpus_at_nameplate)}",
            f"tokens   {self.tokens_per_second:,.0f} per second; {self.tokens_per_watt:.4f} per second and watt",
        ]
        uniform = self.best_uniform_cap_tokens_per_second
        if uniform is not None:
            gain = self.tokens_per_second / uniform - 1 if uniform > 0 else 0.0
            lines.append(f"         best uniform cap {uniform:,.0f} per second: {gain:+.1%}")
        lines.append(
            f"ticks    {self.ticks}; p99 of a decision {self.decide_ms_p99:.1f} ms, of a plan {self.plan_ms_p99:.1f} ms"
        )
        return lines


def _known(count: int | None) -> str:
    return words.MISSING if count is None else str(count)
