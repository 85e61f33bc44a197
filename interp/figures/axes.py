"""Scales of axes, with plain numbers on them that do not touch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from interp.figures.marks import Scale
from interp.figures.style import PLAIN

Letter = Literal["x", "y"]
GAP = 2.5  # points between two numbers on an axis


def set_scale(axes: Axes, letter: Letter, scale: Scale, linear_within: float = 0.0) -> None:
    """Gives the x or y axis, once drawn upon, its scale.

    A logarithmic one stays linear where no number is positive, "symlog" where `linear_within` is 0
    (no distance from zero within which it should be linear).
    """
    low, high = _axis(axes, letter).get_data_interval()
    if scale == "root":
        _set(axes, letter, "function", functions=(signed_root, signed_square))
    elif scale == "log" and _some_positive(low, high):
        log_scale(axes, letter)
    elif scale == "log2" and _some_positive(low, high):
        _set(axes, letter, "log", base=2)
        _plain_numbers(_axis(axes, letter))
    elif scale == "symlog" and linear_within > 0:
        _symlog(axes, letter, linear_within)


def log_scale(axes: Axes, letter: Letter) -> None:
    """Makes the x or y axis logarithmic, once drawn upon, with plain numbers on it.

    Over fewer than three decades 2 and 5 are numbered too; over less than half a decade, where
    even these may be missing, round numbers at equal distances.
    """
    _set(axes, letter, "log")
    axis = _axis(axes, letter)
    low, high = axis.get_view_interval()
    if high < 4 * low:
        axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 1000 * low else (1.0,)))
    _plain_numbers(axis)


def _symlog(axes: Axes, letter: Letter, linear_within: float) -> None:
    """Linear near zero, where values are of very different sizes; ticks at powers of ten."""
    axis = _axis(axes, letter)
    low, high = axis.get_data_interval()
    least = float(linear_within)
    powers = [least]
    while powers[-1] * 10 <= max(high, -low) * (1 + 1e-9):
        powers.append(powers[-1] * 10)
    _set(axes, letter, "symlog", linthresh=least, linscale=0.5)
    up, down = max(high, least), max(-low, least)
    below = [-p for p in reversed(powers) if p <= down]
    axis.set_ticks([*below, 0.0, *(p for p in powers if p <= up)])
    axis.set_minor_locator(NullLocator())
    _plain_numbers(axis)


def set_ticks(axis: Axis, ticks: Sequence[tuple[float, str]], size: float) -> None:
    """Puts texts at places of an axis."""
    places, texts = [place for place, _ in ticks], [text for _, text in ticks]
    axis.set_ticks(places, texts, fontsize=size, **PLAIN)
    axis.set_minor_locator(NullLocator())


def thin(axes: Axes, letter: Letter) -> None:
    """Takes away numbers that touch another one, from an axis that is laid out.

    Zero stays, then the smallest and the largest numbers, then what has room.
    """
    axis = _axis(axes, letter)
    side = 0 if letter == "x" else 1
    low, high = sorted(axis.get_view_interval())
    labels: dict[float, Text] = {
        float(tick.get_loc()): tick.label1
        for tick in axis.get_major_ticks()
        if tick.label1.get_text()
        and tick.label1.get_visible()
        and low <= float(tick.get_loc()) <= high
    }
    places = sorted(labels, key=lambda at: (at != 0, -abs(at)))
    if 0.0 not in labels:
        places = [*sorted(labels)[:1], *sorted(labels, reverse=True)]
    kept: list[tuple[float, float, float]] = []
    pixels = axes.figure.dpi / 72
    for at in dict.fromkeys(places):
        middle = axes.transData.transform((at, at))[side]
        size = labels[at].get_window_extent().size[side]
        start, end = middle - size / 2, middle + size / 2
        gap = min(GAP * pixels, 0.3 * float(size))
        if all(end + gap <= first or start >= last + gap for _, first, last in kept):
            kept.append((at, float(start), float(end)))
    if len(kept) < len(labels):
        stay = sorted(at for at, _, _ in kept)
        texts = [(at, labels[at].get_text()) for at in stay]
        set_ticks(axis, texts, float(labels[stay[0]].get_fontsize()))
        axis.set_ticks(sorted(set(labels) - set(stay)), minor=True)
        axis.set_minor_formatter(NullFormatter())


def signed_root(values: np.ndarray) -> np.ndarray:
    """Returns the square root of the size, with the sign."""
    given = np.asarray(values, dtype=np.float64)
    return np.sign(given) * np.sqrt(np.abs(given))


def signed_square(values: np.ndarray) -> np.ndarray:
    """Returns what `signed_root` undoes."""
    given = np.asarray(values, dtype=np.float64)
    return np.sign(given) * given**2


def _axis(axes: Axes, letter: Letter) -> Axis:
    return axes.xaxis if letter == "x" else axes.yaxis


def _set(axes: Axes, letter: Letter, scale: str, **options: object) -> None:
    (axes.set_xscale if letter == "x" else axes.set_yscale)(scale, **options)


def _plain_numbers(axis: Axis) -> None:
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _some_positive(low: float, high: float) -> bool:
    return bool(np.isfinite((low, high)).all() and high > 0)
