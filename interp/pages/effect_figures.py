"""Figures of what was caused: effects, Shapley values, patches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from interp.analysis.causal.effects import ComponentEffects
from interp.analysis.causal.patching import Patching
from interp.analysis.causal.shapley import ShapleyValues
from interp.figures.old import BLUE, GREY, ORANGE, PURPLE, glyph, signed_bars, style

UNITS = {"log_prob": "nats", "loss": "nats", "kl": "nats", "centered": "logits",
         "foil": "logits", "probability": "logits", "raw": "logits"}  # fmt: skip


def effects_bars(result: ComponentEffects) -> Figure:
    """Returns direct and total effect of each component, with intervals."""
    table = result.to_frame()
    rows = np.arange(len(table))
    with style():
        figure = Figure(figsize=(5.6, 1.1 + 0.2 * len(table)))
        axes = figure.subplots()
        for name, colour, marker, shift in (
            ("direct", ORANGE, "o", -0.16), ("total", BLUE, "s", 0.16),
        ):  # fmt: skip
            axes.errorbar(
                table[name], rows + shift, xerr=_reach(table, name), fmt=marker, color=colour,
                markersize=3.5, elinewidth=1.2, capsize=0, label=name,
            )  # fmt: skip
        is_log = _symlog(axes, "x", table[["direct", "total"]].to_numpy())
        axes.axvline(0, color="black", linewidth=0.8)
        axes.grid(axis="x", alpha=0.25)
        axes.set_yticks(rows, table["component"], fontsize=7)
        axes.set_ylim(len(table) - 0.4, -0.6)
        scale = "; linear between the inner ticks" if is_log else ""
        axes.set_xlabel(f"effect on {_metric(result.metric)}{scale}")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper right", ncols=2,
                      frameon=False)  # fmt: skip
        return figure


def effects_scatter(result: ComponentEffects) -> Figure:
    """Returns direct against total effects, one panel a layer, with their rank correlation."""
    table, agreement = result.to_frame(), result.agreement().set_index("layer")
    layers = [layer for layer in sorted(set(table["layer"])) if str(layer) in agreement.index]
    layers = [layer for layer in layers if (table["layer"] == layer).sum() > 2] or layers
    with style():
        n_columns = min(len(layers), 4) or 1
        n_rows = -(-max(len(layers), 1) // n_columns)
        figure = Figure(figsize=(0.5 + 2.5 * n_columns, 0.5 + 2.6 * n_rows))
        panels = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
        for axes in panels[len(layers) :]:
            axes.remove()
        for axes, layer in zip(panels, layers, strict=False):
            some = table[table["layer"] == layer]
            x, y = some["direct"].to_numpy(), some["total"].to_numpy()
            axes.errorbar(
                x, y, xerr=_reach(some, "direct"), yerr=_reach(some, "total"),
                fmt="o", color=BLUE, markersize=3.5, elinewidth=0.9,
            )  # fmt: skip
            flagged = some["signs_disagree"].to_numpy()
            axes.plot(x[flagged], y[flagged], "o", color=PURPLE, markersize=9, mfc="none")
            both = np.concatenate((x, y))
            _symlog(axes, "x", both)
            _symlog(axes, "y", both)
            limits = (*axes.get_xlim(), *axes.get_ylim())
            axes.axline((0, 0), (1, 1), color=GREY, linewidth=0.8, zorder=0)
            axes.set_xlim(min(limits), max(limits))
            axes.set_ylim(min(limits), max(limits))
            rank = agreement.loc[str(layer)].to_dict()
            n = int(rank["n"])
            title = f"layer {layer}: {n} component{'s' if n > 1 else ''}"
            if n > 2:
                title = (
                    f"layer {layer}: rank correlation {rank['spearman']:.2f}\n"
                    f"[{rank['spearman_low']:.2f}, {rank['spearman_high']:.2f}], {n} components"
                )
            axes.set_title(title, fontsize=7.5)
            axes.tick_params(labelsize=6.5)
        figure.supxlabel(f"direct effect on {_metric(result.metric)}", fontsize=8)
        figure.supylabel("total effect", fontsize=8)
        figure.draw_without_rendering()  # lays the panels out, so that labels know their room
        for axes, layer in zip(panels, layers, strict=False):
            some = table[table["layer"] == layer]
            _name_largest(axes, some["component"].tolist(), some[["direct", "total"]].to_numpy())
        return figure


def _name_largest(
    axes: Axes, names: Sequence[str], points: np.ndarray, most: int = 3, size: float = 6.5
) -> None:
    """Names the points furthest from y = 0, each where its name is inside, covers no other name and
    is nearest to its own point, so covers none; a point without such room stays unnamed."""
    pixels = axes.figure.dpi / 72
    at = axes.transData.transform(points) / pixels  # in points, 1/72 inch
    room = np.asarray(axes.bbox.extents) / pixels  # left, bottom, right, top
    named = np.zeros((0, 4))
    for i in np.argsort(-np.abs(points[:, 1]))[:most]:
        width = 0.65 * size * len(names[i])
        for dx, dy in ((4, 4), (4, -10), (-4 - width, 4), (-4 - width, -10), (8, -3),
                       (-8 - width, -3)):  # fmt: skip
            low = at[i] + np.array((dx, dy - 1))
            high = low + np.array((width, size + 1))
            gaps = np.hypot(*np.maximum(0, np.maximum(low - at, at - high)).T)  # to every point
            free = (named[:, 2:] < low).any(1) | (named[:, :2] > high).any(1)
            inside = (low > room[:2]).all() and (high < room[2:]).all()
            if inside and free.all() and gaps[i] <= gaps.min() + 1e-9:
                axes.annotate(names[i], points[i], (dx, dy), textcoords="offset points",
                              fontsize=size, color=GREY)  # fmt: skip
                named = np.vstack((named, [*low, *high]))
                break


def shapley_bars(result: ShapleyValues) -> Figure:
    """Returns each component's Shapley value, averaged over all positions."""
    values = result.values.mean((1, 2))
    with style():
        figure = Figure(figsize=(5.2, 0.9 + 0.19 * len(values)))
        axes = figure.subplots()
        signed_bars(axes, result.components, values, digits=3)
        axes.set_xlabel(f"Shapley value of {_metric(result.metric)}, mean over positions")
        return figure


def patching_map(result: Patching, sequence: int = 0) -> Figure:
    """Returns the share of the difference that each patch moves, layer × position or head.

    Both prompts are written below a map by position, the clean one above the corrupted one; where
    they differ, in bold. Patches that are not on such a grid (paths) are drawn as bars.
    """
    by_position = result.what.endswith("by position")
    shares = result.shares
    with style():
        if not (by_position or result.what.endswith("by head")):
            return _patching_bars(result)
        layers, places = np.unique(result.layers), np.unique(result.places)
        grid = np.full((len(layers), len(places)), np.nan)
        grid[np.searchsorted(layers, result.layers), np.searchsorted(places, result.places)] = (
            shares
        )
        limit = max(1.0, float(np.nanmax(np.abs(grid)))) if np.isfinite(grid).any() else 1.0
        width = 1.7 + (0.115 if by_position else 0.5) * len(places)
        figure = Figure(figsize=(max(width, 3.4), 1.3 + 0.32 * len(layers)))
        axes = figure.subplots()
        image = axes.imshow(grid, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto",
                            interpolation="nearest")  # fmt: skip
        axes.set_yticks(range(len(layers)), [f"L{layer}" for layer in layers], fontsize=7)
        if by_position:
            _both_prompts(axes, result, sequence, places)
        else:
            axes.set_xticks(range(len(places)), [f"H{head}" for head in places], fontsize=7)
            axes.set_xlabel("head")
            for i, j in np.ndindex(*grid.shape):
                dark = abs(grid[i, j]) > 0.6 * limit
                axes.text(j, i, f"{grid[i, j]:.2f}", ha="center", va="center", fontsize=6.5,
                          color="white" if dark else "black")  # fmt: skip
        bar = figure.colorbar(image, ax=axes, pad=0.02)
        bar.set_label("share of the\ndifference moved", fontsize=7)
        axes.set_title(_question(result), fontsize=8)
        return figure


def _both_prompts(axes: Axes, result: Patching, sequence: int, places: np.ndarray) -> None:
    clean, corrupted = result.clean_tokens[sequence], result.corrupted_tokens[sequence]
    labels = [
        f"{glyph(result.characters, int(clean[p]))}\n{glyph(result.characters, int(corrupted[p]))}"
        for p in places
    ]
    axes.set_xticks(range(len(places)), labels, fontsize=6)
    for p, label in zip(places, axes.get_xticklabels(), strict=True):
        label.set_fontweight("bold" if clean[p] != corrupted[p] else "normal")
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel("position (above: clean,\nbelow: corrupted)")


def _patching_bars(result: Patching) -> Figure:
    shares = result.shares
    figure = Figure(figsize=(5.2, 1.1 + 0.19 * len(shares)))
    axes = figure.subplots()
    signed_bars(axes, result.labels, shares)
    axes.set_xlabel(f"share of the difference moved ({result.what})")
    axes.set_title(_question(result), fontsize=8)
    return figure


def _question(result: Patching) -> str:
    def said(text: str) -> str:
        return "".join(glyph(list(text), i) for i in range(len(text)))

    foil = f" over {said(result.foil)}" if result.foil else ""
    return f"{result.direction}: {said(result.target)}{foil} after position {result.position}"


def _reach(table: pd.DataFrame, name: str) -> np.ndarray:
    """How far the interval goes down and up, [2, row]; 0 where it is not known."""
    mean, low, high = (table[c].to_numpy() for c in (name, f"{name}_low", f"{name}_high"))
    reach: np.ndarray = np.nan_to_num(np.maximum((mean - low, high - mean), 0), posinf=0)
    return reach


def _symlog(axes: Axes, letter: str, values: np.ndarray) -> bool:
    """A scale that is linear near zero, where effects are of very different sizes; True if so."""
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    if not len(sizes) or sizes.max() < 30 * np.median(sizes):
        return False
    low = int(np.floor(np.log10(np.quantile(sizes, 0.25))))
    high = int(np.ceil(np.log10(sizes.max())))
    scale, axis = (axes.set_xscale, axes.xaxis) if letter == "x" else (axes.set_yscale, axes.yaxis)
    scale("symlog", linthresh=10.0**low, linscale=0.5)
    powers = [10.0**k for k in range(low, high + 1)]
    up, down = max(values.max(), powers[0]), max(-values.min(), powers[0])
    axis.set_ticks([*(-p for p in powers[::-1] if p <= down), 0.0, *(p for p in powers if p <= up)])
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
    return True


def _metric(name: str) -> str:
    unit = UNITS.get(name)
    return f"{name} ({unit})" if unit else name
