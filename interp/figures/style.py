"""The one style of all figures: font, colours, how wide a text is, and how figures become files."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager, get_font
from matplotlib.textpath import text_to_path

from interp import files
from interp.figures import palette

FONT = "DejaVu Sans"  # comes with matplotlib, and has ␣ and ⏎
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "font.family": FONT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "figure.constrained_layout.use": True,
    "text.parse_math": False,  # a $ is a character like any other
    "text.hinting": "none",  # else widths differ from resolution to resolution
    "svg.hashsalt": "gpt-interp",
    "svg.fonttype": "path",
    "savefig.facecolor": "white",
}
PLAIN: dict[str, Any] = {"family": FONT, "parse_math": False}  # of texts on anybody's axes
STEPS = 4096  # of a colour map: so many that each colour is the palette's own
LONGEST = 40  # characters of a name on an axis
GREY = palette.colour("grey")
BLACK = palette.colour("black")


@contextmanager
def style() -> Iterator[None]:
    """Applies the one style inside a `with` block only."""
    with mpl.rc_context(STYLE):
        yield


@functools.cache
def colormap(name: palette.Ramp) -> ListedColormap:
    """Returns a ramp of the palette as matplotlib's colour map."""
    colours = [palette.ramp(name, i / (STEPS - 1)) for i in range(STEPS)]
    return ListedColormap([[c / 255 for c in one] for one in colours], name=f"gpt-interp-{name}")


# ---- texts ---------------------------------------------------------------------------------------


def drawable(text: str) -> str:
    """Returns a text with □ for each character that the figures' font lacks; line ends stay."""
    return "".join(c if c == "\n" or ord(c) in _in_font() else "□" for c in text)


def short(name: str) -> str:
    """Returns a name as it stands on an axis: drawable, and cut if it is very long."""
    return drawable(name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…")


@functools.lru_cache(10_000)
def width_of(text: str, size: float) -> float:
    """Returns how wide a drawable text is, in inches, at a size in points."""
    font = FontProperties(family=FONT, size=size)
    lines = [line for line in text.split("\n") if line]
    measure = text_to_path.get_text_width_height_descent
    return max((float(measure(line, font, ismath=False)[0]) for line in lines), default=0.0) / 72


def wrapped(text: str, size: float, inches: float, between: str = " ") -> str:
    """Returns a drawable text, broken into lines where it is wider than that many inches."""
    lines: list[str] = []
    for given in drawable(text).split("\n"):
        line, *words = given.split(between)
        for word in words:
            if width_of(f"{line}{between}{word}", size) > inches:
                lines.append(line)
                line = word
            else:
                line += between + word
        lines.append(line)
    return "\n".join(lines)


@functools.cache
def _in_font() -> frozenset[int]:
    return frozenset(get_font(fontManager.findfont(FONT)).get_charmap())


# ---- files ---------------------------------------------------------------------------------------


def save_figure(figure: Figure, stem: Path) -> None:
    """Writes `stem`.png (300 dpi) and `stem`.svg; the same figure gives the same bytes.

    Both say in their metadata ("Description") what the line at the bottom of the figure says.

    Raises:
        OutputError: the folder cannot be written or the disk is full.
    """
    for ending, data in (("png", png(figure, 300)), ("svg", svg(figure))):
        place = stem.with_name(f"{stem.name}.{ending}")
        files.write_file(place, functools.partial(_write, data=data))


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def png(figure: Figure, dpi: int) -> bytes:
    """Returns the figure as PNG bytes."""
    about = {"Software": None, **_description(figure)}
    quick = {"compress_level": 3}  # a third of the time, little larger
    return _bytes_of(figure, format="png", dpi=dpi, metadata=about, pil_kwargs=quick)


def svg(figure: Figure) -> bytes:
    """Returns the figure as SVG bytes."""
    about = {"Date": None, "Creator": None, **_description(figure)}
    return _bytes_of(figure, format="svg", metadata=about)


def _bytes_of(figure: Figure, **options: Any) -> bytes:
    out = io.BytesIO()
    with style():
        figure.savefig(out, **options)
    figure.set_layout_engine("none")  # later drawings are laid out as the first
    return out.getvalue()


def _description(figure: Figure) -> dict[str, str]:
    """`draw` leaves the line about model, text, n and seed as the figure's label."""
    line = str(figure.get_label())
    return {"Description": line} if line else {}
