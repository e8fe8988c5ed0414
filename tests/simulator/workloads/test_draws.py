"""Draws follow their laws, in integers."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.workloads.draws import Curve, Draws, zipf_weights

COUNT = 200_000
CURVE = Curve(((0, 10), (500, 40), (900, 100), (1000, 1_000)))


def test_the_stream_of_a_seed_never_changes() -> None:
    draws = Draws(2026)
    assert draws.below(1_000, 5).tolist() == [178, 639, 467, 370, 354]
    assert draws.exponential(1_000_000, 5).tolist() == [1563120, 2355399, 195228, 1057810, 354252]
    assert draws.along(CURVE, 5).tolist() == [702, 278, 60, 77, 42]
    assert draws.pick(zipf_weights(1_000, 0.9), 5).tolist() == [0, 558, 64, 15, 2]


def test_a_curve_has_the_quantiles_it_was_given() -> None:
    values = Draws(1).along(CURVE, COUNT)
    assert np.quantile(values, [0.25, 0.5, 0.9, 0.95]) == pytest.approx([25, 40, 100, 550], rel=0.03)
    assert values.mean() == pytest.approx(CURVE.mean, rel=0.02)
    assert values.min() >= 10
    assert values.max() < 1_000


def test_a_few_spread_values_already_have_the_mean_of_the_curve() -> None:
    for seed in range(20):
        values = Draws(seed).spread_along(CURVE, 40)
        assert values.mean() == pytest.approx(CURVE.mean, rel=0.1)
        assert np.count_nonzero(values < 40) in {19, 20}


def test_exponential_values_have_the_quantiles_of_their_law() -> None:
    values = Draws(3).exponential(1_000_000, COUNT)
    assert values.mean() == pytest.approx(1e6, rel=0.01)
    assert values.std() == pytest.approx(1e6, rel=0.02)
    for share in (0.01, 0.5, 0.99, 0.9995):
        assert np.quantile(values, share) == pytest.approx(-np.log(1 - share) * 1e6, rel=0.1)


def test_picks_are_as_frequent_as_their_weights() -> None:
    weights = zipf_weights(50, 1.0)
    counts = np.bincount(Draws(4).pick(weights, COUNT), minlength=50)
    assert counts / COUNT == pytest.approx(weights / weights.sum(), abs=0.005)
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.1)


def test_chances() -> None:
    draws = Draws(5)
    assert draws.chance(0.3, COUNT).mean() == pytest.approx(0.3, abs=0.005)
    assert not draws.chance(0.0, COUNT).any()
    assert draws.chance(1.0, COUNT).all()
    assert draws.spread_chance(0.3, 1_000).sum() == 300


def test_integers_below_a_bound_are_even() -> None:
    counts = np.bincount(Draws(6).below(7, COUNT))
    assert len(counts) == 7
    assert counts == pytest.approx(np.full(7, COUNT / 7), rel=0.03)


@pytest.mark.parametrize("count", [0, 1])
def test_no_draws_and_one(count: int) -> None:
    draws = Draws(7)
    for values in (
        draws.along(CURVE, count),
        draws.spread_along(CURVE, count),
        draws.exponential(10, count),
        draws.below(3, count),
        draws.pick(zipf_weights(3, 1.0), count),
    ):
        assert values.shape == (count,)
