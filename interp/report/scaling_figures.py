"""Figures of what the scale of attention scores does."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from interp.analysis.scaling import AttentionScaling
from interp.report.style import BLUE, GREY, style

LAYER_COLOURS = "cividis"


def scaling_curves(result: AttentionScaling) -> Figure:
    """Returns loss, and each head's normalised entropy, against the multiplier of its scores."""
    table = result.to_frame()
    at = _positions_of(result.multipliers)
    n_layers, n_heads = result.loss.shape[1:3]
    with style():
        figure = Figure(figsize=(8.2, 3.3))
        left, right = figure.subplots(1, 2)
        for (layer, head), one in table.groupby(["layer", "head"]):
            if not result.each and (layer, head) != (0, 0):
                continue  # one run: the same loss for every head
            left.plot(
                at, one["loss"], "-", color=BLUE, linewidth=1, alpha=0.6 if result.each else 1
            )
            left.fill_between(at, one["low"], one["high"], color=BLUE, alpha=0.15, linewidth=0)
        left.set_ylabel("loss (nats per token)")
        colours = np.linspace(0.1, 0.9, n_layers)
        for layer in range(n_layers):
            for head in range(n_heads):
                values = result.entropy_normalised[:, layer, head].mean(-1)
                right.plot(at, values, "-", color=_colour(colours[layer]), linewidth=1,
                           label=f"layer {layer}" if head == 0 else None)  # fmt: skip
        right.set_ylabel("entropy / ln(visible keys)")
        right.set_ylim(0, 1.02)
        right.legend(frameon=False, fontsize=7)
        for axes in (left, right):
            _label_multipliers(axes, at, result.multipliers)
        return figure


def _positions_of(multipliers: np.ndarray) -> np.ndarray:
    """Log2 of the multipliers; zero stands one step below the smallest of the others."""
    positive = multipliers[multipliers > 0]
    least = float(np.log2(positive.min())) - 1
    return np.array([np.log2(c) if c > 0 else least for c in multipliers])


def _label_multipliers(axes: Axes, at: np.ndarray, multipliers: np.ndarray) -> None:
    axes.set_xticks(at, [f"{c:.3g}" for c in multipliers], fontsize=7)
    axes.axvline(0, color=GREY, linewidth=0.8, linestyle="--")
    axes.set_xlabel("scores multiplied by (1: the model as it is)")
    axes.grid(axis="y", alpha=0.25)


def _colour(value: float) -> tuple[float, float, float, float]:
    red, green, blue, alpha = colormaps[LAYER_COLOURS](value)
    return red, green, blue, alpha
