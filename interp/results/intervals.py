"""Intervals of means over sequences.

Positions of one sequence are not independent of each other, so the sequence is the unit: each
contributes one number, and what is resampled are whole sequences (a cluster bootstrap).
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from interp.errors import ConfigError

LEVEL = 0.95
DRAWS = 2000
FEWEST = 8  # with fewer sequences too many resamples hold hardly more than one of them


def bootstrap_weights(n: int, draws: int = DRAWS, seed: int = 0) -> np.ndarray:
    """Returns [draw, sequence]: each sequence's share of each resample of n sequences."""
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=draws)
    return counts / n


def mean_interval(
    values: np.ndarray, *, level: float = LEVEL, draws: int = DRAWS, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns mean, low and high [...] of `values` [..., sequence], in their units.

    A studentised bootstrap (bootstrap-t): the resampled quantity is (mean* − mean) / se*, which
    follows skewed data where the percentile interval does not. Measured coverage of the 95 %
    interval, 4,000 data sets each, n from 8 to 64: 0.94 to 0.95 for normal data and 0.93 to 0.95
    for exponential; the percentile interval covers 0.78 to 0.94.

    Fewer than 8, as seeds usually are, give Student's interval: the bootstrap's ends are wild there
    (n = 5: one in 20 is over 7 stds wide, the widest of 4,000 is 74; Student's 4 and 6).
    Student's covers 0.95 for normal data, 0.88 to 0.90 for exponential. One gives NaN: nothing is
    known of its spread.

    Args:
        values: one number a sequence, any leading axes.
        level: of the interval.
        draws: number of resamples.
        seed: of the resamples; all leading axes share them.

    Raises:
        ConfigError: no sequences, or a level that is not between 0 and 1.

    Source: Efron & Tibshirani, An Introduction to the Bootstrap (1993), section 12.5.
    """
    values = np.asarray(values, dtype=np.float64)
    n = values.shape[-1] if values.ndim else 0
    if n < 1 or not 0 < level < 1:
        raise ConfigError(
            f"an interval needs a number for each of one or more sequences, and a level between 0 "
            f"and 1; got values of shape {values.shape} and level = {level}"
        )
    mean = np.asarray(values.mean(-1))
    if n == 1:
        unknown = np.full_like(mean, np.nan)
        return mean, unknown, unknown.copy()
    centred = values - mean[..., None]
    error = np.sqrt(np.square(centred).sum(-1) / (n - 1) / n)
    if n < FEWEST:
        reach = stats.t.ppf((1 + level) / 2, n - 1) * error
        return mean, np.asarray(mean - reach), np.asarray(mean + reach)
    weights = bootstrap_weights(n, draws, seed).T
    shift = centred @ weights  # of each resample's mean
    its_variance = np.square(centred) @ weights - np.square(shift)
    its_error = np.sqrt(np.maximum(its_variance, 0) / (n - 1))
    degenerate = its_error <= 1e-6 * error[..., None]  # a resample of one sequence, n times
    t = shift / np.where(degenerate, 1.0, its_error)
    t[degenerate & (shift != 0)] *= np.inf
    low, high = np.quantile(t, ((1 - level) / 2, (1 + level) / 2), axis=-1, method="nearest")
    reach = stats.t.ppf((1 + level) / 2, n - 1)  # where the data are so tied that no end is found
    low, high = np.where(np.isinf(low), -reach, low), np.where(np.isinf(high), reach, high)
    spread = values.max(-1) > values.min(-1)  # all alike, rounding of the mean aside: no width
    error = np.where(spread, error, 0.0)
    down, up = (np.where(spread, end, 0.0) * error for end in (high, low))
    return mean, np.asarray(mean - down), np.asarray(mean - up)


def correlations(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns Pearson's r, Spearman's rho and the slope of y on x, over the last axis.

    NaN where fewer than three points, or no spread: two points always correlate perfectly.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.shape[-1] < 3:
        unknown = np.full(x.shape[:-1], np.nan)
        return unknown, unknown.copy(), unknown.copy()
    r, slope = _pearson(x, y)
    rho, _ = _pearson(stats.rankdata(x, axis=-1), stats.rankdata(y, axis=-1))
    return r, rho, slope


def _pearson(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Correlation, and slope of y on x."""
    dx, dy = x - x.mean(-1, keepdims=True), y - y.mean(-1, keepdims=True)
    flat = [one.max(-1) == one.min(-1) for one in (x, y)]  # rounding of the mean is no spread
    across, along = (dx * dy).sum(-1), np.where(flat[0], np.nan, np.square(dx).sum(-1))
    upward = np.where(flat[1], np.nan, np.square(dy).sum(-1))
    return np.asarray(across / np.sqrt(along * upward)), np.asarray(across / along)
