from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from interp import ConfigError
from interp.results.intervals import (
    DRAWS,
    FEWEST,
    bootstrap_weights,
    correlations,
    mean_interval,
)

DATA_SETS = 500


def drawn(shape: Any, seed: int = 0, skewed: bool = False) -> Any:
    rng = np.random.default_rng(seed)
    return rng.exponential(1.0, shape) if skewed else rng.normal(1.0, 3.0, shape)


def coverage(values: Any, **options: Any) -> Any:
    """The share of data sets (rows; of mean 1) whose interval holds their mean."""
    _, low, high = mean_interval(values, **options)
    return float(((low <= 1) & (high >= 1)).mean())


# ---- intervals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "skewed"), [(16, False), (32, False), (32, True)], ids=["normal", "normal", "exponential"]
)
def test_interval_covers_the_mean_as_often_as_it_says(n: int, skewed: bool) -> None:
    """Over 500 data sets the standard error of the coverage is one point."""
    covered = coverage(drawn((DATA_SETS, n), seed=0, skewed=skewed))
    assert 0.93 <= covered <= 0.97, covered


def test_coverage_follows_the_level() -> None:
    values = drawn((DATA_SETS, 32), seed=4)
    for level in (0.5, 0.8, 0.99):
        error = np.sqrt(level * (1 - level) / DATA_SETS)
        assert abs(coverage(values, level=level) - level) < 4 * error, level


@pytest.mark.parametrize("n", range(2, FEWEST))
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_few_sequences_give_students_interval(n: Any, level: float) -> None:
    values = drawn((7, n))
    mean, low, high = mean_interval(values, level=level)
    error = scipy_stats.sem(values, axis=-1)
    expected = scipy_stats.t.interval(level, n - 1, loc=values.mean(-1), scale=error)
    np.testing.assert_allclose(mean, values.mean(-1), rtol=1e-12)
    np.testing.assert_allclose((low, high), expected, rtol=1e-9)


def test_one_sequence_has_no_interval() -> None:
    mean, low, high = mean_interval(np.array([[2.0], [3.0]]))
    np.testing.assert_array_equal(mean, [2, 3])
    assert np.isnan(low).all()
    assert np.isnan(high).all()


@pytest.mark.parametrize(
    ("values", "level"), [(np.zeros((3, 0)), 0.95), (np.array(2.0), 0.95), (np.zeros(4), 1.0)]
)
def test_an_interval_of_nothing_is_refused(values: Any, level: float) -> None:
    with pytest.raises(ConfigError, match="one or more sequences"):
        mean_interval(values, level=level)


def test_many_normal_values_give_nearly_students_interval() -> None:
    values = drawn((1, 400))
    _, low, high = mean_interval(values, draws=10_000)
    error = scipy_stats.sem(values, axis=-1)
    expected = scipy_stats.t.interval(0.95, 399, loc=values.mean(-1), scale=error)
    np.testing.assert_allclose((low, high), expected, atol=0.1 * float(error[0]))


def test_interval_of_skewed_data_reaches_further_to_its_tail() -> None:
    mean, low, high = mean_interval(drawn((200, 24), skewed=True))
    assert np.median(high - mean) > 1.2 * np.median(mean - low)


def test_interval_is_that_of_its_definition() -> None:
    """Resample by resample, with each one's own standard error."""
    values = drawn(9, seed=3)
    centred, t = values - values.mean(), []
    for weights in bootstrap_weights(9, seed=11):
        resample = np.repeat(centred, np.rint(weights * 9).astype(int))
        t.append(resample.mean() / (resample.std(ddof=1) / 3))
    low, high = np.quantile(t, (0.025, 0.975), method="nearest")
    error = values.std(ddof=1) / 3
    given = [float(end[0]) for end in mean_interval(values[None], seed=11)]
    expected = [values.mean(), values.mean() - high * error, values.mean() - low * error]
    np.testing.assert_allclose(given, expected, rtol=1e-9)


@pytest.mark.parametrize("n", [2, 4, 5, 6, 7, 10, 11, 16, 33])
def test_constant_data_have_an_interval_of_no_width(n: int) -> None:
    values = np.array([0.0, 2.0, 0.1, 0.7, 1 / 3, -1e-9, 1e9])[:, None].repeat(n, 1)
    for end in mean_interval(values):
        np.testing.assert_allclose(end, values[:, 0], rtol=1e-12, atol=0)


@pytest.mark.parametrize("sign", [1, -1])
def test_an_end_that_no_resample_finds_is_students(sign: int) -> None:
    """One in eight differs: a third of the resamples do not hold it, and have no spread at all."""
    values = sign * np.eye(8)[0]
    mean, low, high = mean_interval(values)
    reach = scipy_stats.t.ppf(0.975, 7) * scipy_stats.sem(values)
    far = high - mean if sign == 1 else mean - low
    assert far == pytest.approx(reach, rel=1e-9)
    assert low <= mean <= high


@pytest.mark.parametrize("shape", [(9,), (3, 9), (2, 3, 9), (0, 9), (4, 3), (4, 1), (3,)])
def test_leading_axes_are_kept(shape: Any) -> None:
    values = drawn(shape)
    ends = mean_interval(values)
    for end in ends:
        assert end.shape == shape[:-1]
    rows = values.reshape(-1, shape[-1])
    alone = [[float(e[0]) for e in mean_interval(row[None])] for row in rows]
    for end, expected in zip(ends, zip(*alone, strict=True), strict=False):
        np.testing.assert_allclose(np.ravel(end), expected, rtol=1e-12)


def test_interval_moves_and_grows_with_the_data() -> None:
    values = drawn((4, 12))
    mean, low, high = mean_interval(values)
    for scale in (3, -2):
        moved = mean_interval(5 + scale * values)
        ends = (low, high) if scale > 0 else (high, low)
        for given, expected in zip(moved, (mean, *ends), strict=True):
            np.testing.assert_allclose(given, 5 + scale * expected, atol=0.05 * (high - low).max())
    np.testing.assert_allclose(mean_interval(5 + 3 * values), 5 + 3 * np.array([mean, low, high]))


def test_seeds_reproduce_and_differ() -> None:
    values = drawn((3, 12))
    one, again, other = (np.array(mean_interval(values, seed=seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert (one[1:] != other[1:]).any()
    np.random.seed(0)  # the global state must not matter
    np.testing.assert_array_equal(np.array(mean_interval(values, seed=1)), one)


def test_integers_and_single_precision_are_taken_as_numbers() -> None:
    values = drawn((2, 12)).round(1)
    single = mean_interval(values.astype(np.float32))
    np.testing.assert_allclose(single, mean_interval(values), rtol=1e-5)
    whole = np.arange(12)[None]
    np.testing.assert_array_equal(mean_interval(whole), mean_interval(whole.astype(float)))


def test_resamples_are_of_whole_sequences() -> None:
    weights = bootstrap_weights(6, draws=4000, seed=3)
    assert weights.shape == (4000, 6)
    np.testing.assert_allclose(weights.sum(1), 1)
    np.testing.assert_array_equal(np.rint(weights * 6), weights * 6)
    np.testing.assert_allclose(weights.mean(0), 1 / 6, atol=0.006)
    np.testing.assert_allclose((weights * 6).var(0), 5 / 6, atol=0.08)
    assert bootstrap_weights(6).shape == (DRAWS, 6)
    assert FEWEST == 8


# ---- correlations --------------------------------------------------------------------------------


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", [3, 4, 9, 40])
def test_correlations_are_scipys(n: int, ties: bool) -> None:
    x, y = drawn((5, n), 1), drawn((5, n), 2)
    y = x + y
    if ties:
        x, y = np.round(x / 3), np.round(y / 3)
        x[:, 0], y[:, 0] = 5, -5  # not all alike
    pearson, spearman, slope = correlations(x, y)
    for i in range(5):
        expected = scipy_stats.linregress(x[i], y[i])
        np.testing.assert_allclose(pearson[i], expected.rvalue, atol=1e-12)
        np.testing.assert_allclose(slope[i], expected.slope, atol=1e-12)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rank = scipy_stats.spearmanr(x[i], y[i]).statistic
        np.testing.assert_allclose(spearman[i], rank, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2])
def test_fewer_than_three_points_do_not_correlate(n: int) -> None:
    for statistic in correlations(drawn((4, n)), drawn((4, n), 1)):
        assert statistic.shape == (4,)
        assert np.isnan(statistic).all()


@pytest.mark.parametrize("n", [3, 6, 7, 11])
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 1 / 3, 0.7])
def test_points_without_spread_do_not_correlate(n: int, value: Any) -> None:
    flat, other = np.full((1, n), value), np.arange(n)[None] ** 2.0
    pearson, spearman, slope = correlations(flat, other)
    assert np.isnan([pearson, spearman]).all(), (pearson, spearman)
    assert np.isnan(slope).all(), slope
    pearson, spearman, slope = correlations(other, flat)
    assert np.isnan([pearson, spearman]).all(), (pearson, spearman)
    np.testing.assert_allclose(slope, 0, atol=1e-12)


def test_perfect_agreement() -> None:
    x = drawn((1, 12))
    for factor in (2.0, -0.5):
        pearson, spearman, slope = correlations(x, factor * x + 3)
        np.testing.assert_allclose([pearson, spearman], np.sign(factor), rtol=1e-12)
        np.testing.assert_allclose(slope, factor, rtol=1e-12)
    np.testing.assert_allclose(correlations(x, np.exp(x))[1], 1, rtol=1e-12)


def test_one_row_of_points_may_have_no_leading_axis() -> None:
    x, y = drawn(8), drawn(8, 1)
    for one, rows in zip(correlations(x, y), correlations(x[None], y[None]), strict=True):
        np.testing.assert_allclose(one, rows[0], rtol=1e-12)
