"""A finished sweep: its tables."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Int

from interp.analysis.scaling.arms import WEIGHTS
from interp.analysis.scaling.sweep_figures import sweep_figures
from interp.analysis.scaling.theory import QUANTILES
from interp.results import intervals
from interp.results.result import Result
from interp.results.shown import Shown, kept


@dataclass(frozen=True, kw_only=True)
class ScalingSweep(Result):
    """A finished sweep. Losses in nats per token; entropies over ln(visible keys).

    `gradient` holds quantiles (5, 25, 50, 75, 95 %) of the sizes of the entries of ∂L/∂W_Q and
    ∂L/∂W_K. `predicted_std` and `predicted_entropy` are theory's, for step 0. NaN: a run
    whose loss was no longer finite.
    """

    AXES: ClassVar = {
        "d_heads": ("d_head",),
        "learning_rates": ("learning_rate",),
        "seeds": ("seed",),
        "steps": ("step",),
        "predicted_std": ("arm", "d_head"),
        "predicted_entropy": ("arm", "d_head"),
        "loss": ("arm", "d_head", "learning_rate", "seed", "step"),
        "entropy": ("arm", "d_head", "learning_rate", "seed", "step", "layer", "head"),
        "std": ("arm", "d_head", "learning_rate", "seed", "step", "layer", "head"),
        "gradient": (
            "arm", "d_head", "learning_rate", "seed", "step", "layer", "head", "weight", "quantile",
        ),
    }  # fmt: skip
    NAMES: ClassVar = {"arms": "arm"}
    SECTION: ClassVar = "scaling"
    HEADING: ClassVar = "The same model, its scores scaled in several ways"
    TABLE_IN_PAGE: ClassVar = False
    arms: tuple[str, ...]
    d_heads: np.ndarray
    learning_rates: np.ndarray
    seeds: np.ndarray
    steps: np.ndarray
    predicted_std: np.ndarray
    predicted_entropy: np.ndarray
    loss: np.ndarray
    entropy: np.ndarray
    std: np.ndarray
    gradient: np.ndarray
    recipe: str
    text: str

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns one row per arm, d_head, learning_rate, seed, step, layer and head: loss,
        entropy_normalised, score_std, and gradient quantiles such as W_Q_q50.
        """
        names = self.AXES["entropy"]
        axes = [self.arms, self.d_heads, self.learning_rates, self.seeds, self.steps,
                *map(range, self.entropy.shape[5:])]  # fmt: skip
        index = pd.MultiIndex.from_product(axes, names=names)
        loss = np.broadcast_to(self.loss[..., None, None], self.entropy.shape)
        frame = pd.DataFrame(
            {
                "loss": loss.ravel(),
                "entropy_normalised": self.entropy.ravel(),
                "score_std": self.std.ravel(),
            },
            index=index,
        )
        for w, weight in enumerate(WEIGHTS):
            for q, quantile in enumerate(QUANTILES):
                column = f"{weight}_q{round(100 * quantile):02d}"
                frame[column] = self.gradient[..., w, q].ravel()
        return frame.reset_index()

    def best_rates(self) -> Int[np.ndarray, "arm d_head"]:
        """Returns, for each arm and width, which learning rate has the lowest mean last loss.

        A rate with a run that diverged is out, unless all are.
        """
        mean = self.loss[..., -1].mean(-1)  # NaN where a run diverged
        return np.asarray(np.where(np.isnan(mean), np.inf, mean).argmin(-1))

    @kept
    def by_arm(self) -> pd.DataFrame:
        """Returns one row per arm and d_head, at its own best learning rate: loss at the last step
        with its 95 % interval over seeds, that of its difference from "sqrt" (each at its own best
        rate, paired by seed), and entropy and std at the first and last step, with theory's
        for the first. Choosing the rate by the same runs favours all arms alike.
        """
        rates = self.best_rates()
        base = self.arms.index("sqrt") if "sqrt" in self.arms else None
        return pd.DataFrame([
            self._best_row(arm, d, rates, base)
            for arm in range(len(self.arms)) for d in range(len(self.d_heads))
        ])  # fmt: skip

    def _best_row(
        self, arm: int, d: int, rates: Int[np.ndarray, "arm d_head"], base: int | None
    ) -> dict[str, Any]:
        at = (arm, d, int(rates[arm, d]))
        losses = self.loss[at][:, -1]
        loss, low, high = intervals.mean_interval(losses)
        row: dict[str, Any] = {
            "arm": self.arms[arm], "d_head": int(self.d_heads[d]),
            "learning_rate": float(self.learning_rates[at[2]]),
            "loss": float(loss), "low": float(low), "high": float(high),
        }  # fmt: skip
        if base is not None:
            difference = intervals.mean_interval(losses - self.loss[base, d, rates[base, d], :, -1])
            for name, value in zip(("", "_low", "_high"), difference, strict=True):
                row[f"against_sqrt{name}"] = float(value)
        return row | {
            "predicted_std": float(self.predicted_std[arm, d]),
            "std_first": float(self.std[at][:, 0].mean()),
            "predicted_entropy": float(self.predicted_entropy[arm, d]),
            "entropy_first": float(self.entropy[at][:, 0].mean()),
            "std_last": float(self.std[at][:, -1].mean()),
            "entropy_last": float(self.entropy[at][:, -1].mean()),
            "n": len(self.seeds),
        }

    @kept
    def entropies(self) -> pd.DataFrame:
        """Returns arm, d_head, step (the first and the last), entropy, low, high: means over layers
        and heads at each arm's best learning rate, with 95 % intervals over seeds.
        """
        rates, rows = self.best_rates(), []
        for a, d, step in itertools.product(
            range(len(self.arms)), range(len(self.d_heads)), (0, -1)
        ):
            by_seed = self.entropy[a, d, rates[a, d], :, step].mean((-1, -2))
            found = map(float, intervals.mean_interval(by_seed))
            rows.append((self.arms[a], int(self.d_heads[d]), int(self.steps[step]), *found))
        return pd.DataFrame(rows, columns=["arm", "d_head", "step", "entropy", "low", "high"])

    @kept
    def gradients(self) -> pd.DataFrame:
        """Returns arm, d_head, step, weight and the quantiles q05 … q95 of the sizes of the entries
        of its gradient, at the middle learning rate: medians over seeds, layers and heads.
        """
        values = self.gradient[:, :, len(self.learning_rates) // 2]
        flat = np.moveaxis(values, 3, 2)  # [arm d_head step seed layer head weight quantile]
        flat = flat.reshape(*flat.shape[:3], -1, *flat.shape[-2:])
        none = np.isnan(flat).all(3, keepdims=True)
        medians = np.nanmedian(np.where(none, 0.0, flat), axis=3)
        medians = np.where(none[:, :, :, 0], np.nan, medians)
        index = pd.MultiIndex.from_product(
            [self.arms, self.d_heads, self.steps, WEIGHTS],
            names=["arm", "d_head", "step", "weight"],
        )
        names = [f"q{round(100 * at):02d}" for at in QUANTILES]
        frame = pd.DataFrame(medians.reshape(-1, len(names)), index=index, columns=names)
        return frame.reset_index()

    @kept
    def losses(self) -> pd.DataFrame:
        """Returns arm, d_head, learning_rate, loss at the last step, low, high: 95 % intervals over
        seeds; NaN where a run diverged.
        """
        index = pd.MultiIndex.from_product(
            [self.arms, self.d_heads, self.learning_rates], names=["arm", "d_head", "learning_rate"]
        )
        found = intervals.mean_interval(self.loss[..., -1])
        columns = dict(zip(("loss", "low", "high"), map(np.ravel, found), strict=True))
        return pd.DataFrame(columns, index=index).reset_index()

    def figures(self) -> list[Shown]:
        """Returns entropy by width, gradients by step, and losses by learning rate."""
        return sweep_figures(self)

    def summary(self) -> str:
        """Returns each arm at its best learning rate."""
        columns = ["arm", "d_head", "learning_rate", "loss", "low", "high", "entropy_last"]
        return (
            f"validation loss in nats per token after {self.steps[-1]} steps, at each arm's best "
            f"learning rate, with a 95 % interval over n = {len(self.seeds)} seeds; entropy over "
            f"ln(visible keys)\n{self.by_arm()[columns].round(4).to_string(index=False)}"
        )
