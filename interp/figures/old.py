"""What only the drawings in `interp.pages` use; to go with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from interp.figures.axes import log_scale
from interp.figures.palette import glyph as visible_glyph
from interp.figures.style import drawable, png, save_figure, style

__all__ = ["BLUE", "GREY", "ORANGE", "PURPLE", "glyph", "log_scale", "png", "save_figure",
           "signed_bars", "style"]  # fmt: skip
ORANGE, PURPLE, BLUE, GREY = "#b35806", "#542788", "#0072b2", "#666666"


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


def glyph(characters: Sequence[str] | None, token: int) -> str:
    """Returns a token's character as it is drawn; its number where there are no characters."""
    return drawable(visible_glyph(characters, token))
