"""Names beside points and at the ends of lines, where they cover nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Annotation

from interp.figures.style import GREY, PLAIN, short, width_of

SIZE = 6.5  # points


def name_largest(axes: Axes, names: Sequence[str], points: np.ndarray, most: int = 3) -> None:
    """Names the points furthest from y = 0, on axes that are laid out.

    A name stands inside the axes, covers no other name and is nearest to its own point, so that it
    covers none; a point without such room stays unnamed.

    Args:
        axes: where the points are.
        names: of the points.
        points: [name, 2], finite.
        most: how many points are tried.
    """
    axes.viewLim  # noqa: B018  # as long as nobody asks, limits are not those of the data
    pixels = axes.figure.dpi / 72
    at = axes.transData.transform(points) / pixels  # in points, 1/72 inch
    room = np.asarray(axes.bbox.extents) / pixels  # left, bottom, right, top
    named = np.zeros((0, 4))
    for i in np.argsort(-np.abs(points[:, 1]), kind="stable")[:most]:
        text = short(names[i])
        width = 72 * width_of(text, SIZE) + 1
        for dx, dy in _places(width):
            low = at[i] + np.array((dx, dy - 1))
            high = low + np.array((width, SIZE + 2))
            gaps = np.hypot(*np.maximum(0, np.maximum(low - at, at - high)).T)  # to every point
            free = (named[:, 2:] < low).any(1) | (named[:, :2] > high).any(1)
            inside = (low > room[:2]).all() and (high < room[2:]).all()
            if inside and free.all() and gaps[i] <= gaps.min() + 1e-9:
                axes.annotate(text, points[i], (dx, dy), textcoords="offset points",
                              fontsize=SIZE, color=GREY, **PLAIN)  # fmt: skip
                named = np.vstack((named, [*low, *high]))
                break


def _places(width: float) -> list[tuple[float, float]]:
    """Where a name may start, in points from its point: right and left of it, above and below."""
    return [(4, 4), (4, -10), (-4 - width, 4), (-4 - width, -10), (8, -3), (-8 - width, -3)]


def spread(axes: Axes, tags: Sequence[Annotation], size: float) -> None:
    """Moves texts at the ends of lines up or down until none covers another."""
    axes.viewLim  # noqa: B018  # the same
    pixels = axes.figure.dpi / 72
    heights = [float(axes.transData.transform(tag.xy)[1]) / pixels for tag in tags]
    order = np.argsort(heights, kind="stable")
    room = 1.25 * size
    placed = np.array([heights[i] for i in order])
    for _ in range(100):
        gaps = np.diff(placed)
        if not (gaps < room - 0.01).any():
            break
        push = np.maximum(room - gaps, 0) / 2
        placed[:-1] -= push
        placed[1:] += push
    for i, height in zip(order, placed, strict=True):
        tags[i].set_position((tags[i].get_position()[0], height - heights[i]))
