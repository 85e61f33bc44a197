"""What a figure says: numbers that are already computed, with labels, units, scales and limits.

A mark is frozen, checks itself, knows no analysis and draws nothing: `interp.figures.draw` makes a
matplotlib figure of it, the page's script an SVG or a canvas. Units belong into the labels. NaN is
"nothing there" everywhere: an empty cell, a missing point, an unknown interval.

    HeatMap    a number for each row and column
    Bars       one signed number per name
    Dots       one number per name, for one or more series, with intervals
    Points     pairs of numbers, with intervals both ways
    Lines      numbers against an ordered axis, with bands
    Panels     several marks side by side
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np

from interp.figures.palette import Ramp

Scale = Literal["linear", "root", "log", "log2", "symlog"]
Encode = Callable[[np.ndarray], Any]


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Base of all marks. `SHAPES` names the axes of a subclass's arrays; None may stand for one."""

    SHAPES: ClassVar[dict[str, tuple[str, ...]]] = {}
    title: str = ""

    def __post_init__(self) -> None:
        known: dict[str, int] = {}
        for name, axes in self.SHAPES.items():
            if (value := getattr(self, name)) is None:
                continue
            if str(self.__dataclass_fields__[name].type).startswith("tuple"):
                shape: tuple[int, ...] = (len(value),)
                object.__setattr__(self, name, tuple(value))
            else:
                array = np.array(value, dtype=np.float64)
                array.flags.writeable = False
                object.__setattr__(self, name, array)
                shape = array.shape
            if len(shape) != len(axes):
                raise ValueError(f"{name} has shape {shape}, expected axes {axes}")
            for axis, length in zip(axes, shape, strict=True):
                if known.setdefault(axis, length) != length:
                    raise ValueError(f"{name} has {length} along {axis!r}, expected {known[axis]}")

    def to_document(self, encode: Encode) -> dict[str, Any]:
        """Returns everything in the mark as values that JSON can hold; `encode` turns arrays."""
        values = {f.name: _plain(getattr(self, f.name), encode) for f in fields(self)}
        return {"mark": type(self).__name__, **values}


def _plain(value: Any, encode: Encode) -> Any:
    if isinstance(value, np.ndarray | Mark):
        return encode(value) if isinstance(value, np.ndarray) else value.to_document(encode)
    if isinstance(value, tuple):
        return [_plain(one, encode) for one in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True, kw_only=True)
class HeatMap(Mark):
    """`values` [row, column] in colours of `palette` from `low` to `high`.

    `scale` "root" spends the ramp on square roots (of the size, on either side of zero, where the
    palette is signed). `numbers` are texts in the cells. `strong_columns` have bold names; before
    breaks there is a gap. `columns_are` "positions": the page follows its selection there.
    """

    SHAPES: ClassVar = {"values": ("row", "column"), "rows": ("row",), "columns": ("column",)}
    values: np.ndarray
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    label: str
    low: float
    high: float
    row_label: str = ""
    column_label: str = ""
    palette: Ramp = "signed"
    scale: Scale = "linear"
    numbers: tuple[tuple[str, ...], ...] = ()
    strong_columns: tuple[int, ...] = ()
    row_breaks: tuple[int, ...] = ()
    column_breaks: tuple[int, ...] = ()
    columns_are: Literal["", "positions"] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise ValueError(f"limits {self.low} and {self.high} must be in that order")
        if self.palette == "signed" and self.low != -self.high:
            raise ValueError(f"a signed palette needs limits about zero, got {self.low, self.high}")
        if self.numbers and np.shape(self.numbers) != self.values.shape:
            raise ValueError(f"numbers have shape {np.shape(self.numbers)}, not the values'")


@dataclass(frozen=True, kw_only=True)
class Bars(Mark):
    """`values` [name] from zero, drawn top to bottom; for and against by sign.

    `digits` behind the point of the number beside each; None: no numbers.
    """

    SHAPES: ClassVar = {"values": ("name",), "names": ("name",)}
    names: tuple[str, ...]
    values: np.ndarray
    label: str
    digits: int | None = 2


@dataclass(frozen=True, kw_only=True)
class Series(Mark):
    """One series of `Dots` or `Lines`: `values` and, where they are known, ends of intervals.

    `colour`: a name of the palette or `#rrggbb`; `marker`: one of matplotlib's "o s ^ v D P", or
    "" for none. `tag`: a text at the end of a line. `faint`: one of many.
    """

    SHAPES: ClassVar = dict.fromkeys(("values", "low", "high"), ("at",))
    name: str
    values: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    colour: str = "blue"
    marker: str = ""
    line: bool = True
    dashed: bool = False
    tag: str = ""
    faint: bool = False


@dataclass(frozen=True, kw_only=True)
class Dots(Mark):
    """A dot for each name and series, with its interval, drawn top to bottom.

    `linear_within`: of a "symlog" axis (see `near_zero`). `strong` names are bold, others grey; by
    default all are plain. `empty`: what is written where there are no names.
    """

    SHAPES: ClassVar = {"names": ("name",)}
    names: tuple[str, ...]
    series: tuple[Series, ...]
    label: str
    scale: Scale = "linear"
    linear_within: float = 0.0
    strong: tuple[int, ...] | None = None
    empty: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_series(self.series, len(self.names))


@dataclass(frozen=True, kw_only=True)
class Points(Mark):
    """Pairs (`x`, `y`) with intervals, on equal axes with the line y = x; `ringed` ones stand out.

    Those named are those that find room, the largest first. Not for logarithmic scales."""

    SHAPES: ClassVar = dict.fromkeys(
        ("names", "x", "y", "x_low", "x_high", "y_low", "y_high"), ("name",)
    )
    names: tuple[str, ...]
    x: np.ndarray
    y: np.ndarray
    x_label: str
    y_label: str
    x_low: np.ndarray | None = None
    x_high: np.ndarray | None = None
    y_low: np.ndarray | None = None
    y_high: np.ndarray | None = None
    ringed: tuple[int, ...] = ()
    scale: Scale = "linear"
    linear_within: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale in ("log", "log2"):
            raise ValueError(f"points may be negative; scale {self.scale!r} has no place for them")


@dataclass(frozen=True, kw_only=True)
class Span(Mark):
    """A place on the x axis of `Lines`, with an interval where it is known."""

    at: float
    low: float = float("nan")
    high: float = float("nan")
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Lines(Mark):
    """Series over `x` [at]. `ticks` are (place, text); without them the axis numbers itself.

    `y_low`, `y_high`: limits; NaN leaves them to the data. `dodge`: markers of several series at
    one place stand beside each other. `legend` False: the series are told by their tags.
    """

    SHAPES: ClassVar = {"x": ("at",)}
    x: np.ndarray
    series: tuple[Series, ...]
    x_label: str
    y_label: str
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    ticks: tuple[tuple[float, str], ...] = ()
    y_low: float = float("nan")
    y_high: float = float("nan")
    spans: tuple[Span, ...] = ()
    zero: bool = False
    dodge: bool = False
    legend: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_series(self.series, len(self.x))


@dataclass(frozen=True, kw_only=True)
class Panels(Mark):
    """Marks side by side, `columns` in a row, each with its own title.

    `share`: all have the same limits and one legend or colour bar.
    """

    marks: tuple[Mark, ...]
    columns: int
    share: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.marks or self.columns < 1 or any(isinstance(m, Panels) for m in self.marks):
            raise ValueError("panels need at least one mark and one column, and hold no panels")


def _check_series(series: tuple[Series, ...], n: int) -> None:
    for one in series:
        if len(one.values) != n:
            raise ValueError(f"the series {one.name!r} has {len(one.values)} values, expected {n}")
