"""What simulated GPUs draw and serve, held against the facts that `physics_facts` names."""

from __future__ import annotations

import numpy as np
import pytest

from rackpower_sim.classes import B200, CLASSES, H100, GpuTruth
from rackpower_sim.physics import GpuBank
from rackpower_sim.physics_facts import (
    NO_LIMIT_W,
    SETTLE_MAX_S,
    SETTLE_MIN_S,
    STEP_S,
    TRACKING_LIMIT,
)
from support.sim_racks import bank_of

SECOND = round(1 / STEP_S)


def run(bank: GpuBank, seconds: float, load: float = 1.0) -> list[float]:
    """Make steps at a load and return what the first GPU drew in each."""
    draws_w = []
    for _ in range(round(seconds / STEP_S)):
        bank.begin_step()
        bank.end_step(np.full(bank.draw_w.shape, load))
        draws_w.append(float(bank.draw_w[0, 0]))
    return draws_w


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("from_w", "to_w"), [(600, 300), (300, 600)])
def test_a_draw_follows_its_cap_within_one_to_four_seconds(seed: int, from_w: int, to_w: int) -> None:
    """The register tells the new cap at once; the draw still moves after 0.9 s and stands after 4 s."""
    bank = bank_of(seed=seed)
    bank.request_cap(0, from_w)
    run(bank, 5)
    bank.request_cap(0, to_w)
    assert int(bank.enforced_w[0, 0]) == to_w
    draws_w = run(bank, SETTLE_MIN_S - 2 * STEP_S)
    assert abs(float(bank.effective_w[0, 0]) - to_w) > 1.0
    draws_w = run(bank, SETTLE_MAX_S - SETTLE_MIN_S + 3 * STEP_S)
    assert bank.effective_w[0, 0] == to_w
    assert draws_w[-1] == pytest.approx(to_w, rel=TRACKING_LIMIT)


def test_settle_times_cover_the_range() -> None:
    """Over many writes they reach close to both ends."""
    bank = bank_of(count=60)
    for gpu in range(60):
        bank.request_cap(gpu, 300)
    settled_s = np.full(60, np.inf)
    for step in range(round(SETTLE_MAX_S / STEP_S) + 2):
        run(bank, STEP_S)
        settled_s[(bank.effective_w[0] == 300) & np.isinf(settled_s)] = (step + 1) * STEP_S
    assert SETTLE_MIN_S - STEP_S <= settled_s.min() < SETTLE_MIN_S + 0.5
    assert SETTLE_MAX_S - 0.5 < settled_s.max() <= SETTLE_MAX_S + 2 * STEP_S


def test_the_same_cap_again_does_not_restart_the_settling() -> None:
    """An agent that repeats its write twice a second does not keep a draw from coming down."""
    bank = bank_of()
    for _ in range(10):
        bank.request_cap(0, 300)
        run(bank, 0.5)
    assert bank.effective_w[0, 0] == 300


@pytest.mark.parametrize("cap_w", [250, 400, 600])
def test_a_settled_draw_keeps_within_two_percent_of_its_cap(cap_w: int) -> None:
    """In ten minutes under load; and it is above the cap about as often as in the published samples, 13 %."""
    bank = bank_of(count=8)
    for gpu in range(8):
        bank.request_cap(gpu, cap_w)
    run(bank, 5)
    shares = []
    for _ in range(600):
        run(bank, 1.0)
        shares.append(bank.draw_w[0] / cap_w - 1)
    errors = np.concatenate(shares)
    assert np.abs(errors).max() <= TRACKING_LIMIT + 1e-9
    assert 0.08 < (errors > 0).mean() < 0.18
    assert (errors > 0.01).mean() < 0.04


def test_the_sensor_tells_the_mean_of_the_last_second() -> None:
    """Exactly so at every moment, also while the draw moves: half a second after a step it is half way."""
    bank = bank_of()
    history_w = [float(bank.draw_w[0, 0])] * SECOND
    history_w += run(bank, 3, load=0.0)
    for load in (1.0, 1.0, 0.0, 0.5):
        history_w += run(bank, 0.25, load)
        assert float(bank.average_w[0, 0]) == pytest.approx(np.mean(history_w[-SECOND:]))
    run(bank, 2, load=0.0)
    run(bank, 0.5, load=1.0)
    idle_w, busy_w = H100.idle_w, H100.natural_draw_w
    assert float(bank.average_w[0, 0]) == pytest.approx((idle_w + busy_w) / 2, rel=0.01)


@pytest.mark.parametrize("name", sorted(CLASSES))
@pytest.mark.parametrize("load", [0.0, 0.25, 1.0])
def test_the_natural_draw_follows_the_load(name: str, load: float) -> None:
    """From idle to the natural draw, where no cap is in the way."""
    truth = CLASSES[name]
    draws_w = run(bank_of(truth), 1, load)
    assert draws_w[-1] == pytest.approx(truth.idle_w + (truth.natural_draw_w - truth.idle_w) * load)


def test_a_cap_below_the_natural_draw_costs_nothing_while_the_load_is_low() -> None:
    """A third of the load draws less than the cap, so that nothing limits the GPU."""
    bank = bank_of()
    bank.request_cap(0, 400)
    run(bank, 10, load=1 / 3)
    assert float(bank.draw_w[0, 0]) < 400
    assert bank.limited_s[0, 0] == 0
    run(bank, 10, load=1.0)
    assert float(bank.limited_s[0, 0]) > 9


def test_a_cap_below_the_idle_draw_is_not_held() -> None:
    """Hardware cannot: it goes on idling."""
    bank = bank_of(B200)
    bank.request_cap(0, 100)
    assert run(bank, 10)[-1] == B200.idle_w


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_the_rate_is_the_curve(name: str) -> None:
    """R = peak · (1 − b(1 − P/Pn)^c) below the natural draw, flat above it, never below 0; the columns say the same."""
    truth = CLASSES[name]
    watts = [0.0, truth.lowest_w, truth.natural_draw_w / 2, truth.natural_draw_w, truth.max_cap_w]
    half = truth.peak_tokens_per_s * (1 - truth.b * 0.5**truth.c)
    assert truth.tokens_per_s(truth.natural_draw_w / 2) == pytest.approx(half)
    assert truth.tokens_per_s(0.0) == 0.0
    assert truth.tokens_per_s(truth.natural_draw_w) == truth.peak_tokens_per_s == truth.tokens_per_s(truth.max_cap_w)
    columns = bank_of(truth).truths
    for watt in watts:
        assert columns.tokens_per_s(np.array([[watt]]))[0, 0] == pytest.approx(truth.tokens_per_s(watt))


def test_a_busy_gpu_serves_at_the_rate_of_what_it_draws() -> None:
    """Rate and draw of one step belong together."""
    bank = bank_of()
    bank.request_cap(0, 350)
    run(bank, 5)
    rate = float(bank.begin_step()[0, 0])
    bank.end_step(np.ones((1, 1)))
    assert rate == pytest.approx(H100.tokens_per_s(float(bank.draw_w[0, 0])))


def test_energy_is_the_draw_over_time() -> None:
    """Joules are watts times seconds, from 0 at a reset on."""
    bank = bank_of()
    draws_w = run(bank, 7, load=0.7)
    assert float(bank.energy_j[0, 0]) == pytest.approx(sum(draws_w) * STEP_S)
    bank.reset(0)
    assert bank.energy_j[0, 0] == 0


def test_a_reset_brings_the_default_cap_back_at_once() -> None:
    """Which is the danger of a driver reload; an out-of-band limit outlives it."""
    bank = bank_of()
    bank.request_cap(0, 300)
    run(bank, 5)
    bank.reset(0)
    assert bank.enforced_w[0, 0] == bank.requested_w[0, 0] == H100.default_cap_w
    assert run(bank, STEP_S)[-1] == H100.natural_draw_w
    bank.limit_out_of_band(0, 350)
    run(bank, 5)
    bank.reset(0)
    assert (bank.requested_w[0, 0], bank.enforced_w[0, 0]) == (H100.default_cap_w, 350)


def test_the_lowest_limit_wins() -> None:
    """In-band or out-of-band, and lifting one gives way to the other."""
    bank = bank_of()
    bank.request_cap(0, 400)
    bank.limit_out_of_band(0, 300)
    assert (bank.requested_w[0, 0], bank.enforced_w[0, 0]) == (400, 300)
    bank.request_cap(0, 250)
    assert bank.enforced_w[0, 0] == 250
    bank.request_cap(0, 400)
    bank.limit_out_of_band(0, NO_LIMIT_W)
    assert bank.enforced_w[0, 0] == 400


def test_a_clamp_leaves_the_hardware_above_what_was_asked() -> None:
    """The driver accepts the write; reading back tells the truth."""
    bank = bank_of()
    bank.request_cap(0, 250, floor_w=320)
    assert (bank.requested_w[0, 0], bank.enforced_w[0, 0]) == (250, 320)


def test_dark_gpus_draw_and_serve_nothing() -> None:
    """Not even their idle draw."""
    bank = bank_of()
    bank.powered[0] = False
    assert bank.begin_step()[0, 0] == 0
    bank.end_step(np.zeros((1, 1)))
    assert bank.draw_w[0, 0] == 0


def test_the_seed_decides_everything() -> None:
    """The same seed draws the same watts; another one does not."""

    def drawn_w(seed: int) -> list[float]:
        bank = bank_of(seed=seed)
        bank.request_cap(0, 350)
        return run(bank, 8)

    assert drawn_w(3) == drawn_w(3) != drawn_w(4)


def test_lanes_share_their_noise_and_nothing_else() -> None:
    """A lane with the caps of a bank alone draws the very same."""
    alone, beside = bank_of(count=3), bank_of(count=3, lanes=4)
    for gpu in range(3):
        alone.request_cap(gpu, 400)
        beside.request_cap(gpu, np.array([250, 400, 500, 700]))
    for _ in range(100):
        rates = alone.begin_step()
        assert (beside.begin_step()[1] == rates[0]).all()
        alone.end_step(np.ones((1, 3)))
        beside.end_step(np.ones((4, 3)))
        assert (beside.draw_w[1] == alone.draw_w[0]).all()


@pytest.mark.parametrize("truth", CLASSES.values(), ids=lambda truth: truth.name)
def test_the_classes_can_be(truth: GpuTruth) -> None:
    """Bounds stand in order, idle below the minimum cap, and what is assumed is said."""
    assert truth.idle_w < truth.min_cap_w <= truth.lowest_w < truth.natural_draw_w
    assert truth.natural_draw_w <= truth.default_cap_w <= truth.max_cap_w <= truth.largest_draw_w
    assert 1.2 <= truth.b <= 2.6
    assert 1.4 <= truth.c <= 4.0
    assert truth.tokens_per_s(truth.lowest_w) > 0
    said = " ".join(what for what, _ in truth.assumed)
    assert {"b", "c", "natural_draw_w"} <= set(said.replace(",", " ").split())
