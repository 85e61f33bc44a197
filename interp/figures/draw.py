"""A mark becomes a matplotlib figure, in a size that follows from how much there is to show.

The figure is laid out once, before names are put where there is room, and stays so: it looks the
same at any resolution. Nothing is computed from the numbers but where they stand.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from interp.errors import ConfigError
from interp.figures import heatmap
from interp.figures.around import TEXT_ROW, TITLE, Drawn, explain, label_panels, write_line
from interp.figures.axes import thin
from interp.figures.heatmap import Room
from interp.figures.marks import Bars, Dots, HeatMap, Lines, Mark, Panels, Points
from interp.figures.naming import name_largest, spread
from interp.figures.plots import (
    NAMES,
    are_characters,
    draw_bars,
    draw_dots,
    draw_lines,
    draw_points,
)
from interp.figures.style import (
    drawable,
    png,
    save_figure,
    short,
    style,
    width_of,
    wrapped,
)

__all__ = ["draw", "draw_on", "png", "save_figure"]


def draw(mark: Mark, line: str = "") -> Figure:
    """Returns a figure of a mark.

    Args:
        mark: what to draw.
        line: a small grey text at the bottom (model, text, n, seed); also in the metadata of the
            files that `save_figure` writes.

    Raises:
        ConfigError: a mark that cannot be drawn.

    Example:
        >>> from interp.figures.marks import Bars
        >>> figure = draw(Bars(names=("a", "b"), values=[1.0, -0.5], label="effect (nats)"))
        >>> [round(float(bar.get_width()), 2) for bar in figure.axes[0].patches]
        [1.0, -0.5]
    """
    marks = mark.marks if isinstance(mark, Panels) else (mark,)
    n_columns = min(mark.columns, len(marks)) if isinstance(mark, Panels) else 1
    share = isinstance(mark, Panels) and mark.share
    rooms = [_room(one, n_columns) for one in marks]
    with style():
        figure = Figure(figsize=_size(rooms, marks, n_columns))
        figure.set_label(drawable(line))
        panels = _panels(figure, len(marks), n_columns, share)
        drawn = [_draw(*each) for each in zip(panels, marks, rooms, strict=True)]
        below = write_line(figure, line)
        label = None
        if isinstance(mark, Panels):
            label = label_panels(figure, mark, drawn, n_columns)
        else:
            explain(drawn[0])
        _lay_out(figure, drawn)
        if label is not None:  # the layout has put it at the very bottom, upon the line
            x, y = label.get_position()
            label.set_position((x, y + below))
        for one in drawn:  # axes that share their ticks share what is taken from them
            _settle(one, "xy" if not share else "x" * (one is drawn[-1]) + "y" * (one is drawn[0]))
    return figure


def draw_on(axes: Axes, mark: Mark) -> None:
    """Draws a mark on your own axes; a heat map's colour bar takes some room from them.

    Raises:
        ConfigError: panels, which need several axes: draw each of their marks.
    """
    if isinstance(mark, Panels):
        raise ConfigError("panels need several axes; draw each of their marks on its own")
    width, height = np.array(axes.bbox.size) / axes.figure.dpi
    with style():
        drawn = _draw(axes, mark, Room(float(width), float(height), 0.0, 0.0))
        explain(drawn)
        axes.figure.canvas.figure.draw_without_rendering()
        _settle(drawn, "xy")


def _panels(figure: Figure, n: int, n_columns: int, share: bool) -> list[Axes]:
    n_rows = -(-n // n_columns)
    grid = figure.subplots(n_rows, n_columns, squeeze=False, sharex=share, sharey=share)
    panels: list[Axes] = list(grid.ravel())
    for i, axes in enumerate(panels[n:], n):
        axes.remove()
        if n_rows > 1:  # the panel above is the last of its column
            panels[i - n_columns].xaxis.set_tick_params(labelbottom=True)
    return panels[:n]


def _lay_out(figure: Figure, drawn: Sequence[Drawn]) -> None:
    """Lays out for good."""
    engine = figure.get_layout_engine()
    if engine is not None and any(_keeps_its_shape(one.mark) for one in drawn):
        engine.execute(figure)  # what stands about a square is laid out again about the smaller one
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


# ---- sizes, in inches ------------------------------------------------------------------------


def _room(mark: Mark, beside: int) -> Room:
    """How large the axes of a mark should be that is one of `beside` in a row."""
    match mark:
        case HeatMap():
            return heatmap.plan(mark, beside)
        case Bars() | Dots():
            per_row = 0.19 if isinstance(mark, Bars) else max(0.2, 0.11 * len(mark.series))
            left = 0.2 + max((width_of(short(name), NAMES) for name in mark.names), default=0.0)
            width = max(4.4 / (1 if beside == 1 else 1.5), 9 / beside - left)
            return Room(min(width, 4.4), per_row * max(len(mark.names), 2) + 0.2, left, 0.4)
        case Points():
            return Room(3.7, 3.7, 0.5, 0.5) if beside == 1 else Room(2.0, 2.0, 0.45, 0.25)
        case Lines():
            tags = [width_of(short(one.tag), NAMES) for one in mark.series]
            left = 0.55 + max(tags, default=0.0)
            width, height = {1: (4.6, 2.5), 2: (3.4, 2.1)}.get(beside, (2.0, 2.1))
            if beside == 1 and are_characters(mark.ticks):
                width = min(max(width, 0.1 * len(mark.ticks)), heatmap.WIDEST)
            return Room(width, height, left, 0.45)
    raise ConfigError(f"a {type(mark).__name__} cannot be drawn; use one of interp's marks")


def _size(rooms: Sequence[Room], marks: Sequence[Mark], n_columns: int) -> tuple[float, float]:
    n_rows = -(-len(marks) // n_columns)
    wide, high = [], []
    for room, mark in zip(rooms, marks, strict=True):
        bar = heatmap.BAR if isinstance(mark, HeatMap) else 0.0
        title = TEXT_ROW * TITLE * (wrapped(mark.title, TITLE, room.width).count("\n") + 1)
        title = title if mark.title else 0.0
        wide.append(room.left + room.width + (bar if n_columns == 1 else 0.1))
        high.append(room.below + room.height + title + 0.1)
        if isinstance(mark, Lines | Dots) and n_columns * n_rows == 1:
            high[-1] += 0.2
    bars = heatmap.BAR if n_columns > 1 and any(isinstance(m, HeatMap) for m in marks) else 0.0
    width = n_columns * max(wide) + bars + 0.15
    return max(width, 3.4), n_rows * max(high) + (0.4 if n_rows * n_columns > 1 else 0.1)


def _keeps_its_shape(mark: Mark) -> bool:
    """Whether the axes shrink to a square, so that a layout must be made again about them."""
    return isinstance(mark, Points) or (isinstance(mark, HeatMap) and heatmap.is_square(mark))


# ---- one mark --------------------------------------------------------------------------------


def _draw(axes: Axes, mark: Mark, room: Room) -> Drawn:
    match mark:
        case HeatMap():
            image = heatmap.draw_heat_map(axes, mark, room)
            return Drawn(axes, mark, room, {}, image)
        case Bars():
            handles = draw_bars(axes, mark, room.width)
        case Dots():
            handles = draw_dots(axes, mark, room.width)
        case Points():
            handles = draw_points(axes, mark, room.width)
        case Lines():
            handles = draw_lines(axes, mark, room.width, room.height)
        case _:
            raise ConfigError(f"a {type(mark).__name__} cannot be drawn; use one of interp's marks")
    return Drawn(axes, mark, room, handles)


def _settle(drawn: Drawn, ticks: str) -> None:
    """Does what needs a layout: numbers in cells, names of points, ends of lines, ticks."""
    axes, mark = drawn.axes, drawn.mark
    match mark:
        case HeatMap() if drawn.image is not None:
            heatmap.write_numbers(axes, mark, drawn.image)
        case Points():
            points = np.stack((mark.x, mark.y), axis=1)
            known = np.flatnonzero(np.isfinite(points).all(1))
            area = float(np.prod(axes.bbox.size)) / axes.figure.dpi**2
            name_largest(axes, [mark.names[i] for i in known], points[known],
                         most=max(3, round(area / 2)))  # fmt: skip
        case Lines():
            tags = [text for text in axes.texts if isinstance(text, Annotation)]
            spread(axes, tags, NAMES)
    if "x" in ticks and not isinstance(mark, HeatMap | Bars):
        thin(axes, "x")
    if "y" in ticks and isinstance(mark, Points | Lines):
        thin(axes, "y")
