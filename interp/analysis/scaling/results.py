"""What multiplying a model's attention scores did, and how attention starts: results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from interp.analysis.scaling.looks import ENTROPY, LOOKS, ticks_of
from interp.figures.marks import Lines, Panels, Series, Span
from interp.figures.palette import of_layer
from interp.results import intervals
from interp.results.result import Finding, Result, Shown, kept


@dataclass(frozen=True, kw_only=True, repr=False)
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
        which = "each" if self.each else "all"
        return f"attention-scaling-{which}-{self.inputs.replace(' ', '-')}"

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
        """Returns loss, and each head's normalised entropy, against the multiplier."""
        at = _places_of(self.multipliers)
        common = {
            "x": at, "x_label": "scores multiplied by (1: the model as it is)",
            "ticks": tuple((x, f"{c:.3g}") for x, c in zip(at, self.multipliers, strict=True)),
            "spans": (Span(at=0.0),),
        }  # fmt: skip
        loss = Lines(series=self._losses(), y_label="loss (nats per token)", **common)
        entropy = Lines(series=self._entropies(), y_label=ENTROPY, y_low=0.0, y_high=1.02, **common)
        which = "one head at a time" if self.each else "all heads at once"
        caption = (
            f"Attention scores multiplied, {which}; inputs {self.inputs}. Left: loss, band: "
            "95 % bootstrap-t over sequences of the paired difference from the model as it is. "
            "Right: entropy of each head's rows t ≥ 1 over ln of the number of visible keys, "
            f"averaged after taking it. n = {self.loss.shape[3]} sequences, seed "
            f"{self.provenance.seed}."
        )
        name = self.name.removeprefix("attention-")
        return [Shown(name=name, caption=caption, mark=Panels(marks=(loss, entropy), columns=2))]

    def _losses(self) -> tuple[Series, ...]:
        """With one run for all heads they share one line."""
        heads = self.to_frame().groupby(["layer", "head"], sort=True)
        return tuple(
            Series(name="", values=one["loss"].to_numpy(), low=one["low"].to_numpy(),
                   high=one["high"].to_numpy(), faint=self.each)
            for where, one in heads if self.each or where == (0, 0)
        )  # fmt: skip

    def _entropies(self) -> tuple[Series, ...]:
        n_layers = self.loss.shape[1]
        return tuple(
            Series(name="" if head else f"layer {layer}", colour=of_layer(layer, n_layers),
                   values=one["entropy_normalised"].to_numpy())
            for (layer, head), one in self.to_frame().groupby(["layer", "head"], sort=True)
        )  # fmt: skip

    def summary(self) -> str:
        """Returns loss and entropy by multiplier, and by head where each had a run of its own."""
        n, seed = self.loss.shape[3], self.provenance.seed
        by = ["multiplier", "layer", "head"] if self.each else ["multiplier"]
        columns = ["loss", "low", "high", "entropy_normalised"]
        means = self.to_frame().groupby(by, sort=False)[columns].mean().reset_index()
        lines = [
            f"scores multiplied in {'one head at a time' if self.each else 'all heads'}; n = {n} "
            f"sequences; loss in nats per token with a 95 % interval of its difference from ×1, "
            f"seed {seed}; entropy over ln(visible keys)"
        ]
        for row in means.to_dict("records"):
            where = f"  L{row['layer']}.H{row['head']}" if self.each else ""
            lines.append(
                f"  × {row['multiplier']:<6g}{where}  loss {row['loss']:.4f} [{row['low']:.4f}, "
                f"{row['high']:.4f}]  entropy {row['entropy_normalised']:.3f}"
            )
        return "\n".join(lines)

    def finding(self) -> Finding | None:
        """Returns where its loss is least, with the scores of all heads multiplied at once."""
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


def _places_of(multipliers: np.ndarray) -> np.ndarray:
    """Log2 of the multipliers; zero stands one step below the smallest of the others."""
    positive = multipliers[multipliers > 0]
    least = float(np.log2(positive.min())) - 1
    return np.array([np.log2(c) if c > 0 else least for c in multipliers])


@dataclass(frozen=True, kw_only=True, repr=False)
class InitialAttention(Result):
    """Untrained attention of one head, by arm ("unscaled", "sqrt", "inverse") and head width.

    `std` [arm, d_head] of the scores within a row and its prediction `predicted_std`; `entropy`
    [arm, d_head, seed] over ln(visible keys), and `predicted_entropy` [arm, d_head]: theory's, of
    independent normal scores of the predicted std. `init`: which initial weights. There is no one
    model; the provenance has the tokens.
    """

    AXES: ClassVar = {
        "d_heads": ("d_head",),
        "predicted_std": ("arm", "d_head"),
        "std": ("arm", "d_head", "seed"),
        "predicted_entropy": ("arm", "d_head"),
        "entropy": ("arm", "d_head", "seed"),
    }
    NAMES: ClassVar = {"arms": "arm"}
    SECTION: ClassVar = "scaling"
    HEADING: ClassVar = "Attention before training"
    arms: tuple[str, ...]
    d_heads: np.ndarray
    predicted_std: np.ndarray
    std: np.ndarray
    predicted_entropy: np.ndarray
    entropy: np.ndarray
    init: str

    @property
    def name(self) -> str:
        return f"initial-attention-{self.init}"

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns init, arm, d_head, predicted_std, std, predicted_entropy, entropy, low, high (95
        % over the models), n; widths vary slowest.
        """
        entropy, low, high = intervals.mean_interval(self.entropy)
        columns = {
            "predicted_std": self.predicted_std, "std": self.std.mean(-1),
            "predicted_entropy": self.predicted_entropy, "entropy": entropy, "low": low,
            "high": high,
        }  # fmt: skip
        index = pd.MultiIndex.from_product([self.d_heads, self.arms], names=["d_head", "arm"])
        frame = pd.DataFrame({k: v.T.ravel() for k, v in columns.items()}, index=index)
        frame = frame.reset_index()[["arm", "d_head", *columns]]
        frame.insert(0, "init", self.init)
        return frame.assign(n=self.entropy.shape[2])

    def figures(self) -> list[Shown]:
        """Returns entropy against head width, theory's dashed."""
        table, series = self.to_frame(), []
        for arm in self.arms:
            look, one = LOOKS[arm], table[table["arm"] == arm]
            mean, low, high = (one[name].to_numpy() for name in ("entropy", "low", "high"))
            series.append(Series(name=look.name, values=mean, low=low, high=high,
                                 colour=look.colour, marker=look.marker, line=False))  # fmt: skip
            series.append(Series(name="", values=one["predicted_entropy"].to_numpy(),
                                 colour=look.colour, dashed=True))  # fmt: skip
        what = "nn.Linear's initial weights" if self.init == "linear" else "normal, std 0.02"
        mark = Lines(
            title=what, x=self.d_heads, series=tuple(series), x_scale="log2", x_label="d_head",
            y_label=ENTROPY, y_low=0.0, y_high=1.03, ticks=ticks_of(self.d_heads), dodge=True,
        )  # fmt: skip
        n = self.entropy.shape[2]
        caption = (
            f"Entropy of untrained attention by head width ({what}). Dashed: theory; bars: 95 % "
            f"intervals over n = {n} models, seeds 0 to {n - 1}."
        )
        return [Shown(name=self.name, caption=caption, mark=mark)]

    def summary(self) -> str:
        """Returns the table, with what it is of."""
        shown = ["arm", "d_head", "predicted_std", "std", "predicted_entropy", "entropy", "low",
                 "high"]  # fmt: skip
        table = self.to_frame()[shown].to_string(index=False, float_format="{:.3f}".format)
        return (
            f"untrained attention, initial weights {self.init!r}; entropy over ln(visible keys) "
            f"with a 95 % interval over n = {self.entropy.shape[2]} models\n{table}"
        )
