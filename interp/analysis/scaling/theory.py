"""What softmax makes of scores of one spread: theory and simulation, without a model.

Theory is of a row of n scores of std s: a dot product of d_k independent products
has s = √d_k unscaled and 1 scaled. Simulated figures carry their standard errors.

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

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
from scipy.special import log_softmax, softmax

from interp.deprecated import renamed
from interp.errors import ConfigError
from interp.figures.marks import Dots, Series
from interp.results.provenance import Provenance
from interp.results.result import Result
from interp.results.shown import Shown, kept

BATCHES = 50  # of simulated rows, whose spread gives the standard errors
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
AT_A_TIME = 1000  # rows of a simulation held at once


@dataclass(frozen=True, kw_only=True)
class SoftmaxStatistics(Result):
    """A row of `n_keys` independent normal scores of one std, through softmax.

    Each value is a pair (estimate, standard error) from `draws` rows: the median and mean of the
    largest weight, the entropy in nats, and the mean over keys of p(1 − p), a softmax's own slope.
    """

    SECTION: ClassVar = "scaling"
    HEADING: ClassVar = "Softmax of normal scores"
    n_keys: int
    std: float
    draws: int
    median_largest: tuple[float, float]
    mean_largest: tuple[float, float]
    entropy: tuple[float, float]
    slope: tuple[float, float]

    @property
    def entropy_normalised(self) -> tuple[float, float]:
        """Entropy divided by ln(n_keys), and its standard error."""
        size = float(np.log(self.n_keys))
        return self.entropy[0] / size, self.entropy[1] / size

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns std, n_keys, statistic, value, standard_error, draws, one row per statistic."""
        names = ("median_largest", "mean_largest", "entropy", "entropy_normalised", "slope")
        value, error = zip(*(getattr(self, name) for name in names), strict=True)
        return pd.DataFrame(
            {"std": self.std, "n_keys": self.n_keys, "statistic": names, "value": value,
             "standard_error": error, "draws": self.draws}
        )  # fmt: skip

    def figures(self) -> list[Shown]:
        """Returns what lies between 0 and 1, with intervals of 1.96 standard errors."""
        names = ("median_largest", "mean_largest", "entropy_normalised", "slope")
        value, error = np.array([getattr(self, name) for name in names]).T
        ends = {"low": value - 1.96 * error, "high": value + 1.96 * error}
        dots = Dots(
            names=("median largest weight", "mean largest weight", "entropy / ln n", "p(1 − p)"),
            series=(Series(name="", values=value, marker="o", **ends),), label="value",
        )  # fmt: skip
        caption = (
            f"Softmax of {self.n_keys} independent normal scores of std {self.std:.4g}; bars: "
            f"95 %. n = {self.draws:,} simulated rows, seed {self.provenance.seed}."
        )
        return [Shown(name="softmax-statistics", caption=caption, mark=dots)]


@renamed(deviation="std")
def softmax_statistics(
    std: float, n_keys: int = 8, *, draws: int = 1_000_000, seed: int = 0
) -> SoftmaxStatistics:
    """Returns what softmax makes of independent normal scores of one std.

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
            f"std = {std}, n_keys = {n_keys}, draws = {draws}; expected a std of at least 0, at "
            f"least 2 keys and at least {BATCHES} draws"
        )
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(BATCHES):
        scores = std * rng.standard_normal((draws // BATCHES, n_keys))
        p = softmax(scores, axis=-1)
        largest = p.max(-1)
        entropies, slope = entropy_of_scores(scores).mean(), (p * (1 - p)).mean()
        found.append((np.median(largest), largest.mean(), entropies, slope))
    values = np.array(found)
    pairs = zip(values.mean(0), values.std(0, ddof=1) / np.sqrt(BATCHES), strict=True)
    median, mean, entropy, slope_pair = ((float(v), float(e)) for v, e in pairs)
    return SoftmaxStatistics(
        n_keys=n_keys, std=float(std), draws=draws // BATCHES * BATCHES,
        median_largest=median, mean_largest=mean, entropy=entropy, slope=slope_pair,
        provenance=Provenance.simulated(seed),
    )  # fmt: skip


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


# ---- gradients through a softmax ---------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GradientStatistics(Result):
    """Norms of what comes back through softmax(`multiplier` · q·k), over `draws` simulated rows.

    `values` [gradient, statistic]; gradients: "score" (∂L/∂scores) and "q" (∂L/∂q).
    """

    AXES: ClassVar = {"values": ("gradient", "statistic")}
    NAMES: ClassVar = {"gradients": "gradient", "statistics": "statistic"}
    SECTION: ClassVar = "scaling"
    HEADING: ClassVar = "Gradients through a softmax"
    gradients: tuple[str, ...]
    statistics: tuple[str, ...]
    values: np.ndarray
    d_k: int
    multiplier: float
    n_keys: int
    draws: int

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns of, mean, rms, and the quantiles q05 q25 q50 q75 q95; one row per gradient."""
        table = pd.DataFrame(dict(zip(self.statistics, self.values.T, strict=True)))
        table.insert(0, "of", self.gradients)
        return table

    def figures(self) -> list[Shown]:
        """Returns the median of each gradient's norm, with its 5 to 95 % range."""
        table = self.to_frame()
        dots = Dots(
            names=tuple(f"∂L/∂{name}" for name in self.gradients),
            label="norm of the gradient",
            series=(
                Series(
                    name="median",
                    values=table["q50"].to_numpy(),
                    low=table["q05"].to_numpy(),
                    high=table["q95"].to_numpy(),
                    marker="o",
                ),
                Series(name="mean", values=table["mean"].to_numpy(), colour="for", marker="s"),
            ),
        )
        caption = (
            f"Norms of what comes back through softmax({self.multiplier:.3g} · q·k), d_k = "
            f"{self.d_k}, {self.n_keys} keys: median with the range from 5 to 95 %, and mean. "
            f"n = {self.draws:,} simulated rows, seed {self.provenance.seed}."
        )
        return [Shown(name="gradient-statistics", caption=caption, mark=dots)]


def gradient_statistics(
    d_k: int, multiplier: float, n_keys: int = 8, *, draws: int = 20_000, seed: int = 0
) -> GradientStatistics:
    """Returns how large gradients are that come back through softmax(multiplier · q·k).

    q and k are normal, and so is what comes back to the weights; ∂L/∂score = p (g − Σ p g), and
    ∂L/∂q = multiplier · Σ ∂L/∂score · k. Unscaled, the *mean* of ∂L/∂q is the larger one, while
    most rows are dead: a mean alone misleads.

    Args:
        d_k: width of queries and keys.
        multiplier: of the dot product: 1 unscaled, 1/√d_k the lesson's, 1/d_k.
        n_keys: keys that a query sees.
        draws: rows simulated.
        seed: of them.
    """
    rng, norms = np.random.default_rng(seed), {"score": list[np.ndarray](), "q": []}
    for start in range(0, draws, AT_A_TIME):
        n = min(AT_A_TIME, draws - start)
        q, k = rng.standard_normal((n, d_k)), rng.standard_normal((n, n_keys, d_k))
        g = rng.standard_normal((n, n_keys))
        p = softmax(multiplier * np.einsum("nd,nkd->nk", q, k), axis=-1)
        back = p * (g - (p * g).sum(-1, keepdims=True))
        norms["score"].append(np.linalg.norm(back, axis=-1))
        norms["q"].append(multiplier * np.linalg.norm(np.einsum("nk,nkd->nd", back, k), axis=-1))
    rows = []
    for parts in norms.values():
        every = np.concatenate(parts)
        rows.append([every.mean(), np.sqrt((every**2).mean()), *np.quantile(every, QUANTILES)])
    return GradientStatistics(
        gradients=tuple(norms), values=np.array(rows), d_k=d_k, multiplier=float(multiplier),
        statistics=("mean", "rms", *(f"q{round(100 * at):02d}" for at in QUANTILES)),
        n_keys=n_keys, draws=draws, provenance=Provenance.simulated(seed),
    )  # fmt: skip
