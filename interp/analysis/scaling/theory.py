"""What softmax makes of a row of independent normal scores: theory, and simulation beside it.

A row of n scores of std s: a dot product of d_k independent products has s = √d_k unscaled and 1
scaled. Simulated values carry their standard errors.

    small s        E H = ln n − (s²/2)(1 − 1/n) + O(s⁴)
    freezing       near s = √(2 ln n) the largest weight takes over (the random-energy model), so
                   the right scale depends on n, not on d_k alone
    floor          a row with R = ‖s − mean s‖₂ has at least the entropy of the row that puts all of
                   R into one score: ln(1 + (n−1)b) + R√(n(n−1)) b/(1 + (n−1)b), where
                   b = e^(−R√(n/(n−1)))

Sources: Vaswani et al. 2017 (section 3.2.1); Zhai et al. 2023 (2303.06296) for the floor;
Derrida 1981 for the freezing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import log_softmax, softmax

from interp.analysis.scaling.theory_results import (
    QUANTILES,
    GradientStatistics,
    SoftmaxStatistics,
    simulated,
)
from interp.deprecated import renamed
from interp.errors import ConfigError

BATCHES = 50  # of simulated rows, whose spread gives the standard errors
ROWS = 1000  # simulated at a time


# ---- softmax of normal scores ------------------------------------------------------------------


@renamed(deviation="std")
def softmax_statistics(
    std: float, n_keys: int = 8, *, draws: int = 1_000_000, seed: int = 0
) -> SoftmaxStatistics:
    """Returns what softmax makes of independent normal scores of one standard deviation.

    Args:
        std: of the scores; √d_k for unscaled dot products, 1 for scaled ones.
        n_keys: scores in a row.
        draws: rows simulated, in 50 batches, whose spread gives the standard errors.
        seed: of the rows; the same seed gives the same rows, times the std.

    Raises:
        ConfigError: a negative std, fewer than 2 keys, fewer than 50 draws.
    """
    if not std >= 0 or n_keys < 2 or draws < BATCHES:
        raise ConfigError(
            f"std = {std}, n_keys = {n_keys}, draws = {draws}; expected a std of "
            f"at least 0, at least 2 keys and at least {BATCHES} draws"
        )
    rng = np.random.default_rng(seed)
    rows = draws // BATCHES
    values = np.array([_of_rows(std * rng.standard_normal((rows, n_keys))) for _ in range(BATCHES)])
    pairs = zip(values.mean(0), values.std(0, ddof=1) / np.sqrt(BATCHES), strict=True)
    median, mean, entropy, slope = ((float(v), float(e)) for v, e in pairs)
    return SoftmaxStatistics(
        n_keys=n_keys, std=float(std), draws=rows * BATCHES, median_largest=median,
        mean_largest=mean, entropy=entropy, slope=slope, provenance=simulated(seed),
    )  # fmt: skip


def _of_rows(scores: np.ndarray) -> tuple[float, float, float, float]:
    """Median and mean of the largest weight, entropy and slope of a batch of rows."""
    p = softmax(scores, axis=-1)
    largest = p.max(-1)
    entropy = entropy_of_scores(scores).mean()
    return np.median(largest), largest.mean(), entropy, (p * (1 - p)).mean()


def entropy_of_scores(scores: np.ndarray) -> np.ndarray:
    """Returns the entropy in nats of the softmax of each row, [...], from logsumexp(s) − Σ p s.

    −inf masks a key.
    """
    log_p = log_softmax(np.asarray(scores, dtype=np.float64), axis=-1)
    seen = np.isfinite(log_p)
    entropy: np.ndarray = -(np.exp(log_p) * np.where(seen, log_p, 0.0)).sum(-1)
    return entropy


def small_score_entropy(std: float, n_keys: int) -> float:
    """Returns ln n − (s²/2)(1 − 1/n): the mean entropy in nats for small stds s."""
    return float(np.log(n_keys) - std**2 / 2 * (1 - 1 / n_keys))


def freezing_std(n_keys: int) -> float:
    """Returns √(2 ln n): the std near which the largest weight takes over."""
    return float(np.sqrt(2 * np.log(n_keys)))


def entropy_floor(scores: np.ndarray) -> np.ndarray:
    """Returns the least entropy in nats that rows of this spread can have, [...].

    With R = ‖s − mean s‖₂ and b = exp(−R √(n/(n−1))):
    ln(1 + (n−1)b) + R √(n(n−1)) b / (1 + (n−1)b). Reached by a row with all but one score equal.
    """
    scores = np.asarray(scores, dtype=np.float64)
    n = scores.shape[-1]
    if n == 1:
        return np.zeros(scores.shape[:-1])
    R = np.linalg.norm(scores - scores.mean(-1, keepdims=True), axis=-1)
    b = np.exp(-R * np.sqrt(n / (n - 1)))
    floor: np.ndarray = np.log1p((n - 1) * b) + R * np.sqrt(n * (n - 1)) * b / (1 + (n - 1) * b)
    return floor


# ---- gradients through it ----------------------------------------------------------------------


def gradient_statistics(
    d_k: int, multiplier: float, n_keys: int = 8, *, draws: int = 20_000, seed: int = 0
) -> GradientStatistics:
    """Returns how large gradients are that come back through softmax(multiplier · q·k).

    q and k are normal, and so is what comes back to the weights; ∂L/∂score = p (g − Σ p g), and
    ∂L/∂q = multiplier · Σ ∂L/∂score · k. Norms of a row. Unscaled, the *mean* of ∂L/∂q is the
    larger one, while most rows are dead: a mean alone misleads.

    Args:
        d_k: width of queries and keys.
        multiplier: of the dot product: 1 unscaled, 1/√d_k the lesson's, 1/d_k.
        n_keys: keys that a query sees.
        draws: rows simulated.
        seed: of them.

    Raises:
        ConfigError: d_k, n_keys or draws below 1.
    """
    if min(d_k, n_keys, draws) < 1:
        raise ConfigError(f"d_k = {d_k}, n_keys = {n_keys}, draws = {draws}: expected at least 1")
    rng = np.random.default_rng(seed)
    pairs = list(_gradients(rng, d_k, multiplier, n_keys, draws))
    norms = np.stack([np.concatenate(of) for of in zip(*pairs, strict=True)])  # [of row]
    return GradientStatistics(
        of=("score", "q"), mean=norms.mean(1), rms=np.sqrt((norms**2).mean(1)),
        quantiles=np.quantile(norms, QUANTILES, axis=1).T, d_k=d_k, multiplier=float(multiplier),
        n_keys=n_keys, draws=draws, provenance=simulated(seed),
    )  # fmt: skip


def _gradients(
    rng: np.random.Generator, d_k: int, multiplier: float, n_keys: int, draws: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Norms of the gradients to the scores and to the query of some rows at a time."""
    for start in range(0, draws, ROWS):
        n = min(ROWS, draws - start)
        q, k = rng.standard_normal((n, d_k)), rng.standard_normal((n, n_keys, d_k))
        g = rng.standard_normal((n, n_keys))
        p = softmax(multiplier * np.einsum("nd,nkd->nk", q, k), axis=-1)
        back = p * (g - (p * g).sum(-1, keepdims=True))
        to_q = multiplier * np.linalg.norm(np.einsum("nk,nkd->nd", back, k), axis=-1)
        yield np.linalg.norm(back, axis=-1), to_q
