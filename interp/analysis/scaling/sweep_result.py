"""A finished sweep of the sqrt(d_k) question, as a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Int

from interp.analysis.scaling.arms import WEIGHTS
from interp.analysis.scaling.styles import ARM_STYLES
from interp.analysis.scaling.theory import QUANTILES
from interp.figures.marks import Lines, Panels, Series
from interp.results import intervals
from interp.results.result import Result, Shown, kept

DRAWN = ("sqrt", "unscaled", "matched")  # whose gradients are drawn


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
        entropy, std, and gradient quantiles such as W_Q_q50.
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
        best, rows = self.best_rates(), []
        last = {
            (arm, d): self.loss[arm, d, best[arm, d], :, -1]
            for arm in range(len(self.arms))
            for d in range(len(self.d_heads))
        }
        base = self.arms.index("sqrt") if "sqrt" in self.arms else None
        for (arm, d), losses in last.items():
            loss, low, high = intervals.mean_interval(losses)
            row = {
                "arm": self.arms[arm],
                "d_head": int(self.d_heads[d]),
                "learning_rate": float(self.learning_rates[best[arm, d]]),
                "loss": float(loss),
                "low": float(low),
                "high": float(high),
            }
            if base is not None:
                difference = intervals.mean_interval(losses - last[base, d])
                for name, value in zip(("", "_low", "_high"), difference, strict=True):
                    row[f"against_sqrt{name}"] = float(value)
            at = (arm, d, best[arm, d])
            row |= {
                "predicted_std": float(self.predicted_std[arm, d]),
                "std_first": float(self.std[at][:, 0].mean()),
                "predicted_entropy": float(self.predicted_entropy[arm, d]),
                "entropy_first": float(self.entropy[at][:, 0].mean()),
                "std_last": float(self.std[at][:, -1].mean()),
                "entropy_last": float(self.entropy[at][:, -1].mean()),
                "n": len(self.seeds),
            }
            rows.append(row)
        return pd.DataFrame(rows)

    def summary(self) -> str:
        """Returns the last loss of each arm and width at its best rate, with its interval."""
        columns = ["arm", "d_head", "learning_rate", "loss", "low", "high", "entropy_last"]
        table = self.by_arm()[columns].round(4).to_string(index=False)
        return (
            f"validation loss in nats per token after {self.steps[-1]} steps, at each arm's best "
            f"learning rate, with a 95 % interval over n = {len(self.seeds)} seeds; entropy over "
            f"ln(visible keys)\n{table}"
        )

    def figures(self) -> list[Shown]:
        """Returns entropy by width, sizes of gradients by step, and losses by learning rate."""
        n = f"n = {len(self.seeds)} seeds; trained on {self.text}"
        middle = self.learning_rates[len(self.learning_rates) // 2]
        entropy = (
            "Entropy of attention rows by head width, each arm at its best learning rate; bars: "
            "95 % intervals over seeds. Dashed: independent normal scores of the std that the "
            f"initial weights imply. {n}."
        )
        gradients = (
            "Sizes of the entries of ∂L/∂W_Q on held-out windows: median, and band from 5 to 95 %, "
            f"at learning rate {middle:g}. {n}."
        )
        losses = (
            f"Validation loss after {self.steps[-1]} steps by learning rate; bars: 95 % intervals "
            f"over seeds; a run that diverged leaves its point out. {n}."
        )
        first, last = self._entropy(0), self._entropy(-1)
        return [
            Shown(name="sweep-entropy", caption=entropy,
                  mark=Panels(marks=(first, last), columns=2, share=True)),
            Shown(name="sweep-gradients", caption=gradients, mark=self._by_width(self._gradients)),
            Shown(name="sweep-losses", caption=losses, mark=self._by_width(self._losses)),
        ]  # fmt: skip

    def _by_width(self, draw: Callable[[int], Lines]) -> Panels:
        widths = range(len(self.d_heads))
        return Panels(marks=tuple(map(draw, widths)), columns=len(self.d_heads), share=True)

    def _styled(self, arm: int, values: np.ndarray, **options: Any) -> Series:
        style = ARM_STYLES[self.arms[arm]]
        given = {"colour": style.colour, "marker": style.marker, "name": style.name} | options
        return Series(values=values, **given)

    def _entropy(self, step: int) -> Lines:
        """Entropy by width at one step, at each arm's best rate; at the first beside theory's."""
        best, series = self.best_rates(), []
        for arm in range(len(self.arms)):
            by_seed = np.stack(
                [self.entropy[arm, d, best[arm, d], :, step].mean((-1, -2))
                 for d in range(len(self.d_heads))]
            )  # fmt: skip
            mean, low, high = intervals.mean_interval(by_seed)
            series.append(self._styled(arm, mean, low=low, high=high, line=step != 0))
            if step == 0:
                dashed = {"name": "", "marker": "", "dashed": True}
                series.append(self._styled(arm, self.predicted_entropy[arm], **dashed))
        return Lines(
            x=self.d_heads, series=tuple(series), x_label="d_head", x_scale="log2", y_low=0,
            y_high=1.03, y_label="entropy / ln(visible keys)", dodge=True,
            ticks=tuple((float(d), str(d)) for d in self.d_heads),
            title="step 0; dashed: theory" if step == 0 else f"step {self.steps[-1]}",
        )  # fmt: skip

    def gradient_bands(self, weight: str = "W_Q") -> np.ndarray:
        """Returns [arm, d_head, step, quantile]: medians over seeds, layers, heads."""
        rate, w = len(self.learning_rates) // 2, WEIGHTS.index(weight)
        values = self.gradient[:, :, rate, ..., w, :]  # [arm d_head seed step layer head quantile]
        return np.asarray(np.nanmedian(values, axis=(2, 4, 5)))

    def _gradients(self, d: int) -> Lines:
        bands, at = self.gradient_bands(), np.arange(len(self.steps))
        arms = [arm for arm in self.arms if arm in DRAWN] or list(self.arms[:3])
        series = []
        for arm in map(self.arms.index, arms):
            low, middle, high = bands[arm, d][:, [0, 2, -1]].T
            series.append(self._styled(arm, middle, low=low, high=high))
        few = at[:: max(1, len(at) // 5)]
        return Lines(
            x=at, series=tuple(series), x_label="step (log-spaced)", y_scale="log",
            y_label="|entry of ∂L/∂W_Q| (nats per unit)", title=f"d_head = {self.d_heads[d]}",
            ticks=tuple((float(i), str(self.steps[i])) for i in few),
        )  # fmt: skip

    def _losses(self, d: int) -> Lines:
        series = []
        for arm in range(len(self.arms)):
            mean, low, high = intervals.mean_interval(self.loss[arm, d, :, :, -1])
            series.append(self._styled(arm, mean, low=low, high=high))
        return Lines(
            x=self.learning_rates, series=tuple(series), x_label="peak learning rate",
            x_scale="log", y_label="validation loss (nats per character)", dodge=True,
            title=f"d_head = {self.d_heads[d]}",
            ticks=tuple((float(rate), f"{rate:g}") for rate in self.learning_rates),
        )  # fmt: skip
