"""Figures of what the scale of attention scores does."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from interp.analysis.scaling.arms import WEIGHTS
from interp.analysis.scaling.rescaled import AttentionScaling
from interp.analysis.scaling.sweep import ScalingSweep
from interp.figures.old import BLUE, GREY, log_scale, style
from interp.results import intervals

LAYER_COLOURS = "cividis"
ARM_STYLES = {  # name in figures, colour (Okabe and Ito's, safe for the colour-blind), marker
    "sqrt": ("q·k / √d", "#0072b2", "o"),
    "unscaled": ("q·k", "#d55e00", "s"),
    "inverse": ("q·k / d", "#009e73", "^"),
    "learned": ("learned scale", "#56b4e9", "v"),
    "qk-norm": ("QK-norm", "#cc79a7", "D"),
    "matched": ("q·k, start matched", "#e69f00", "P"),
}


def figures_of_scaling(result: AttentionScaling | ScalingSweep) -> dict[str, tuple[Figure, str]]:
    """Returns name → (figure, caption) of a result about the scale of attention scores."""
    match result:
        case AttentionScaling():
            n = result.loss.shape[3]
            which = "one head at a time" if result.each else "all heads at once"
            caption = (
                f"Attention scores multiplied, {which}; inputs {result.inputs}. Left: loss, band: "
                "95 % bootstrap-t over sequences of the paired difference from the model as it is. "
                "Right: entropy of each head's rows t ≥ 1 over ln of the number of visible keys, "
                f"averaged after taking it. n = {n} sequences, seed {result.provenance.seed}."
            )
            name = f"scaling-{'each' if result.each else 'all'}-{result.inputs.replace(' ', '-')}"
            return {name: (scaling_curves(result), caption)}
        case ScalingSweep():
            n = f"n = {len(result.seeds)} seeds; trained on {result.text}"
            middle = result.learning_rates[len(result.learning_rates) // 2]
            return {
                "sweep-entropy": (
                    sweep_entropy(result),
                    "Entropy of attention rows by head width, each arm at its best learning rate; "
                    "bars: 95 % intervals over seeds. Dashed: independent normal scores of the "
                    f"std that the initial weights imply. {n}.",
                ),
                "sweep-gradients": (
                    sweep_gradients(result),
                    "Sizes of the entries of ∂L/∂W_Q on held-out windows: median, and band from 5 "
                    f"to 95 %, at learning rate {middle:g}. {n}.",
                ),
                "sweep-losses": (
                    sweep_losses(result),
                    f"Validation loss after {result.steps[-1]} steps by learning rate; bars: 95 % "
                    f"intervals over seeds; a run that diverged leaves its point out. {n}.",
                ),
            }


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


# ---- the sweep ----------------------------------------------------------------------------------


def sweep_entropy(result: ScalingSweep) -> Figure:
    """Returns entropy against d_head at the first and the last step, with theory's for the first.

    Each arm at its own best learning rate; bars: 95 % intervals over seeds.
    """
    best = result.best_rates()
    with style():
        figure = Figure(figsize=(8.2, 3.4))
        panels = figure.subplots(1, 2, sharey=True)
        for axes, step in zip(panels, (0, -1), strict=True):
            for a, arm in enumerate(result.arms):
                name, colour, marker = ARM_STYLES[arm]
                by_seed = np.stack(
                    [result.entropy[a, d, best[a, d], :, step].mean((-1, -2))
                     for d in range(len(result.d_heads))]
                )  # fmt: skip
                mean, low, high = intervals.mean_interval(by_seed)
                reach = np.nan_to_num(np.stack((mean - low, high - mean)))
                shift = 2 ** (0.05 * (a - (len(result.arms) - 1) / 2))  # else they hide each other
                axes.errorbar(
                    result.d_heads * shift, mean, yerr=reach, fmt=marker, color=colour,
                    markersize=4, elinewidth=1, linestyle="-" if step else "none",
                    linewidth=0.8, label=name,
                )  # fmt: skip
                if step == 0:
                    axes.plot(result.d_heads, result.predicted_entropy[a], color=colour,
                              linewidth=0.9, linestyle="--")  # fmt: skip
            axes.set_xscale("log", base=2)
            axes.set_xticks(result.d_heads, [str(d) for d in result.d_heads])
            axes.minorticks_off()
            axes.set_xlabel("d_head")
            axes.set_ylim(0, 1.03)
            axes.grid(axis="y", alpha=0.25)
        panels[0].set_title("step 0; dashed: theory", loc="left")
        panels[1].set_title(f"step {result.steps[-1]}", loc="left")
        panels[0].set_ylabel("entropy / ln(visible keys)")
        figure.legend(*panels[1].get_legend_handles_labels(), loc="outside lower center",
                      ncols=len(result.arms), frameon=False, fontsize=7.5)  # fmt: skip
        return figure


def sweep_gradients(result: ScalingSweep, weight: str = "W_Q") -> Figure:
    """Returns the median, and the band from 5 to 95 %, of the entries of ∂L/∂weight by step.

    One panel a head width; "sqrt", "unscaled" and "matched", as far as they were trained, at the
    middle learning rate; medians over seeds, layers and heads of each quantile.
    """
    arms = [arm for arm in result.arms if arm in ("sqrt", "unscaled", "matched")]
    arms = arms or list(result.arms[:3])
    rate, w = len(result.learning_rates) // 2, WEIGHTS.index(weight)
    at = np.arange(len(result.steps))
    with style():
        figure = Figure(figsize=(1.0 + 2.3 * len(result.d_heads), 3.2))
        panels = figure.subplots(1, len(result.d_heads), sharey=True, squeeze=False)[0]
        for d, axes in enumerate(panels):
            for arm in arms:
                name, colour, marker = ARM_STYLES[arm]
                values = result.gradient[result.arms.index(arm), d, rate, ..., w, :]
                bands = np.nanmedian(values, axis=(0, 2, 3))  # over seed, layer, head
                axes.plot(at, bands[:, 2], color=colour, marker=marker, markersize=3,
                          linewidth=1, label=name)  # fmt: skip
                axes.fill_between(at, bands[:, 0], bands[:, -1], color=colour, alpha=0.15,
                                  linewidth=0)  # fmt: skip
            log_scale(axes, "y")
            few = at[:: max(1, len(at) // 5)]
            axes.set_xticks(few, [str(result.steps[i]) for i in few], fontsize=7)
            axes.set_title(f"d_head = {result.d_heads[d]}", loc="left")
            axes.set_xlabel("step (log-spaced)")
            axes.grid(axis="y", alpha=0.25)
        panels[0].set_ylabel(f"|entry of ∂L/∂{weight}| (nats per unit)")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center",
                      ncols=len(arms), frameon=False, fontsize=7.5)  # fmt: skip
        return figure


def sweep_losses(result: ScalingSweep) -> Figure:
    """Returns the last validation loss against the learning rate, one panel a head width.

    Bars: 95 % intervals over seeds. A run that diverged leaves its point out.
    """
    rates = result.learning_rates
    with style():
        figure = Figure(figsize=(1.0 + 2.3 * len(result.d_heads), 3.2))
        panels = figure.subplots(1, len(result.d_heads), sharey=True, squeeze=False)[0]
        for d, axes in enumerate(panels):
            for a, arm in enumerate(result.arms):
                name, colour, marker = ARM_STYLES[arm]
                mean, low, high = intervals.mean_interval(result.loss[a, d, :, :, -1])
                reach = np.nan_to_num(np.stack((mean - low, high - mean)))
                shift = 1 + 0.04 * (a - (len(result.arms) - 1) / 2)
                axes.errorbar(rates * shift, mean, yerr=reach, color=colour, marker=marker,
                              markersize=3.5, linewidth=0.9, label=name)  # fmt: skip
            axes.set_xscale("log")
            axes.set_xticks(rates, [f"{rate:g}" for rate in rates], fontsize=7)
            axes.minorticks_off()
            axes.set_title(f"d_head = {result.d_heads[d]}", loc="left")
            axes.set_xlabel("peak learning rate")
            axes.grid(axis="y", alpha=0.25)
        panels[0].set_ylabel("validation loss (nats per character)")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center",
                      ncols=len(result.arms), frameon=False, fontsize=7.5)  # fmt: skip
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
