"""Figures of what heads look at, what they are named, and how they formed."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from interp.analysis.circuits.paths import PathEffects
from interp.analysis.heads.attention_targets import ROW_SCORES
from interp.analysis.heads.formation_results import Formation
from interp.analysis.heads.label_results import HeadLabels
from interp.analysis.heads.score_results import HeadScores
from interp.figures.old import BLUE, GREY, ORANGE, log_scale, style
from interp.results import intervals

LAYER_COLOURS = "cividis"


def figures_of_heads(
    result: HeadScores | HeadLabels | PathEffects | Formation,
) -> dict[str, tuple[Figure, str]]:
    """Returns name → (figure, caption) of a result about heads."""
    match result:
        case HeadScores():
            n = result.values.shape[-1]
            caption = (
                "Attention of every head to each kind of key (numbers; means over the queries that "
                "can choose), coloured by how far it is from uniform attention (0) towards all of "
                f"it (1). n = {n} sequences, seed {result.provenance.seed}."
            )
            return {"head-scores": (head_scores_map(result), caption)}
        case HeadLabels():
            caption = (
                "Heads whose score is above every null, and what replacing them by their mean does "
                "to the behaviour that the label is about and to a control; bold: confirmed. Bars: "
                f"95 % bootstrap-t over sequences. n = {result.sequences} sequences, seed "
                f"{result.provenance.seed}."
            )
            return {"head-labels": (head_labels_bars(result), caption)}
        case PathEffects():
            n = result.values.shape[-1]
            caption = (
                "What is lost when one head's output is replaced by its mean in the input of one "
                f"reader only. n = {n} sequences, seed {result.provenance.seed}."
            )
            return {"path-effects": (path_effects_map(result), caption)}
        case Formation():
            n, of = result.repeated_loss.shape[1], len(result.steps)
            caption = (
                "Over training, on random tokens that repeat: loss, scores of every head, and the "
                "paths that carry most in the end. Dashed: the change point of the loss, with its "
                f"95 % interval over sequences. n = {n} sequences, {of} checkpoints, seed "
                f"{result.provenance.seed}."
            )
            return {"formation": (formation_curves(result), caption)}


def head_scores_map(result: HeadScores) -> Figure:
    """Returns every head's scores, as the share of the way from uniform attention to all of it."""
    names = [name for name in result.scores if name not in ROW_SCORES]
    layers, heads = result.values.shape[1:3]
    shown = np.empty((len(names), layers * heads))
    values = np.empty_like(shown)
    for row, name in enumerate(names):
        i = result.scores.index(name)
        use = result.usable(i)
        value, null = (x[i][..., use].mean(-1).ravel() for x in (result.values, result.uniform))
        shown[row], values[row] = (value - null) / (1 - null), value
    columns = [f"L{i // heads}.H{i % heads}" for i in range(layers * heads)]
    with style():
        figure = Figure(figsize=(1.9 + 0.34 * len(columns), 1.2 + 0.19 * len(names)))
        axes = figure.subplots()
        image = axes.imshow(shown, cmap="PuOr_r", vmin=-1, vmax=1, aspect="auto")
        for row, column in zip(*np.nonzero(np.abs(shown) >= 0.1), strict=True):
            dark = abs(shown[row, column]) > 0.6
            axes.text(column, row, f"{values[row, column]:.2f}", ha="center", va="center",
                      fontsize=5.5, color="white" if dark else "black")  # fmt: skip
        axes.set_yticks(range(len(names)), names, fontsize=7)
        axes.set_xticks(range(len(columns)), columns, fontsize=7, rotation=90)
        for edge in range(1, layers):
            axes.axvline(edge * heads - 0.5, color="white", linewidth=2)
        bar = figure.colorbar(image, ax=axes, pad=0.01)
        bar.set_label("(score − uniform) / (1 − uniform)", fontsize=7)
        return figure


def head_labels_bars(result: HeadLabels) -> Figure:
    """Returns the effect of each head on what its label is about, beside the control's."""
    table = result.to_frame()
    order = table.sort_values(["layer", "head", "effect"], ascending=[True, True, False])
    names = [f"L{r.layer}.H{r.head}  {r.label}" for r in order.itertuples()]
    with style():
        figure = Figure(figsize=(5.6, 1.3 + 0.24 * max(1, len(names))))
        axes = figure.subplots()
        y = np.arange(len(names))
        for shift, what, colour, marker in ((-0.15, "effect", BLUE, "o"),
                                            (0.15, "control", ORANGE, "s")):  # fmt: skip
            value = order[what].to_numpy()
            ends = (value - order[f"{what}_low"], order[f"{what}_high"] - value)
            reach = np.nan_to_num(np.stack(ends)).clip(min=0)
            name = "matching behaviour" if what == "effect" else "control"
            axes.errorbar(value, y + shift, xerr=reach, fmt=marker, color=colour, markersize=3.5,
                          elinewidth=1, label=name)  # fmt: skip
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks(y, names, fontsize=7)
        for tick, confirmed in zip(axes.get_yticklabels(), order["confirmed"], strict=True):
            tick.set_fontweight("bold" if confirmed else "normal")
            tick.set_color("black" if confirmed else GREY)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlabel("loss without the head, less with it (nats per token)")
        axes.grid(axis="x", alpha=0.25)
        if names:
            figure.legend(*axes.get_legend_handles_labels(), loc="outside upper right", ncols=2,
                          frameon=False)  # fmt: skip
        else:
            axes.text(0.5, 0.5, "no head's score stands above its nulls", ha="center",
                      transform=axes.transAxes, color=GREY)  # fmt: skip
        return figure


def path_effects_map(result: PathEffects) -> Figure:
    """Returns what each path carries, sender by reader, in nats a token."""
    values = result.values.mean(-1)
    limit = float(np.nanmax(np.abs(values))) or 1.0
    with style():
        figure = Figure(figsize=(2.0 + 0.5 * len(result.receivers), 1.2 + 0.3 * len(values)))
        axes = figure.subplots()
        image = axes.imshow(values, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto")
        for row, column in np.ndindex(values.shape):
            value = values[row, column]
            if np.isfinite(value):
                axes.text(column, row, f"{value:.2g}", ha="center", va="center", fontsize=7,
                          color="white" if abs(value) > 0.6 * limit else "black")  # fmt: skip
        axes.set_yticks(range(len(values)), result.senders, fontsize=8)
        axes.set_xticks(range(len(result.receivers)), result.receivers, fontsize=8)
        axes.set_xlabel("reader")
        axes.set_ylabel("head taken away")
        bar = figure.colorbar(image, ax=axes, pad=0.01)
        bar.set_label("loss that the path carries\n(nats per token)", fontsize=7)
        return figure


def formation_curves(result: Formation) -> Figure:
    """Returns small multiples over training: loss on repeats, scores of every head, paths."""
    at = np.maximum(result.steps, 0)
    shown = [name for name in ("previous", "induction") if name in result.scores]
    panels = 1 + len(shown) + (1 if len(result.senders) else 0)
    found = result.change_point() if len(at) >= 3 else None
    layers = result.values.shape[2]
    colours = [colormaps[LAYER_COLOURS](x) for x in np.linspace(0.05, 0.85, layers)]
    with style():
        figure = Figure(figsize=(8.2, 2.4 * -(-panels // 2) + 0.3))
        grid = figure.subplots(-(-panels // 2), 2, squeeze=False, sharex=True).ravel()
        for axes in grid[panels:]:
            axes.set_visible(False)
        first = grid[0]
        for values, name, colour in (
            (result.repeated_loss, "from the second copy on", BLUE),
            (result.first_loss, "in the first copy", GREY),
        ):
            mean, low, high = intervals.mean_interval(values)
            first.plot(at, mean, color=colour, linewidth=1.2, label=name)
            first.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
        log_scale(first, "y")
        first.set_ylabel("loss (nats per token)")
        first.legend(frameon=False, fontsize=7)
        for axes, score in zip(grid[1:], shown, strict=False):
            values = result.values[result.scores.index(score)]
            for layer, head in np.ndindex(values.shape[1:]):
                axes.plot(at, values[:, layer, head], color=colours[layer], linewidth=1,
                          label=f"layer {layer}" if head == 0 else None)  # fmt: skip
            axes.set_ylim(0, 1.02)
            axes.set_ylabel(f"{score} score")
            axes.legend(frameon=False, fontsize=7)
        if len(result.senders):
            axes = grid[1 + len(shown)]
            last = np.nan_to_num(result.paths[..., -1])
            most = np.argsort(-last.ravel())[:4]
            for colour, one in zip((BLUE, ORANGE, "#009e73", "#cc79a7"), most, strict=False):
                s, r = np.unravel_index(one, last.shape)
                axes.plot(at, result.paths[s, r], linewidth=1.2, color=colour,
                          label=f"{result.senders[s]} → {result.receivers[r]}")  # fmt: skip
            axes.axhline(0, color="black", linewidth=0.6)
            axes.set_ylabel("loss carried (nats)")
            axes.legend(frameon=False, fontsize=7, ncols=2, loc="lower center",
                        bbox_to_anchor=(0.5, 1.0))  # fmt: skip
        for axes in grid[:panels]:
            if found is not None and found.step is not None:
                axes.axvline(found.step, color=ORANGE, linewidth=0.9, linestyle="--")
                axes.axvspan(found.low, found.high, color=ORANGE, alpha=0.15, linewidth=0)
            axes.grid(axis="y", alpha=0.25)
        figure.supxlabel("step", fontsize=9)
        return figure
