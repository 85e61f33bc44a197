"""The one style of all figures, and how they are written to files.

Contributions use a diverging scale, symmetric about zero and shared by all that is compared;
attention a sequential one from 0 to 1, with the masked half left empty. Both are safe for the
colour-blind (matplotlib's PuOr and cividis).
"""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager, get_font
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from interp import files
from interp.figures.palette import visible

FONT = "DejaVu Sans"  # comes with matplotlib, and has ␣ and ⏎
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "font.family": FONT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "figure.constrained_layout.use": True,
    "text.parse_math": False,  # a $ is a character like any other
    "svg.hashsalt": "gpt-interp",
    "svg.fonttype": "path",
    "savefig.facecolor": "white",
}
ORANGE, PURPLE, BLUE, GREY = "#b35806", "#542788", "#0072b2", "#666666"


@contextmanager
def style() -> Iterator[None]:
    """Applies the one style inside a `with` block only."""
    with mpl.rc_context(STYLE):
        yield


def log_scale(axes: Axes, letter: str) -> None:
    """Makes the x or y axis logarithmic, once drawn upon, with plain numbers on it.

    Over fewer than three decades 2 and 5 are numbered too; a narrow range would else have none.
    """
    set_scale, axis = (
        (axes.set_xscale, axes.xaxis) if letter == "x" else (axes.set_yscale, axes.yaxis)
    )
    set_scale("log")
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 1000 * low else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def signed_bars(
    axes: Axes, names: Sequence[str], values: np.ndarray, digits: int | None = None
) -> None:
    """Draws one bar a name, the first on top: orange for, purple against; with numbers if asked."""
    colours = [ORANGE if value > 0 else PURPLE for value in values]
    axes.barh(range(len(values)), values, color=colours, height=0.75)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(values)), names, fontsize=7)
    axes.set_ylim(len(values) - 0.4, -0.6)
    if digits is None:
        return
    span = float(np.abs(values).max()) or 1.0
    axes.set_xlim(min(values.min(), 0) - 0.2 * span, max(values.max(), 0) + 0.2 * span)
    for i, value in enumerate(values):
        up = value >= 0
        axes.annotate(f"{value:+.{digits}f}", (value, i), (3 if up else -3, 0),
                      textcoords="offset points", ha="left" if up else "right", va="center",
                      fontsize=6.5, color=GREY)  # fmt: skip


def save_figure(figure: Figure, stem: Path) -> None:
    """Writes `stem`.png (300 dpi) and `stem`.svg; the same figure gives the same bytes."""
    files.write_file(
        stem.with_name(f"{stem.name}.png"), lambda path: path.write_bytes(png(figure, 300))
    )
    figure.set_layout_engine("none")  # as the first drawing laid it out
    out = io.BytesIO()
    with style():
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    files.write_file(
        stem.with_name(f"{stem.name}.svg"), lambda path: path.write_bytes(out.getvalue())
    )


def png(figure: Figure, dpi: int) -> bytes:
    """Returns the figure as PNG bytes."""
    out = io.BytesIO()
    with style():
        figure.savefig(
            out,
            format="png",
            dpi=dpi,
            metadata={"Software": None},
            pil_kwargs={"compress_level": 3},
        )  # a third of the time, little larger
    return out.getvalue()


def glyph(characters: Sequence[str] | None, token: int) -> str:
    """Returns a token's character as it is drawn; its number where there are no characters."""
    if not characters:
        return str(token)
    shown = visible(characters[token])
    return shown if all(ord(c) in _drawable() for c in shown) else "□"


@functools.cache
def _drawable() -> frozenset[int]:
    """The code points that the figures' font has."""
    return frozenset(get_font(fontManager.findfont(FONT)).get_charmap())
