"""Tests of scores against their nulls: sequences and untrained heads are the units."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy import stats

NO_SPREAD = 1e-12  # of the mean: differences that vary by less are all alike


def above(differences: Float[np.ndarray, "*of sequence"]) -> Float[np.ndarray, "*of"]:
    """Returns the one-sided p of the mean being above zero: Student's t over sequences.

    Differences that are all alike leave no doubt: 0 above zero, 1 below, and 0.5 at zero.
    """
    given = differences.astype(np.float64)
    mean = given.mean(-1)
    p = np.where(mean > 0, 0.0, np.where(mean < 0, 1.0, 0.5))
    varied = np.ptp(given, axis=-1) > NO_SPREAD * np.abs(mean)
    if varied.any():
        p[varied] = stats.ttest_1samp(given[varied], 0.0, axis=-1, alternative="greater").pvalue
    return np.asarray(p)


def outlying(
    values: Float[np.ndarray, "layer head"], null: Float[np.ndarray, "layer null"]
) -> Float[np.ndarray, "layer head"]:
    """Returns the one-sided p of each value being one more draw from its layer's null.

    A prediction t-test: the spread of one draw about a mean that is itself estimated.
    """
    n = null.shape[-1]
    mean, spread = null.mean(-1, keepdims=True), null.std(-1, ddof=1, keepdims=True)
    t = (values - mean) / np.maximum(spread, 1e-12) / np.sqrt(1 + 1 / n)
    return np.asarray(stats.t.sf(t, n - 1))


def benjamini_hochberg(p: np.ndarray) -> np.ndarray:
    """Returns q-values of all tests together; NaN where there was none.

    Source: Benjamini & Hochberg 1995.
    """
    q = np.full(p.shape, np.nan)
    tested = np.isfinite(p)
    if tested.any():
        q[tested] = stats.false_discovery_control(p[tested])
    return q
