"""A mark becomes a matplotlib figure, in a size that follows from how much there is to show.

The figure is laid out once, before names are put where there is room, and stays so: it looks the
same at any resolution. Nothing is computed from the numbers but where they stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend import Legend
from matplotlib.text import Annotation

from interp.errors import ConfigError
from interp.figures import heatmap
from interp.figures.axes import thin
from interp.figures.heatmap import Room
from interp.figures.marks import Bars, Dots, HeatMap, Lines, Mark, Panels, Points
from interp.figures.naming import name_largest, spread
from interp.figures.plots import (
    NAMES,
    Handles,
    draw_bars,
    draw_dots,
    draw_lines,
    draw_points,
)
from interp.figures.style import (
    GREY,
    PLAIN,
    drawable,
    png,
    save_figure,
    short,
    style,
    width_of,
    wrapped,
)

__all__ = ["draw", "draw_on", "png", "save_figure"]
TITLE, LEGEND, LINE = 9.0, 7.5, 6.0  # points
TEXT_ROW = 1.25 / 72  # inches per point of a row of text


@dataclass
class _Drawn:
    """One mark on its axes, what its legend would say, and its picture if it is a heat map."""

    axes: Axes
    mark: Mark
    room: Room
    handles: Handles
    image: AxesImage | None = None


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
    rooms = [_room(one, n_columns) for one in marks]
    n_rows = -(-len(marks) // n_columns)
    with style():
        figure = Figure(figsize=_size(rooms, marks, n_rows, n_columns))
        figure.set_label(drawable(line))
        share = isinstance(mark, Panels) and mark.share
        grid = figure.subplots(n_rows, n_columns, squeeze=False, sharex=share, sharey=share)
        panels = [axes for row in grid for axes in row]
        for axes in panels[len(marks) :]:
            axes.remove()
        drawn = [_draw(axes, one, room)
                 for axes, one, room in zip(panels, marks, rooms, strict=False)]  # fmt: skip
        if isinstance(mark, Panels):
            _label_panels(figure, mark, drawn, n_columns)
        else:
            _explain(drawn[0])
        footer = _write_line(figure, line)
        figure.draw_without_rendering()
        if figure._supxlabel is not None:  # type: ignore[attr-defined]  # else below the line
            x, y = figure._supxlabel.get_position()  # type: ignore[attr-defined]
            figure._supxlabel.set_position((x, y + footer))  # type: ignore[attr-defined]
        for one_drawn in drawn:
            _settle(one_drawn)
        figure.set_layout_engine("none")
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
        _explain(drawn)
        axes.figure.canvas.figure.draw_without_rendering()
        _settle(drawn)


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
            return Room(3.7, 3.7, 0.5, 0.5) if beside == 1 else Room(2.0, 2.0, 0.45, 0.45)
        case Lines():
            tags = [width_of(short(one.tag), NAMES) for one in mark.series]
            left = 0.55 + max(tags, default=0.0)
            width, height = {1: (4.6, 2.5), 2: (3.4, 2.1)}.get(beside, (2.0, 2.1))
            return Room(width, height, left, 0.45)
    raise ConfigError(f"a {type(mark).__name__} cannot be drawn; use one of interp's marks")


def _size(
    rooms: Sequence[Room], marks: Sequence[Mark], n_rows: int, n_columns: int
) -> tuple[float, float]:
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


# ---- one mark --------------------------------------------------------------------------------


def _draw(axes: Axes, mark: Mark, room: Room) -> _Drawn:
    match mark:
        case HeatMap():
            image = heatmap.draw_heat_map(axes, mark, room)
            return _Drawn(axes, mark, room, {}, image)
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
    return _Drawn(axes, mark, room, handles)


def _explain(drawn: _Drawn, legend: bool = True, bar: bool = True, size: float = TITLE) -> None:
    """Adds title, legend (between title and axes, where it covers nothing) and colour bar."""
    rows = 0
    if legend and drawn.handles:
        n_columns = _legend_columns(drawn.handles, drawn.room.width)
        rows = -(-len(drawn.handles) // n_columns)
        placed = drawn.axes.legend(
            list(drawn.handles.values()), list(map(str, range(len(drawn.handles)))),
            loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2, ncols=n_columns,
            frameon=False, fontsize=LEGEND,
        )  # fmt: skip
        _name_handles(placed, drawn.handles)
    if drawn.mark.title:
        title = wrapped(drawn.mark.title, size, max(drawn.room.width, 1.2))
        drawn.axes.set_title(title, fontsize=size, pad=5 + 1.75 * LEGEND * rows, **PLAIN)
    if bar and drawn.image is not None and isinstance(drawn.mark, HeatMap):
        heatmap.add_colour_bar(drawn.image, drawn.mark, [drawn.axes], drawn.room.height)


def _legend_columns(handles: Handles, inches: float) -> int:
    widest = max(width_of(short(name), LEGEND) for name in handles) + 5 * LEGEND / 72
    return max(1, min(len(handles), int(inches / widest)))


def _name_handles(legend: Legend, handles: Handles) -> None:
    """Writes the names in afterwards: one that starts with _ would be left out."""
    for text, name in zip(legend.get_texts(), handles, strict=True):
        text.set(text=short(name), **PLAIN)


def _settle(drawn: _Drawn) -> None:
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
    if not isinstance(mark, HeatMap | Bars):
        thin(axes, "x")
    if isinstance(mark, Points | Lines):
        thin(axes, "y")


# ---- several, and the line below ---------------------------------------------------------------


def _label_panels(figure: Figure, mark: Panels, drawn: list[_Drawn], n_columns: int) -> None:
    """Titles; labels, legend and colour bar once where all panels have the same."""
    maps = [one.mark for one in drawn if isinstance(one.mark, HeatMap)]
    limits = {(m.low, m.high, m.palette, m.scale, m.label) for m in maps}
    one_bar = len(maps) == len(drawn) and len(limits) == 1
    one_legend = mark.share or len({tuple(one.handles) for one in drawn}) == 1
    for one in drawn:
        _explain(one, legend=not one_legend, bar=not one_bar, size=8.0)
    if one_bar and drawn[0].image is not None:
        whole = sum(one.room.height for one in drawn[::n_columns])
        everywhere = [one.axes for one in drawn]
        heatmap.add_colour_bar(drawn[0].image, maps[0], everywhere, whole)
    handles: Handles = {}
    for one in drawn:
        handles = {**one.handles, **handles}
    _common_labels(figure, [one.axes for one in drawn])
    title = wrapped(mark.title, TITLE, figure.get_figwidth() - 0.4)
    if one_legend and handles:
        columns = _legend_columns(handles, figure.get_figwidth() - 0.4)
        numbers = list(map(str, range(len(handles))))
        placed = figure.legend(list(handles.values()), numbers, loc="outside upper center",
                               ncols=columns, frameon=False, fontsize=LEGEND)  # fmt: skip
        _name_handles(placed, handles)
        if title:  # above the names: a title of the figure would cover them
            placed.set_title(title)
            placed.get_title().set(fontsize=TITLE, **PLAIN)
    elif title:
        figure.suptitle(title, fontsize=TITLE, **PLAIN)


def _common_labels(figure: Figure, panels: Sequence[Axes]) -> None:
    """Writes a label that all panels share once, below or left of all."""
    across = {axes.get_xlabel() for axes in panels}
    along = {axes.get_ylabel() for axes in panels}
    if len(panels) > 1 and len(across) == 1 and (label := across.pop()):
        text = wrapped(label.replace("\n", " "), 8.5, figure.get_figwidth() - 0.4)
        figure.supxlabel(text, fontsize=8.5, **PLAIN)
        for axes in panels:
            axes.set_xlabel("")
    if len(panels) > 1 and len(along) == 1 and (label := along.pop()):
        text = wrapped(label.replace("\n", " "), 8.5, figure.get_figheight() - 0.4)
        figure.supylabel(text, fontsize=8.5, **PLAIN)
        for axes in panels:
            axes.set_ylabel("")


def _write_line(figure: Figure, line: str) -> float:
    """Writes the line about model, text, n and seed; returns the part of the height it takes."""
    if not line:
        return 0.0
    text = wrapped(line.replace("\n", " "), LINE, figure.get_figwidth() - 0.1, between=" · ")
    inches = TEXT_ROW * LINE * (text.count("\n") + 1) + 0.04
    height = figure.get_figheight() + inches
    figure.set_figheight(height)
    figure.text(0.05 / figure.get_figwidth(), 0.03 / height, text, fontsize=LINE, color=GREY,
                ha="left", va="bottom", in_layout=False, **PLAIN)  # fmt: skip
    taken = inches / height
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=(0, taken, 1, 1 - taken)))
    return taken
