"""What rescaling a model's scores does, as a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from interp.figures.marks import Lines, Panels, Series, Span
from interp.figures.palette import of_layer
from interp.results import intervals
from interp.results.result import Result
from interp.results.shown import Finding, Shown, kept


@dataclass(frozen=True, kw_only=True)
class AttentionScaling(Result):
    """Entropy, largest weight and loss of a model whose scores are multiplied.

    All are [multiplier, layer, head, sequence]. `entropy` (nats), `entropy_normalised` (each row's
    entropy divided by ln of the number of keys it sees) and `largest` (weight) are means over rows
    t ≥ 1; entropies are averaged, never maps. `loss`, in nats per token, is that of the run whose
    scores were multiplied: in all heads at once (`each` False: the same number for every head), or
    in that head only.
    """

    AXES: ClassVar = {
        "multipliers": ("multiplier",),
        "entropy": ("multiplier", "layer", "head", "sequence"),
        "entropy_normalised": ("multiplier", "layer", "head", "sequence"),
        "largest": ("multiplier", "layer", "head", "sequence"),
        "loss": ("multiplier", "layer", "head", "sequence"),
    }
    SECTION: ClassVar = "scaling"
    HEADING: ClassVar = "What the scale of attention scores does"
    multipliers: np.ndarray
    entropy: np.ndarray
    entropy_normalised: np.ndarray
    largest: np.ndarray
    loss: np.ndarray
    each: bool
    inputs: str

    @property
    def name(self) -> str:
        how = "each" if self.each else "all"
        return f"attention-scaling-{how}-{self.inputs.replace(' ', '-')}"

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns multiplier, layer, head, entropy_nats, entropy_bits, entropy_normalised,
        max_weight, loss, and low and high: 95 % intervals, over sequences, of the loss's difference
        from the model as it is (paired), added to that loss.
        """
        shape = self.loss.shape[:3]
        index = pd.MultiIndex.from_product(
            [self.multipliers, range(shape[1]), range(shape[2])],
            names=["multiplier", "layer", "head"],
        )
        as_it_is = self.loss[int(np.argmin(np.abs(self.multipliers - 1)))]
        _, low, high = intervals.mean_interval(self.loss - as_it_is, seed=self.provenance.seed or 0)
        base = as_it_is.mean(-1)
        columns = {
            "entropy_nats": self.entropy.mean(-1),
            "entropy_bits": self.entropy.mean(-1) / np.log(2),
            "entropy_normalised": self.entropy_normalised.mean(-1),
            "max_weight": self.largest.mean(-1),
            "loss": self.loss.mean(-1),
            "low": base + low,
            "high": base + high,
        }
        frame = pd.DataFrame({name: value.ravel() for name, value in columns.items()}, index=index)
        frame["n"] = self.loss.shape[3]
        return frame.reset_index()

    def figures(self) -> list[Shown]:
        """Returns loss, and each head's entropy, against the multiplier of the scores."""
        which = "one head at a time" if self.each else "all heads at once"
        n = self.loss.shape[3]
        caption = (
            f"Attention scores multiplied, {which}; inputs {self.inputs}. Left: loss, band: 95 % "
            "bootstrap-t over sequences of the paired difference from the model as it is. Right: "
            "entropy of each head's rows t ≥ 1 over ln of the number of visible keys, averaged "
            f"after taking it. n = {n} sequences, seed {self.provenance.seed}."
        )
        how = "each" if self.each else "all"
        name = f"scaling-{how}-{self.inputs.replace(' ', '-')}"
        panels = Panels(marks=(self._losses(), self._entropies()), columns=2)
        return [Shown(name=name, caption=caption, mark=panels)]

    def _losses(self) -> Lines:
        table, series = self.to_frame(), []
        for (layer, head), one in table.groupby(["layer", "head"]):
            if self.each or (layer, head) == (0, 0):  # in one run all heads have the same loss
                series.append(
                    Series(
                        name="loss" if (layer, head) == (0, 0) else "",
                        values=one["loss"].to_numpy(),
                        low=one["low"].to_numpy(),
                        high=one["high"].to_numpy(),
                        faint=self.each,
                    )
                )
        return self._lines(series, "loss (nats per token)", legend=False)

    def _entropies(self) -> Lines:
        layers, heads = self.loss.shape[1:3]
        means = self.entropy_normalised.mean(-1)
        series = [
            Series(name=f"layer {layer}" if head == 0 else "", values=means[:, layer, head],
                   colour=of_layer(layer, layers))
            for layer in range(layers) for head in range(heads)
        ]  # fmt: skip
        return self._lines(series, "entropy / ln(visible keys)", y_low=0.0, y_high=1.02)

    def _lines(
        self,
        series: list[Series],
        y_label: str,
        *,
        legend: bool = True,
        y_low: float = float("nan"),
        y_high: float = float("nan"),
    ) -> Lines:
        """Series over log2 of the multipliers; zero stands one step below the smallest."""
        least = float(np.log2(self.multipliers[self.multipliers > 0].min())) - 1
        at = np.array([np.log2(c) if c > 0 else least for c in self.multipliers])
        ticks = tuple((x, f"{c:.3g}") for x, c in zip(at.tolist(), self.multipliers, strict=True))
        return Lines(
            x=at, series=tuple(series), y_label=y_label, ticks=ticks, legend=legend, y_low=y_low,
            y_high=y_high, spans=(Span(at=0.0),), x_label="scores multiplied by (1: as it is)",
        )  # fmt: skip

    def summary(self) -> str:
        """Returns loss and entropy at each multiplier, and how they were measured."""
        by = ["multiplier", "layer", "head"] if self.each else ["multiplier"]
        columns = ["loss", "low", "high", "entropy_normalised"]
        means = self.to_frame().groupby(by, sort=False)[columns].mean().reset_index()
        lines = [
            f"scores multiplied in {'one head at a time' if self.each else 'all heads'}; n = "
            f"{self.loss.shape[3]} sequences; loss in nats per token with a 95 % interval of its "
            f"difference from ×1, seed {self.provenance.seed}; entropy over ln(visible keys)"
        ]
        for row in means.to_dict("records"):
            where = f"  L{row['layer']}.H{row['head']}" if self.each else ""
            lines.append(
                f"  × {row['multiplier']:<6g}{where}  loss {row['loss']:.4f} [{row['low']:.4f}, "
                f"{row['high']:.4f}]  entropy {row['entropy_normalised']:.3f}"
            )
        return "\n".join(lines)

    def finding(self) -> Finding | None:
        """Returns the multiplier at which the loss is least; of all heads together only."""
        if self.each:
            return None
        loss = self.loss[:, 0, 0].mean(-1)
        best = float(self.multipliers[int(loss.argmin())])
        own = float(loss[int(np.argmin(np.abs(self.multipliers - 1)))])
        text = (
            f"Its loss is least with its attention scores as they are ({own:.3f} nats)."
            if best == 1
            else f"Its loss is least with its attention scores multiplied by {best:g}: "
            f"{loss.min():.3f} nats against {own:.3f} as it is."
        )
        return Finding(text=text, rank=3)
