"""Results of theory: what softmax makes of normal scores, and what comes back through it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from interp.figures.marks import Dots, Lines, Series
from interp.results.provenance import Provenance, versions
from interp.results.result import Result, Shown

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
NORMAL_95 = 1.96  # standard errors to either side

Estimate = tuple[float, float]


def simulated(seed: int) -> Provenance:
    """Returns the provenance of what no model and no text made."""
    return Provenance(model="", tokens="", dtype="float64", seed=seed, versions=dict(versions()))


@dataclass(frozen=True, kw_only=True, repr=False)
class SoftmaxStatistics(Result):
    """A row of `n_keys` independent normal scores of one std, through softmax.

    Each value is a pair (estimate, standard error) from `draws` rows: the median and mean of the
    largest weight, the entropy in nats, and the mean over keys of p(1 − p), a softmax's own slope.
    There is no model.
    """

    SECTION: ClassVar = "scaling"
    HEADING: ClassVar = "What softmax makes of normal scores"
    n_keys: int
    std: float
    draws: int
    median_largest: Estimate
    mean_largest: Estimate
    entropy: Estimate
    slope: Estimate

    @property
    def name(self) -> str:
        return f"softmax-of-{self.n_keys}-keys-std-{self.std:.3g}"

    @property
    def entropy_normalised(self) -> Estimate:
        """Entropy divided by ln(n_keys), and its standard error."""
        size = float(np.log(self.n_keys))
        return self.entropy[0] / size, self.entropy[1] / size

    def to_frame(self) -> pd.DataFrame:
        """Returns one row per quantity: quantity, value, standard_error, and n_keys, std, draws."""
        names = ("median_largest", "mean_largest", "entropy", "entropy_normalised", "slope")
        rows = [(name, *getattr(self, name)) for name in names]
        frame = pd.DataFrame(rows, columns=["quantity", "value", "standard_error"])
        return frame.assign(n_keys=self.n_keys, std=self.std, draws=self.draws)

    def figures(self) -> list[Shown]:
        """Returns the quantities that lie between 0 and 1."""
        table = self.to_frame().query("quantity != 'entropy'")
        value, reach = table["value"].to_numpy(), NORMAL_95 * table["standard_error"].to_numpy()
        names = ("median largest weight", "mean largest weight", "entropy / ln n", "mean p(1 − p)")
        mark = Dots(
            names=names, label="value",
            series=(Series(name="", values=value, low=value - reach, high=value + reach),),
        )  # fmt: skip
        caption = (
            f"Softmax of n = {self.n_keys} independent normal scores of std {self.std:.4g}; "
            f"{self.draws:,} rows, seed {self.provenance.seed}; bars: 95 %."
        )
        return [Shown(name=self.name, caption=caption, mark=mark)]

    def summary(self) -> str:
        """Returns each quantity with its standard error."""
        lines = [
            f"softmax of {self.n_keys} independent normal scores of std {self.std:.4g}; "
            f"{self.draws:,} rows, seed {self.provenance.seed}; entropy in nats; ± one standard "
            "error"
        ]
        rows = self.to_frame()[["quantity", "value", "standard_error"]].to_numpy().tolist()
        return "\n".join([*lines, *(f"  {n:<19} {v:.5f} ± {e:.1g}" for n, v, e in rows)])


def quantile_name(at: float) -> str:
    """Returns the name of a quantile's column, such as q05."""
    return f"q{round(100 * at):02d}"


@dataclass(frozen=True, kw_only=True, repr=False)
class GradientStatistics(Result):
    """How large gradients are that come back through softmax(multiplier · q·k): norms of a row.

    `mean`, `rms` [of], and `quantiles` [of, quantile] at 5, 25, 50, 75 and 95 %, of the gradient to
    the scores ("score") and to the query ("q"). There is no model.
    """

    AXES: ClassVar = {"mean": ("of",), "rms": ("of",), "quantiles": ("of", "quantile")}
    NAMES: ClassVar = {"of": "of"}
    SECTION: ClassVar = "scaling"
    HEADING: ClassVar = "What comes back through the softmax"
    of: tuple[str, ...]
    mean: np.ndarray
    rms: np.ndarray
    quantiles: np.ndarray
    d_k: int
    multiplier: float
    n_keys: int
    draws: int

    @property
    def name(self) -> str:
        return f"gradients-d{self.d_k}-times-{self.multiplier:.3g}"

    def to_frame(self) -> pd.DataFrame:
        """Returns of, mean, rms, and the quantiles q05 q25 q50 q75 q95; one row per `of`."""
        frame = pd.DataFrame({"of": self.of, "mean": self.mean, "rms": self.rms})
        for at, values in zip(QUANTILES, self.quantiles.T, strict=True):
            frame[quantile_name(at)] = values
        return frame

    def figures(self) -> list[Shown]:
        """Returns the quantiles, where the mean stands beside the median."""
        series = [
            Series(name=f"gradient to {'the scores' if of == 'score' else 'the query'}",
                   values=values, marker=marker, colour=colour)
            for of, values, marker, colour in zip(
                self.of, self.quantiles, "os", ("blue", "vermilion"), strict=True
            )
        ]  # fmt: skip
        mark = Lines(
            x=100 * np.array(QUANTILES), series=tuple(series), x_label="quantile (%)",
            y_label="norm of the gradient of a row", y_scale="log",
            ticks=tuple((100 * at, f"{100 * at:g}") for at in QUANTILES),
        )  # fmt: skip
        means = ", ".join(f"{m:.3g} ({of})" for of, m in zip(self.of, self.mean, strict=True))
        caption = (
            f"Gradients that come back through softmax({self.multiplier:.3g} · q·k), d_k = "
            f"{self.d_k}, {self.n_keys} keys: norms of n = {self.draws:,} rows, seed "
            f"{self.provenance.seed}. Means: {means}."
        )
        return [Shown(name=self.name, caption=caption, mark=mark)]

    def summary(self) -> str:
        """Returns the table, with what it is of."""
        table = self.to_frame().to_string(index=False, float_format="{:.4g}".format)
        return (
            f"norms of gradients back through softmax({self.multiplier:.4g} · q·k), d_k = "
            f"{self.d_k}, {self.n_keys} keys; n = {self.draws:,} rows, seed "
            f"{self.provenance.seed}\n{table}"
        )
