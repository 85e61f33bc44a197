"""Bars, dots, points and lines on axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from interp.figures.axes import set_scale, set_ticks
from interp.figures.marks import Bars, Dots, Lines, Points, Scale, Series
from interp.figures.naming import SIZE
from interp.figures.palette import colour
from interp.figures.style import BLACK, GREY, PLAIN, short, width_of, wrapped

MARKERS = ("o", "s", "^", "v", "D", "P")
NAMES = 7.0  # points
Handles = dict[str, Artist]


def draw_bars(axes: Axes, mark: Bars, width: float) -> Handles:
    """Draws one bar per name, the first on top."""
    colours = [colour("for" if value > 0 else "against") for value in mark.values]
    axes.barh(range(len(mark.values)), mark.values, color=colours, height=0.75)
    axes.axvline(0, color=BLACK, linewidth=0.8)
    _name_rows(axes, mark.names)
    axes.set_xlabel(wrapped(mark.label, 9, width), **PLAIN)
    finite = np.where(np.isfinite(mark.values), mark.values, 0.0)
    span = float(np.ptp([*finite, 0.0])) or 1.0
    texts = [f"{v:+.{mark.digits or 0}f}" if np.isfinite(v) else "" for v in mark.values]
    room = 1.3 * max((width_of(t, SIZE) for t in texts), default=0) / width + 0.03
    room = span * (0.05 if mark.digits is None else room / max(1 - 2 * room, 0.3))
    low, high = min(finite.min(initial=0), 0), max(finite.max(initial=0), 0)
    axes.set_xlim(low - (room if low < 0 else 0.03 * span), high + (room if high > 0 else 0))
    for i, text in enumerate(texts if mark.digits is not None else ()):
        up = mark.values[i] >= 0
        axes.annotate(text, (finite[i], i), (3 if up else -3, 0), textcoords="offset points",
                      ha="left" if up else "right", va="center", fontsize=SIZE, color=GREY,
                      **PLAIN)  # fmt: skip
    return {}


def _placed(series: Sequence[Series], scale: Scale) -> Sequence[Series]:
    """The series as a logarithmic axis can hold them: nothing at or below zero.

    An interval that reaches there ends at the smallest number that has a place. (An axis without
    any positive number stays linear, and holds all.)
    """
    every = [a for one in series for a in (one.values, one.low, one.high) if a is not None]
    positive = np.concatenate([a[a > 0] for a in every]) if every else np.zeros(0)
    if scale not in ("log", "log2") or not len(positive):
        return series
    least = positive.min()

    def ends(a: np.ndarray | None) -> np.ndarray | None:
        return None if a is None else np.where(a <= 0, least, a)

    return [
        replace(one, values=np.where(one.values > 0, one.values, np.nan), low=ends(one.low),
                high=ends(one.high))
        for one in series
    ]  # fmt: skip


def draw_dots(axes: Axes, mark: Dots, width: float) -> Handles:
    """Draws a dot per name and series with its interval, the first name on top."""
    handles: Handles = {}
    rows = np.arange(len(mark.names))
    apart = min(0.32, 0.64 / max(len(mark.series) - 1, 1))
    for i, one in enumerate(_placed(mark.series, mark.scale)):
        y = rows + apart * (i - (len(mark.series) - 1) / 2)
        style: dict[str, Any] = {"color": colour(one.colour), "alpha": 0.5 if one.faint else 1.0}
        _interval(axes, y, one.low, one.high, across=True, linewidth=1.2, **style)
        (dots,) = axes.plot(one.values, y, MARKERS[i % 6] if not one.marker else one.marker,
                            markersize=3.5, **style)  # fmt: skip
        handles.setdefault(one.name, dots)
    low, high = axes.dataLim.intervalx
    if mark.scale not in ("log", "log2") and not (low > high - low or high < low - high):
        axes.axvline(0, color=BLACK, linewidth=0.8)
    set_scale(axes, "x", mark.scale, mark.linear_within)
    axes.grid(axis="x", alpha=0.25)
    _name_rows(axes, mark.names)
    if mark.strong is not None:
        for i, tick in enumerate(axes.yaxis.get_major_ticks()):
            tick.label1.set_fontweight("bold" if i in mark.strong else "normal")
            tick.label1.set_color(BLACK if i in mark.strong else GREY)
    if not mark.names and mark.empty:
        text = wrapped(mark.empty, 9, width)
        axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, color=GREY,
                  **PLAIN)  # fmt: skip
    label = mark.label
    if axes.get_xscale() == "symlog" and "linear" not in label:
        label += "; linear between the inner ticks"
    axes.set_xlabel(wrapped(label, 9, width), **PLAIN)
    return handles if len(mark.series) > 1 and mark.names else {}


def draw_points(axes: Axes, mark: Points, width: float) -> Handles:
    """Draws pairs with their intervals, on equal axes with the line y = x."""
    blue = colour("blue")
    _interval(axes, mark.y, mark.x_low, mark.x_high, across=True, color=blue, linewidth=0.9)
    _interval(axes, mark.x, mark.y_low, mark.y_high, across=False, color=blue, linewidth=0.9)
    axes.plot(mark.x, mark.y, "o", color=blue, markersize=3.5)
    ringed = list(mark.ringed)
    axes.plot(mark.x[ringed], mark.y[ringed], "o", color=colour("against"), markersize=9,
              markerfacecolor="none")  # fmt: skip
    both = np.concatenate((axes.dataLim.intervalx, axes.dataLim.intervaly))
    if np.isfinite(both).all():  # so that both axes get the same ticks
        axes.update_datalim([(both.min(), both.min()), (both.max(), both.max())])
    for letter in ("x", "y"):
        set_scale(axes, letter, mark.scale, mark.linear_within)
    limits = (*axes.get_xlim(), *axes.get_ylim())
    axes.set(xlim=(min(limits), max(limits)), ylim=(min(limits), max(limits)))
    axes.plot(axes.get_xlim(), axes.get_ylim(), color=GREY, linewidth=0.8, zorder=0)
    axes.set_box_aspect(1)
    axes.tick_params(labelsize=SIZE)
    axes.set_xlabel(wrapped(mark.x_label, 8, width), fontsize=8, **PLAIN)
    axes.set_ylabel(wrapped(mark.y_label, 8, width), fontsize=8, **PLAIN)
    return {}


def draw_lines(axes: Axes, mark: Lines, width: float, height: float) -> Handles:
    """Draws series over x: bands about lines; bars about markers that stand alone or beside."""
    handles: Handles = {}
    marked = [i for i, one in enumerate(mark.series) if one.marker]
    places = _dodged(mark, len(marked)) if mark.dodge else [mark.x] * len(marked)
    for i, one in enumerate(_placed(mark.series, mark.y_scale)):
        x = places[marked.index(i)] if i in marked else mark.x
        handles.setdefault(one.name, _draw_series(axes, one, x, bars=mark.dodge))
    for span in mark.spans:
        dashed = axes.axvline(span.at, color=colour("for"), linewidth=0.9, linestyle="--")
        if np.isfinite((span.low, span.high)).all():
            axes.axvspan(span.low, span.high, color=colour("for"), alpha=0.15, linewidth=0)
        handles.setdefault(span.name, dashed)
    if mark.zero:
        axes.axhline(0, color=BLACK, linewidth=0.6)
    set_scale(axes, "x", mark.x_scale)
    set_scale(axes, "y", mark.y_scale)
    least = 0.0 if axes.get_yscale() == "log" else -np.inf
    if least < mark.y_low < np.inf:
        axes.set_ylim(bottom=mark.y_low)
    if least < mark.y_high < np.inf:
        axes.set_ylim(top=mark.y_high)
    if mark.ticks:
        size = 6.0 if are_characters(mark.ticks) else NAMES
        set_ticks(axes.xaxis, [(at, short(text)) for at, text in mark.ticks], size)
    else:
        axes.tick_params(axis="x", labelsize=NAMES)
    axes.tick_params(axis="y", labelsize=NAMES)
    axes.grid(axis="y", alpha=0.25)
    axes.set_xlabel(wrapped(mark.x_label, 9, width), **PLAIN)
    axes.set_ylabel(wrapped(mark.y_label, 9, height), **PLAIN)
    return {name: handle for name, handle in handles.items() if name} if mark.legend else {}


def are_characters(ticks: Sequence[tuple[float, str]]) -> bool:
    """Returns whether most texts are so narrow that they are characters of a passage."""
    return bool(ticks) and float(np.median([width_of(short(t), NAMES) for _, t in ticks])) < 0.12


def _draw_series(axes: Axes, one: Series, x: np.ndarray, bars: bool) -> Line2D:
    paint: dict[str, Any] = {"color": colour(one.colour), "alpha": 0.5 if one.faint else 1.0}
    if one.low is not None and one.high is not None:
        if one.line and not (bars and one.marker):
            band = 0.08 if one.faint else 0.2
            axes.fill_between(x, one.low, one.high, color=paint["color"], alpha=band, linewidth=0)
        else:
            _interval(axes, x, one.low, one.high, across=False, linewidth=1, **paint)
    (line,) = axes.plot(
        x, one.values, marker=one.marker or None, markersize=3.5,
        linestyle=("--" if one.dashed else "-") if one.line else "none",
        linewidth=0.8 if one.faint else 1.2, **paint,
    )  # fmt: skip
    seen = np.flatnonzero(np.isfinite(one.values))
    if one.tag and len(seen):
        axes.annotate(short(one.tag), (x[seen[-1]], one.values[seen[-1]]), (4, 0), va="center",
                      textcoords="offset points", fontsize=NAMES, color=paint["color"],
                      annotation_clip=False, **PLAIN)  # fmt: skip
    if one.line and not one.marker and len(seen) == 1:
        line.set_marker("o")  # a line through one point cannot be seen
        line.set_markersize(2.5)
    return line


def _dodged(mark: Lines, n: int) -> list[np.ndarray]:
    """Where the markers of each series stand: beside each other, on the scale of the axis."""
    logarithmic = mark.x_scale in ("log", "log2") and (mark.x > 0).all()
    x = np.log(mark.x) if logarithmic else mark.x
    gaps = np.diff(np.unique(x))
    step = 0.4 * (gaps.min() if len(gaps) else 1.0) / max(n, 4)
    beside = [x + step * (i - (n - 1) / 2) for i in range(n)]
    return [np.exp(one) for one in beside] if logarithmic else beside


def _interval(
    axes: Axes, at: np.ndarray, low: np.ndarray | None, high: np.ndarray | None, across: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Draws from `low` to `high`, as they are, where both are known."""
    if low is None or high is None:
        return
    known = np.isfinite(low) & np.isfinite(high) & np.isfinite(at)
    if known.any():
        (axes.hlines if across else axes.vlines)(at[known], low[known], high[known], **options)


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [short(name) for name in names], fontsize=NAMES, **PLAIN)
    axes.set_ylim(max(len(names), 1) - 0.4, -0.6)
