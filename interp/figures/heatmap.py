"""Heat maps: how large the cells are, which names have room, and the colour bar."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import FuncNorm, LogNorm, Normalize, PowerNorm, SymLogNorm
from matplotlib.image import AxesImage
from matplotlib.ticker import FuncFormatter, MaxNLocator

from interp.figures.axes import Letter, signed_root, signed_square
from interp.figures.marks import HeatMap
from interp.figures.ranges import near_zero
from interp.figures.style import PLAIN, colormap, drawable, short, width_of, wrapped

NAMES = 7.0  # points, where there is room
SMALLEST = 4.5  # smaller names are not drawn
NUMBERS = 6.5
LEAST_NUMBER = 3.0  # smaller ones cannot be read
CHARACTER = 0.088  # inches: a column named by a character
SQUARE = 5.2  # inches: the largest square map
PANEL = 1.9  # the same among others
MANY_ROWS = 60
WIDEST, TALLEST = 14.0, 16.0
BAR = 0.85  # inches for the colour bar and what it says


@dataclass(frozen=True)
class Room:
    """How wide and high the cells are together, in inches, and what the rest needs about them."""

    width: float
    height: float
    left: float
    below: float


def is_square(mark: HeatMap) -> bool:
    """Returns whether rows and columns are the same, so that cells should be squares."""
    return mark.rows == mark.columns and len(mark.rows) > 1


def _row_height(mark: HeatMap) -> float:
    """Inches for each row; less where there are as many as a passage has positions."""
    if len(mark.rows) > MANY_ROWS:
        return 0.1
    return 0.2 if mark.numbers else 0.16


def plan(mark: HeatMap, beside: int = 1) -> Room:
    """Returns the room for a map that is one of `beside` in a row."""
    n_rows, n_columns = max(len(mark.rows), 1), max(len(mark.columns), 1)
    width, height = n_columns * _cell_width(mark), n_rows * _row_height(mark)
    if is_square(mark):
        most = PANEL if beside > 1 else SQUARE
        width = height = min(max(width, height, 1.6), most)
    width = min(max(width, 1.6), WIDEST / beside)
    height = min(max(height, min(0.9, 0.3 * n_rows)), TALLEST)
    left = 0.2 + (0.2 if mark.row_label else 0.0)
    if _size_of_rows(mark, height):
        left += max((width_of(short(name), NAMES) for name in mark.rows), default=0.0)
    else:
        left += 0.2
    tall = [width_of(short(n), NAMES) for n in mark.columns if _turned(n, width / n_columns)]
    below = 0.3 + (0.2 if mark.column_label else 0.0) + max(tall, default=0.0)
    below += 0.1 * max((name.count("\n") for name in mark.columns), default=0)
    return Room(width, height, left, below)


def draw_heat_map(axes: Axes, mark: HeatMap, room: Room) -> AxesImage:
    """Draws cells, names and labels; `write_numbers` the texts in them, once it is laid out."""
    values = np.ma.masked_invalid(mark.values)
    n_rows, n_columns = mark.values.shape
    image = axes.imshow(
        values, cmap=colormap(mark.palette), norm=norm_of(mark), interpolation="nearest",
        aspect="equal" if is_square(mark) else "auto",
    )  # fmt: skip
    for edge in mark.row_breaks:
        axes.axhline(edge - 0.5, color="white", linewidth=3)
    for edge in mark.column_breaks:
        axes.axvline(edge - 0.5, color="white", linewidth=3)
    axes.set(xlim=(-0.5, max(n_columns, 1) - 0.5), ylim=(max(n_rows, 1) - 0.5, -0.5))
    _name_rows(axes, mark, room)
    _name_columns(axes, mark, room)
    axes.set_xlabel(wrapped(mark.column_label, 8, max(room.width, 2)), fontsize=8, **PLAIN)
    axes.set_ylabel(wrapped(mark.row_label, 8, max(room.height, 1)), fontsize=8, **PLAIN)
    return image


def norm_of(mark: HeatMap) -> Normalize:
    """Returns how values become places on the ramp."""
    low, high = mark.low, mark.high
    if mark.scale == "root" and low == 0:
        return PowerNorm(0.5, low, high)
    if mark.scale == "root":
        return FuncNorm((signed_root, signed_square), low, high)
    if mark.scale in ("log", "log2") and low > 0:
        return LogNorm(low, high)
    if mark.scale == "symlog" and (within := near_zero(mark.values)):
        return SymLogNorm(min(within, high), vmin=low, vmax=high)
    return Normalize(low, high)


def add_colour_bar(image: AxesImage, mark: HeatMap, axes: Sequence[Axes], height: float) -> None:
    """Puts a colour bar beside one or more axes, with the label and pointed where values go on."""
    finite = mark.values[np.isfinite(mark.values)]
    under, over = (finite < mark.low).any(), (finite > mark.high).any()
    extend: Literal["neither", "both", "min", "max"] = (
        ("both" if over else "min") if under else "max" if over else "neither"
    )
    figure = axes[0].figure
    bar = figure.colorbar(
        image, ax=list(axes), pad=0.01 if len(axes) == 1 else 0.02, extend=extend,
        aspect=max(height / 0.11, 6), shrink=min(1.0, 4 / height),
    )  # fmt: skip
    root = mark.scale == "root" and "root" not in mark.label
    label = mark.label + " (colours on a square-root scale)" * root
    label = wrapped(label, NAMES, max(min(height, 4.0), 1.1))
    bar.set_label(label, fontsize=NAMES, **PLAIN)
    bar.ax.tick_params(labelsize=NAMES)
    bar.ax.yaxis.set_major_locator(MaxNLocator(int(np.clip(height / 0.35, 2, 6))))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bar.minorticks_off()


def write_numbers(axes: Axes, mark: HeatMap, image: AxesImage) -> None:
    """Writes the texts into the cells, as large as fits: black on bright ones, white on dark."""
    if not mark.numbers:
        return
    across, up = np.array(axes.bbox.size) / axes.figure.dpi / np.array(mark.values.shape[::-1])
    widest = max(width_of(drawable(text), 1.0) for row in mark.numbers for text in row)
    size = min(NUMBERS, 0.94 * across / widest if widest else NUMBERS, 72 * up * 0.75)
    if size < LEAST_NUMBER:
        return
    colours = image.to_rgba(np.ma.masked_invalid(mark.values))
    for row, column in np.ndindex(mark.values.shape):
        if text := mark.numbers[row][column]:
            colour = "black" if _is_bright(colours[row, column]) else "white"
            axes.text(column, row, drawable(text), fontsize=size, color=colour,
                      ha="center", va="center", **PLAIN)  # fmt: skip


def _is_bright(colour: np.ndarray) -> bool:
    """Whether black stands out more than white, by relative luminance; an empty cell is white."""
    red, green, blue, alpha = map(float, colour)
    linear = [(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4)
              for c in (red, green, blue)]  # fmt: skip
    return alpha == 0 or float(np.dot((0.2126, 0.7152, 0.0722), linear)) > 0.179


# ---- names -----------------------------------------------------------------------------------


def _cell_width(mark: HeatMap) -> float:
    """Inches: for names side by side, else for characters, else for names that are turned."""
    n = max(len(mark.columns), 1)
    names = sorted(width_of(short(name), NAMES) + 0.05 for name in mark.columns) or [0.0]
    if n * names[-1] <= 7 and names[-1] <= 0.9:
        width = names[-1]
    elif names[int(0.9 * (n - 1))] <= 0.16:
        width = CHARACTER
    else:
        width = 0.135
    texts = {drawable(text) for row in mark.numbers for text in row}
    width = max(width, *(width_of(text, 6) + 0.02 for text in texts), CHARACTER)
    return max(width, min(0.5, 2.4 / n))


def _turned(name: str, cell: float) -> bool:
    return width_of(short(name), 6.0) > cell


def _size_of_rows(mark: HeatMap, height: float) -> float:
    """Points; 0 where the names have no room."""
    size = min(NAMES, 72 * height / max(len(mark.rows), 1) / 1.2)
    return size if size >= SMALLEST else 0.0


def _name_rows(axes: Axes, mark: HeatMap, room: Room) -> None:
    size = _size_of_rows(mark, room.height)
    if size:
        names = [short(name) for name in mark.rows]
        axes.set_yticks(range(len(names)), names, fontsize=size, **PLAIN)
        axes.tick_params(axis="y", length=2)
    else:
        like_columns = mark.rows == mark.columns and bool(mark.columns_are)
        _number(axes, "y", mark.rows, room.height, like_columns)


def _name_columns(axes: Axes, mark: HeatMap, room: Room) -> None:
    n = max(len(mark.columns), 1)
    cell = room.width / n
    size = min(NAMES if cell > 0.12 else 6.0, 72 * cell / 1.05)
    if size < SMALLEST:
        _number(axes, "x", mark.columns, room.width, bool(mark.columns_are))
        return
    names = [short(name) for name in mark.columns]
    axes.set_xticks(range(len(names)), names, fontsize=size, **PLAIN)
    axes.tick_params(axis="x", length=0 if cell < 0.12 else 2)
    turned = [width_of(name, size) > cell for name in names]
    if np.mean(turned or [False]) > 0.5:
        turned = [True] * len(names)
    for i, (tick, turn) in enumerate(zip(axes.xaxis.get_major_ticks(), turned, strict=True)):
        tick.label1.set_rotation(90 if turn else 0)
        tick.label1.set_fontweight("bold" if i in mark.strong_columns else "normal")


def _number(
    axes: Axes, letter: Letter, names: Sequence[str], inches: float, positions: bool
) -> None:
    """Places instead of names, where names have no room; of names that differ, some."""
    axis: Axis = axes.xaxis if letter == "x" else axes.yaxis
    axis.set_tick_params(labelsize=6.5)
    if positions or max(Counter(names).values(), default=2) > 1:
        axis.set_major_locator(MaxNLocator(max(2, int(inches / 0.45)), integer=True))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        return
    step = int(np.ceil(len(names) * 0.12 / inches))
    places = range(0, len(names), step)
    turn = 90 if letter == "x" else 0
    axis.set_ticks(places, [short(names[i]) for i in places], fontsize=6, rotation=turn, **PLAIN)
