"""What stands around the axes: titles, legends, colour bars, common labels, the line below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend import Legend
from matplotlib.text import Text

from interp.figures.heatmap import Room, add_colour_bar
from interp.figures.marks import HeatMap, Mark, Panels
from interp.figures.plots import Handles
from interp.figures.style import GREY, PLAIN, short, width_of, wrapped

TITLE, LEGEND, LINE = 9.0, 7.5, 6.0  # points
TEXT_ROW = 1.25 / 72  # inches per point of a row of text


@dataclass
class Drawn:
    """One mark on its axes, what its legend would say, and its picture if it is a heat map."""

    axes: Axes
    mark: Mark
    room: Room
    handles: Handles
    image: AxesImage | None = None


def explain(drawn: Drawn, legend: bool = True, bar: bool = True, size: float = TITLE) -> None:
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
        add_colour_bar(drawn.image, drawn.mark, [drawn.axes], drawn.room.height)


def _legend_columns(handles: Handles, inches: float) -> int:
    widest = max(width_of(short(name), LEGEND) for name in handles) + 5 * LEGEND / 72
    rows = -(-len(handles) // max(1, int(inches / widest)))
    return -(-len(handles) // rows)


def _name_handles(legend: Legend, handles: Handles) -> None:
    """Writes the names in afterwards: one that starts with _ would be left out."""
    for text, name in zip(legend.get_texts(), handles, strict=True):
        text.set(text=short(name), **PLAIN)


def label_panels(figure: Figure, mark: Panels, drawn: list[Drawn], n_columns: int) -> Text | None:
    """Writes titles; labels, legend and colour bar once where all panels have the same.

    Returns the common label at the bottom, if there is one.
    """
    maps = [one.mark for one in drawn if isinstance(one.mark, HeatMap)]
    limits = {(m.low, m.high, m.palette, m.scale, m.label) for m in maps}
    one_bar = len(maps) == len(drawn) and len(limits) == 1
    one_legend = mark.share or len({tuple(one.handles) for one in drawn}) == 1
    for one in drawn:
        explain(one, legend=not one_legend, bar=not one_bar, size=8.0)
    if one_bar and drawn[0].image is not None:
        whole = sum(one.room.height for one in drawn[::n_columns])
        everywhere = [one.axes for one in drawn]
        add_colour_bar(drawn[0].image, maps[0], everywhere, whole)
    handles: Handles = {}
    for one in drawn:
        handles = handles | {name: handle for name, handle in one.handles.items()
                             if name not in handles}  # fmt: skip
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
    return _common_labels(figure, [one.axes for one in drawn])


def _common_labels(figure: Figure, panels: Sequence[Axes]) -> Text | None:
    """Writes a label that all panels share once, below or left of all."""
    below = None
    across = {axes.get_xlabel() for axes in panels}
    along = {axes.get_ylabel() for axes in panels}
    if len(panels) > 1 and len(across) == 1 and (label := across.pop()):
        text = wrapped(label.replace("\n", " "), 8.5, figure.get_figwidth() - 0.4)
        below = figure.supxlabel(text, fontsize=8.5, **PLAIN)
        for axes in panels:
            axes.set_xlabel("")
    if len(panels) > 1 and len(along) == 1 and (label := along.pop()):
        text = wrapped(label.replace("\n", " "), 8.5, figure.get_figheight() - 0.4)
        figure.supylabel(text, fontsize=8.5, **PLAIN)
        for axes in panels:
            axes.set_ylabel("")
    return below


def write_line(figure: Figure, line: str) -> float:
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
