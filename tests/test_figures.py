"""Every mark is drawn with its numbers, readable, the same each time, and without a trace left."""

# mypy: disable-error-code="arg-type, attr-defined, index, no-untyped-call, union-attr"

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from gallery import GALLERY, LINE
from hypothesis import given, settings, strategies as st
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

import interp
from interp.figures import palette
from interp.figures.axes import log_scale, set_scale
from interp.figures.draw import draw, draw_on, png, save_figure
from interp.figures.marks import (
    Bars,
    Dots,
    HeatMap,
    Lines,
    Mark,
    Panels,
    Points,
    Series,
    Span,
)
from interp.figures.naming import name_largest
from interp.figures.notebook import frame_of
from interp.figures.ranges import near_zero
from interp.figures.style import colormap, drawable, width_of, wrapped

NAN = float("nan")
HOSTILE = (
    "$x$",
    "_hidden",
    "\\frac{a}{b}",
    "🦊א",
    "a\nb",
    "\0",
    "x" * 200,
    "",
    " ",
    "<b>&amp;",
    "%s",
)


def heat_map(values: Any, **options: Any) -> HeatMap:
    rows, columns = np.shape(values)
    given = {
        "rows": tuple(f"r{i}" for i in range(rows)), "columns": tuple("abcdefgh"[:columns]),
        "label": "effect (nats)", "low": -2.0, "high": 2.0,
    }  # fmt: skip
    return HeatMap(values=values, **{**given, **options})


def texts_of(labels: list[Text]) -> list[str]:
    return [label.get_text() for label in labels]


def intervals_of(axes: Axes, axis: int) -> list[np.ndarray]:
    """Returns the ends [at, low | high] of each set of intervals along x (0) or y (1)."""
    found = []
    for lines in axes.collections:
        if isinstance(lines, LineCollection):
            segments = np.array(lines.get_segments())
            if (segments[:, 0, 1 - axis] == segments[:, 1, 1 - axis]).all():
                found.append(segments[:, :, axis])
    return found


def boxes_of(figure: Figure) -> list[tuple[str, Any]]:
    """Returns every text that is drawn, with the pixels that it covers."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    texts = list(figure.findobj(Text))
    numbers = {
        id(label)
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks() + axis.get_minor_ticks()
        for label in (tick.label1, tick.label2)
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
    }
    return [
        (text.get_text(), text.get_window_extent(renderer))
        for text in texts
        if text.get_visible() and text.get_text().strip() and id(text) not in numbers
    ]


def covered(figure: Figure) -> list[tuple[str, str]]:
    """Returns pairs of texts of which one covers the other by more than a pixel's rim."""
    named = boxes_of(figure)
    boxes = np.array([box.padded(-1.0).extents for _, box in named]).reshape(-1, 4)
    low, high = boxes[:, None, :2], boxes[:, None, 2:]
    overlap = ((low <= boxes[None, :, 2:]) & (boxes[None, :, :2] <= high)).all(-1)
    return [(named[i][0], named[j][0]) for i, j in np.argwhere(np.triu(overlap, 1))]


def outside(figure: Figure) -> list[str]:
    """Returns texts that are cut off at the edge, a pixel of antialiasing aside."""
    whole = figure.bbox.padded(1.0)
    return [
        text for text, box in boxes_of(figure)
        if box.x0 < whole.x0 or box.y0 < whole.y0 or box.x1 > whole.x1 or box.y1 > whole.y1
    ]  # fmt: skip


# ---- heat maps -------------------------------------------------------------------------------


def test_a_heat_map_draws_its_numbers_names_and_limits() -> None:
    values = np.array([[1.0, -2.0, NAN], [0.5, 0.0, 1.5]])
    figure = draw(heat_map(values, row_label="part", column_label="position"))
    axes, bar = figure.axes
    (image,) = axes.images
    np.testing.assert_array_equal(np.ma.filled(image.get_array(), NAN), values)
    assert image.get_clim() == (-2, 2)
    assert texts_of(axes.get_yticklabels()) == ["r0", "r1"]
    assert texts_of(axes.get_xticklabels()) == ["a", "b", "c"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("position", "part")
    assert bar.get_ylabel() == "effect (nats)"
    assert axes.get_ylim() == (1.5, -0.5)  # the first row is on top


def test_an_empty_cell_is_left_empty() -> None:
    figure = draw(heat_map([[NAN, 1.0]]))
    (image,) = figure.axes[0].images
    colours = image.to_rgba(image.get_array())
    assert colours[0, 0, 3] == 0
    assert colours[0, 1, 3] == 1


@pytest.mark.parametrize("name", ["signed", "weight"])
def test_colours_are_those_of_the_palette(name: Any) -> None:
    shades = colormap(name)(np.linspace(0, 1, 1001), bytes=True)[:, :3].astype(int)
    expected = [palette.ramp(name, x) for x in np.linspace(0, 1, 1001)]
    assert np.abs(shades - expected).max() <= 1  # of 255
    assert (shades[[0, -1]] == [palette.RAMPS[name][0], palette.RAMPS[name][-1]]).all()


def test_a_signed_root_is_symmetric_and_a_root_of_weights_is_a_root() -> None:
    for mark in (
        heat_map([[0.5, -0.5]], scale="root"),
        heat_map([[0.5, 0.125]], scale="root", palette="weight", low=0, high=2),
    ):
        (image,) = draw(mark).axes[0].images
        at = np.asarray(image.norm(np.asarray(mark.values)))
        if mark.palette == "signed":
            np.testing.assert_allclose(at, [[0.75, 0.25]])
        else:
            np.testing.assert_allclose(at, [[0.5, 0.25]])
        assert "square-root" in draw(mark).axes[1].get_ylabel()


def test_numbers_in_cells_are_black_on_bright_and_white_on_dark() -> None:
    figure = draw(heat_map([[2.0, 0.1, -2.0, NAN]], numbers=(("2", ".1", "-2", "none"),)))
    drawn = {text.get_text(): text for text in figure.axes[0].texts}
    assert {name: text.get_color() for name, text in drawn.items()} == {
        "2": "white", ".1": "black", "-2": "white", "none": "black",
    }  # fmt: skip
    assert [drawn[name].get_position() for name in ("2", ".1", "-2")] == [(0, 0), (1, 0), (2, 0)]


def test_strong_columns_are_bold_and_breaks_are_lines() -> None:
    axes = draw(heat_map(np.zeros((2, 4)), strong_columns=(2,), column_breaks=(1, 3))).axes[0]
    bold = [label.get_fontweight() == "bold" for label in axes.get_xticklabels()]
    assert bold == [False, False, True, False]
    assert [line.get_xdata()[0] for line in axes.lines] == [0.5, 2.5]


def test_a_colour_bar_says_that_values_go_on() -> None:
    for values, extend in (([[3.0, -3.0]], "both"), ([[3.0]], "max"), ([[1.0]], "neither")):
        bar = draw(heat_map(values)).axes[0].images[0].colorbar
        assert bar is not None
        assert bar.extend == extend


def test_positions_without_room_are_numbered_and_names_are_some() -> None:
    n = 300
    names = tuple("ab" * (n // 2))
    square = draw(heat_map(np.zeros((n, n)), rows=names, columns=names, columns_are="positions"))
    for labels in (square.axes[0].get_xticklabels(), square.axes[0].get_yticklabels()):
        assert {text.lstrip("−-").isdigit() for text in texts_of(labels)} == {True}
    parts = tuple(f"L0.N{i}" for i in range(n))
    axes = draw(heat_map(np.zeros((n, 1)), rows=parts)).axes[0]
    shown = texts_of(axes.get_yticklabels())
    assert shown == [parts[int(at)] for at in axes.get_yticks()]
    assert len(shown) > 20


# ---- bars and dots ---------------------------------------------------------------------------


def test_bars_draw_their_values_for_and_against() -> None:
    values = [1.25, -2.0, NAN, 0.0]
    mark = Bars(names=("a", "b", "c", "d"), values=values, label="effect (nats)", title="towards e")
    axes = draw(mark).axes[0]
    np.testing.assert_array_equal([bar.get_width() for bar in axes.patches], values)
    assert to_hex(axes.patches[0].get_facecolor()) == palette.COLOURS["for"]
    assert to_hex(axes.patches[1].get_facecolor()) == palette.COLOURS["against"]
    assert [text.get_text() for text in axes.texts] == ["+1.25", "-2.00", "", "+0.00"]
    assert texts_of(axes.get_yticklabels()) == ["a", "b", "c", "d"]
    assert (axes.get_xlabel(), axes.get_title()) == ("effect (nats)", "towards e")
    top, bottom = axes.get_ylim()[::-1]
    assert top < 0
    assert bottom > 3
    assert not draw(Bars(names=("a",), values=[1.0], label="l", digits=None)).axes[0].texts


def dots(scale: Any = "linear", **options: Any) -> Dots:
    one = Series(name="direct", values=[1, 2, NAN], low=[0, NAN, 1], high=[2, 3, 2], colour="for")
    two = Series(name="total", values=[-1, 0, 5], colour="#0072b2", marker="D")
    return Dots(names=("a", "b", "c"), series=(one, two), label="effect (nats)", scale=scale,
                **options)  # fmt: skip


def test_dots_draw_values_and_intervals_side_by_side() -> None:
    axes = draw(dots()).axes[0]
    direct, total = (line for line in axes.lines if line.get_linestyle() == "None")
    np.testing.assert_array_equal(direct.get_xdata(), [1, 2, NAN])
    np.testing.assert_array_equal(total.get_xdata(), [-1, 0, 5])
    assert (np.round(direct.get_ydata()) == [0, 1, 2]).all()
    assert not set(direct.get_ydata()) & set(total.get_ydata())
    assert (total.get_marker(), to_hex(direct.get_color())) == ("D", palette.COLOURS["for"])
    (ends,) = intervals_of(axes, 0)
    np.testing.assert_array_equal(ends, [[0, 2], [1, 2]])  # where both ends are known
    assert texts_of(axes.get_legend().get_texts()) == ["direct", "total"]
    assert axes.get_xlabel() == "effect (nats)"


def test_dots_say_which_names_are_strong_and_what_is_not_there() -> None:
    labels = draw(dots(strong=(1,))).axes[0].get_yticklabels()
    assert [label.get_fontweight() for label in labels] == ["normal", "bold", "normal"]
    assert [to_hex(label.get_color()) for label in labels][:2] == ["#666666", "#1a1a1a"]
    nothing = draw(Dots(names=(), series=(), label="x", empty="no head stands out")).axes[0]
    assert [text.get_text() for text in nothing.texts] == ["no head stands out"]


def test_a_symmetric_logarithmic_axis_shows_sizes_of_all_kinds() -> None:
    values = np.full(20, 0.01)
    values[:2] = 40, -7
    mark = Dots(names=tuple(map(str, range(20))), series=(Series(name="s", values=values),),
                label="effect", scale="symlog", linear_within=near_zero(values))  # fmt: skip
    axes = draw(mark).axes[0]
    assert axes.get_xscale() == "symlog"
    assert {-1.0, 0.0, 0.01, 10.0} <= {round(float(at), 6) for at in axes.get_xticks()}
    assert {"-1", "0", "0.01", "10"} <= set(texts_of(axes.get_xticklabels()))
    low, high = axes.get_xlim()
    assert low <= -7 < 40 <= high
    assert axes.get_xlabel() == "effect; linear between the inner ticks"
    assert draw(dots("symlog")).axes[0].get_xscale() == "linear"  # no place near zero is known


# ---- points and lines ------------------------------------------------------------------------


def points(**options: Any) -> Points:
    x, y = np.array([1.0, -2.0, 0.5]), np.array([1.5, -1.0, NAN])
    return Points(
        names=("a", "b", "c"), x=x, y=y, x_low=x - 1, x_high=x + 1, y_low=y - 0.5, y_high=y + 0.5,
        x_label="direct", y_label="total", ringed=(1,), **options,
    )  # fmt: skip


@pytest.mark.parametrize("scale", ["linear", "symlog"])
def test_points_draw_pairs_intervals_and_rings_on_equal_axes(scale: str) -> None:
    mark = points(scale=scale, linear_within=0.1)
    axes = draw(mark).axes[0]
    pairs, ringed, same = axes.lines
    np.testing.assert_array_equal(pairs.get_xydata(), np.stack((mark.x, mark.y), 1))
    np.testing.assert_array_equal(ringed.get_xydata(), [[-2, -1]])
    np.testing.assert_array_equal(same.get_xdata(), same.get_ydata())
    (across,), (along,) = intervals_of(axes, 0), intervals_of(axes, 1)
    np.testing.assert_array_equal(across, [[0, 2], [-3, -1]])
    np.testing.assert_array_equal(along, [[1, 2], [-1.5, -0.5]])
    assert axes.get_xlim() == axes.get_ylim()
    assert [text.get_text() for text in axes.texts] == ["a", "b"]  # c is nowhere
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("direct", "total")


def lines(**options: Any) -> Lines:
    one = Series(name="model", values=[3, 2, 1], low=[2.5, 1.5, NAN], high=[3.5, 2.5, 2],
                 colour="green", tag="end")  # fmt: skip
    two = Series(name="theory", values=[2, NAN, NAN], colour="pink", dashed=True, tag="early")
    return Lines(x=[1, 2, 4], series=(one, two), x_label="step", y_label="loss (nats)", **options)


def test_lines_draw_series_bands_and_tags() -> None:
    axes = draw(lines()).axes[0]
    model, theory = axes.lines
    np.testing.assert_array_equal(model.get_xydata(), [[1, 3], [2, 2], [4, 1]])
    np.testing.assert_array_equal(theory.get_ydata(), [2, NAN, NAN])
    assert (model.get_linestyle(), theory.get_linestyle()) == ("-", "--")
    assert to_hex(model.get_color()) == palette.COLOURS["green"]
    (band,) = axes.collections
    corners = {tuple(corner) for path in band.get_paths() for corner in path.vertices}
    assert corners == {(1, 2.5), (1, 3.5), (2, 1.5), (2, 2.5)}
    assert {text.get_text(): text.xy for text in axes.texts} == {"end": (4, 1), "early": (1, 2)}
    assert texts_of(axes.get_legend().get_texts()) == ["model", "theory"]
    assert draw(lines(legend=False)).axes[0].get_legend() is None


def test_lines_have_their_ticks_limits_spans_and_zero() -> None:
    spans = Span(at=2, low=1, high=3, name="p"), Span(at=3)
    ticks = (1, "one"), (4, "four")
    mark = lines(ticks=ticks, y_low=0, spans=spans, zero=True, x_scale="log2")
    axes = draw(mark).axes[0]
    assert texts_of(axes.get_xticklabels()) == ["one", "four"]
    assert list(axes.get_xticks()) == [1, 4]
    assert axes.get_ylim()[0] == 0
    assert axes.get_xscale() == "log"
    assert [line.get_xdata()[0] for line in axes.lines[2:4]] == [2, 3]
    (span,) = axes.patches
    assert (span.get_x(), span.get_width()) == (1, 2)
    assert texts_of(axes.get_legend().get_texts()) == ["model", "theory", "p"]
    assert list(axes.lines[4].get_ydata()) == [0, 0]


@pytest.mark.parametrize("scale", ["linear", "log2"])
def test_markers_at_one_place_stand_beside_each_other(scale: Any) -> None:
    x = np.array([8, 16, 32])
    series = [
        Series(name=f"arm {i}", values=[i, i, i], low=[i - 1] * 3, high=[i + 1] * 3, marker="o")
        for i in range(6)
    ]
    series.append(Series(name="theory", values=[0, 0, 0]))
    mark = Lines(x=x, series=tuple(series), x_label="d", y_label="y", dodge=True, x_scale=scale)
    axes = draw(mark).axes[0]
    places = np.array([line.get_xdata() for line in axes.lines[:6]])
    gap = places[1:, 0] - places[:-1, 0]
    assert (gap > 0.01).all()
    measure = np.log if scale == "log2" else np.asarray
    np.testing.assert_allclose(measure(places).mean(0), measure(x))
    assert np.ptp(measure(places), axis=0).max() < 0.5 * np.diff(measure(x)).min()
    np.testing.assert_array_equal(axes.lines[6].get_xdata(), x)  # a line without markers stays
    for i, ends in enumerate(intervals_of(axes, 1)):
        np.testing.assert_array_equal(ends, [[i - 1, i + 1]] * 3)


def test_tags_of_lines_that_end_together_are_spread() -> None:
    series = tuple(Series(name=f"s{i}", values=[0, 1 + i / 1e4], tag=f"s{i}") for i in range(8))
    figure = draw(Lines(x=[0, 1], series=series, x_label="x", y_label="y", legend=False))
    assert not covered(figure)


@pytest.mark.parametrize("values", [(0.2, 3.9), (1.5, 4.5), (2.1, 2.4), (1e-6, 10.0)])
@pytest.mark.parametrize("letter", ["x", "y"])
def test_a_logarithmic_axis_has_plain_numbers_on_it_however_narrow_it_is(
    letter: Any, values: Any
) -> None:
    figure = Figure()
    axes = figure.subplots()
    axes.plot(values, values)
    log_scale(axes, letter)
    figure.canvas.draw()
    axis = axes.xaxis if letter == "x" else axes.yaxis
    shown = [text.get_text() for text in axis.get_ticklabels(which="both") if text.get_text()]
    low, high = axis.get_view_interval()
    assert len([label for label in shown if low <= float(label) <= high]) >= 2


def test_a_logarithmic_axis_without_a_positive_number_stays_linear() -> None:
    axes = Figure().subplots()
    axes.plot([-1, 0], [NAN, NAN])
    set_scale(axes, "x", "log")
    set_scale(axes, "y", "log")
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "linear")


def test_a_root_axis_is_a_root() -> None:
    axes = Figure().subplots()
    axes.plot([-4, 9], [0, 1])
    set_scale(axes, "x", "root")
    np.testing.assert_allclose(axes.xaxis.get_transform().transform([-4.0, 9.0]), [-2, 3])


# ---- names of points -------------------------------------------------------------------------


def test_names_of_crowded_points_cover_neither_each_other_nor_points_and_stand_by_their_own() -> (
    None
):
    rng = np.random.default_rng(0)
    for middle, spread in ((0.5, 1e-3), (0.5, 0.02), (0.97, 0.05), (0.02, 0.03), (0.5, 0.7)):
        places = middle + spread * rng.uniform(-0.5, 0.5, (8, 2))
        figure = Figure(figsize=(2.5, 2.6))
        axes = figure.subplots()
        axes.plot(*places.T, "o", markersize=3.5)
        axes.set(xlim=(0, 1), ylim=(0, 1))
        figure.draw_without_rendering()
        names = [f"L0.H{i}" for i in range(8)]
        name_largest(axes, names, places)
        canvas = FigureCanvasAgg(figure)
        boxes = {t.get_text(): t.get_window_extent(canvas.get_renderer()) for t in axes.texts}
        at = axes.transData.transform(places)
        for name, box in boxes.items():
            low, high = box.min, box.max
            assert (low >= axes.bbox.min).all(), (spread, name)
            assert (high <= axes.bbox.max).all(), (spread, name)
            gaps = np.hypot(*np.maximum(0, np.maximum(low - at, at - high)).T)
            assert gaps[names.index(name)] <= gaps.min() + 1.5, (spread, name)  # pixels
            assert gaps.min() > 0, (spread, name)
            assert not any(box.overlaps(other) for key, other in boxes.items() if key != name)


def test_points_with_room_are_named_the_largest_first() -> None:
    axes = Figure(figsize=(2.5, 2.6)).subplots()
    axes.set(xlim=(0, 1), ylim=(-1, 1))
    places = np.array([[0.2, 0.3], [0.5, -0.6], [0.7, 0.8], [0.4, 0]])
    name_largest(axes, ["a", "b", "c", "d"], places)
    assert [text.get_text() for text in axes.texts] == ["c", "b", "a"]


# ---- panels ----------------------------------------------------------------------------------


def test_panels_that_share_have_one_colour_bar_one_scale_and_common_labels() -> None:
    maps = tuple(
        heat_map(np.full((3, 3), i), title=f"L0.H{i}", row_label="query", column_label="key")
        for i in range(3)
    )
    figure = draw(Panels(marks=maps, columns=2, share=True, title="heads"))
    assert len(figure.axes) == 4
    for i, axes in enumerate(figure.axes[:3]):
        assert (np.asarray(axes.images[0].get_array()) == i).all()
        assert axes.get_title() == f"L0.H{i}"
        assert axes.get_xlabel() == axes.get_ylabel() == ""
    assert (figure.get_supxlabel(), figure.get_supylabel()) == ("key", "query")
    assert figure.get_suptitle() == "heads"
    shown = [axes.xaxis.get_tick_params()["labelbottom"] for axes in figure.axes[:3]]
    assert shown == [False, True, True]  # each column's last
    apart = draw(Panels(marks=(heat_map([[1.0]]), heat_map([[1.0]], high=3, low=-3)), columns=2))
    assert len(apart.axes) == 4  # other limits, other bars


def test_panels_that_share_have_the_same_limits_and_one_legend() -> None:
    two = lines(title="b"), Lines(x=[1, 9], series=(Series(name="other", values=[0, 70]),),
                                  x_label="step", y_label="loss (nats)")  # fmt: skip
    figure = draw(Panels(marks=two, columns=2, share=True))
    left, right = figure.axes
    assert left.get_xlim() == right.get_xlim()
    assert left.get_ylim() == right.get_ylim()
    (legend,) = figure.legends
    assert texts_of(legend.get_texts()) == ["model", "theory", "other"]
    figure = draw(Panels(marks=two, columns=2))
    assert figure.axes[0].get_ylim() != figure.axes[1].get_ylim()
    assert not figure.legends
    assert texts_of(figure.axes[1].get_legend().get_texts()) == ["other"]


# ---- any figure ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GALLERY)
def test_nothing_that_is_written_covers_another_text_or_is_cut_off(name: Any) -> None:
    figure = draw(GALLERY[name](), LINE)
    assert covered(figure) == []
    assert outside(figure) == []


@pytest.mark.parametrize("name", GALLERY)
def test_names_of_a_mark_are_all_on_its_axes_where_there_is_room(name: Any) -> None:
    mark = GALLERY[name]()
    marks = mark.marks if isinstance(mark, Panels) else (mark,)
    axes = draw(mark, LINE).axes
    for one, its in zip(marks, axes, strict=False):
        if isinstance(one, Bars | Dots) or (isinstance(one, HeatMap) and len(marks) == 1):
            names = one.rows if isinstance(one, HeatMap) else one.names
            assert texts_of(its.get_yticklabels()) == list(names)
        if isinstance(one, HeatMap) and len(marks) == 1:
            assert texts_of(its.get_xticklabels()) == list(one.columns)


def test_the_line_is_at_the_bottom_and_in_the_files(tmp_path: Path) -> None:
    line = "model tiny (1a2b) · text “First␣”\0🦊 · n = 2 · seed 0"
    said = line.replace("\0", "□").replace("🦊", "□")
    figure = draw(Panels(marks=(lines(), lines()), columns=2), line)
    text = figure.texts[0]
    assert text.get_text().replace("\n", " · ") == said
    boxes = dict(boxes_of(figure))
    assert boxes[text.get_text()].y1 <= min(box.y0 for name, box in boxes.items()
                                            if name != text.get_text())  # fmt: skip
    save_figure(figure, tmp_path / "a.b")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.b.png", "a.b.svg"]
    image = Image.open(tmp_path / "a.b.png")
    image.load()
    assert image.text == {"Description": said}
    assert f"<dc:description>{said}</dc:description>" in (tmp_path / "a.b.svg").read_text("utf-8")
    plain = io.BytesIO(png(draw(lines()), 40))
    assert Image.open(plain).text == {}


def test_a_line_that_is_too_long_for_the_figure_is_broken() -> None:
    figure = draw(heat_map([[1.0]]), " · ".join(f"part {i} of the line" for i in range(12)))
    assert figure.texts[0].get_text().count("\n") >= 2
    assert outside(figure) == []


def test_the_same_mark_and_the_same_figure_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("scores", "points", "sweep"):
        first, second = (draw(GALLERY[name](), LINE) for _ in range(2))
        assert png(first, 60) == png(second, 60) == png(first, 60)
        for folder in ("a", "b"):
            save_figure(first, tmp_path / folder / name)
        save_figure(second, tmp_path / "c" / name)
        for ending in ("png", "svg"):
            one, two, three = (
                (tmp_path / f / f"{name}.{ending}").read_bytes() for f in ("a", "b", "c")
            )
            assert one == two == three


def test_settings_of_matplotlib_stay_what_they_were() -> None:
    before = dict(mpl.rcParams)
    figure = draw(lines(), LINE)
    png(figure, 30)
    draw_on(Figure().subplots(), dots())
    assert dict(mpl.rcParams) == before


def test_marks_are_drawn_on_axes_of_ones_own() -> None:
    figure = Figure(figsize=(9, 4))
    left, right = figure.subplots(1, 2)
    draw_on(left, heat_map([[1.0, -1.0]], columns=("$a$", "\\b"), title="$t$"))
    draw_on(right, lines())
    np.testing.assert_array_equal(left.images[0].get_array(), [[1, -1]])
    assert len(figure.axes) == 3
    np.testing.assert_array_equal(right.lines[0].get_ydata(), [3, 2, 1])
    written = [left.title, *left.get_xticklabels(), right.xaxis.label, *right.texts]
    assert not any(text.get_parse_math() for text in written)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.savefig(io.BytesIO())  # a $ is no mathematics outside the style either
    with pytest.raises(interp.ConfigError, match="draw each of their marks"):
        draw_on(left, Panels(marks=(lines(),), columns=1))


@pytest.mark.parametrize("kind", [Mark])
def test_something_that_is_no_mark_of_ours_is_refused(kind: Any) -> None:
    with pytest.raises(interp.ConfigError, match="a Mark cannot be drawn"):
        draw(kind())


names_of = st.sampled_from(HOSTILE) | st.text(max_size=8)
numbers = st.floats(-1e6, 1e6) | st.just(NAN) | st.sampled_from([0.0, 1e-9])


@st.composite
def some_marks(draw_from: Any) -> Mark:
    """Returns a mark of any kind and size from 1 × 1, with any numbers and names."""
    rows, columns = draw_from(st.integers(1, 4)), draw_from(st.integers(1, 4))

    def array(*shape: int) -> np.ndarray:
        n = int(np.prod(shape))
        return np.array(draw_from(st.lists(numbers, min_size=n, max_size=n))).reshape(shape)

    def names(n: int) -> tuple[str, ...]:
        return tuple(draw_from(st.lists(names_of, min_size=n, max_size=n)))

    scale: Any = draw_from(st.sampled_from(["linear", "root", "log", "log2", "symlog"]))
    label, title = draw_from(names_of), draw_from(names_of)
    match draw_from(st.sampled_from(["map", "bars", "dots", "points", "lines"])):
        case "map":
            return HeatMap(values=array(rows, columns), rows=names(rows), columns=names(columns),
                           label=label, low=-1, high=1, scale=scale, title=title,
                           numbers=tuple(names(columns) for _ in range(rows)))  # fmt: skip
        case "bars":
            return Bars(names=names(rows), values=array(rows), label=label, title=title)
        case "points":
            return Points(names=names(rows), x=array(rows), y=array(rows), x_low=array(rows),
                          x_high=array(rows), x_label=label, y_label=label,
                          scale="linear" if scale in ("log", "log2") else scale,
                          linear_within=0.5, title=title, ringed=(0,))  # fmt: skip
        case kind:
            series = tuple(
                Series(name=draw_from(names_of), values=array(rows), low=array(rows),
                       high=array(rows), tag=draw_from(names_of), line=draw_from(st.booleans()),
                       marker=draw_from(st.sampled_from(["", "o"])))
                for _ in range(columns)
            )  # fmt: skip
            if kind == "dots":
                return Dots(names=names(rows), series=series, label=label, scale=scale, title=title,
                            linear_within=0.5)  # fmt: skip
            return Lines(x=np.cumsum(np.abs(np.nan_to_num(array(rows))) + 1), series=series,
                         x_label=label, y_label=label, x_scale=scale, y_scale=scale, title=title,
                         dodge=draw_from(st.booleans()),
                         spans=(Span(at=1, name=draw_from(names_of)),))  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(marks=st.lists(some_marks(), min_size=1, max_size=3), share=st.booleans())
def test_marks_of_any_size_with_any_numbers_and_names_are_drawn_without_a_warning(
    marks: Any, share: bool
) -> None:
    share = share and len({type(mark) for mark in marks}) == 1
    mark = marks[0] if len(marks) == 1 else Panels(marks=tuple(marks), columns=2, share=share)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Image.open(io.BytesIO(png(draw(mark, LINE), 20))).size[0] > 20


@pytest.mark.parametrize("scale", ["linear", "symlog", "log", "root"])
def test_marks_of_nothing_but_missing_numbers_are_drawn(scale: Any) -> None:
    none = np.full(3, NAN)
    empty = Series(name="s", values=none, low=none, high=none, tag="t")
    for mark in (
        heat_map(np.full((2, 3), NAN), scale=scale),
        Bars(names=tuple("abc"), values=none, label="l"),
        Dots(names=tuple("abc"), series=(empty,), label="l", scale=scale, linear_within=1),
        Points(
            names=tuple("abc"),
            x=none,
            y=none,
            x_label="x",
            y_label="y",
            scale="linear" if scale == "log" else scale,
        ),
        Lines(x=[1, 2, 3], series=(empty,), x_label="x", y_label="y", y_scale=scale),
        Bars(names=(), values=[], label="l"),
        Lines(x=[], series=(), x_label="x", y_label="y"),
    ):
        assert png(draw(mark), 20)[:4] == b"\x89PNG"


def test_a_character_without_a_glyph_is_drawn_as_a_box() -> None:
    assert drawable("a␣⏎🦊\0א\n") == "a␣⏎□□א\n"
    names = ("🦊", "\0", "$")
    figure = draw(Bars(names=names, values=[1, 2, 3], label="🦊", title="to 🦊"), "🦊")
    assert texts_of(figure.axes[0].get_yticklabels()) == ["□", "□", "$"]
    assert figure.axes[0].get_xlabel() == "□"
    assert figure.axes[0].get_title() == "to □"
    assert figure.texts[0].get_text() == "□"


def test_texts_are_broken_where_they_are_too_wide() -> None:
    text = "the quick brown fox jumps over the lazy dog"
    broken = wrapped(text, 9, 1.0)
    assert broken.replace("\n", " ") == text
    assert max(width_of(line, 9) for line in broken.split("\n")) <= 1.0
    assert wrapped("unbreakable" * 9, 9, 1.0) == "unbreakable" * 9


# ---- notebooks, and who may draw ---------------------------------------------------------------


def test_a_notebook_frame_has_each_figure_with_its_caption_and_a_table_s_first_rows() -> None:
    table = pd.DataFrame({"value": np.arange(12)})
    frame = frame_of("A <b>", [(lines(), 'caption "1"'), (dots(), "two")], table, LINE)
    assert frame.startswith('<iframe sandbox="" srcdoc="')
    assert frame.count("data:image/png;base64,") == 2
    assert "caption &amp;quot;1&amp;quot;" in frame
    assert "12 rows; all of them" in frame
    assert "<b>" not in frame


def test_marks_and_palette_need_no_matplotlib() -> None:
    code = "import sys, interp.figures.marks; print('matplotlib' in sys.modules)"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert asked.stdout.strip() == "False"


def test_only_the_room_of_figures_imports_matplotlib() -> None:
    package = Path(interp.__file__).parent
    for path in package.rglob("*.py"):
        if path.parent.name == "figures":
            continue
        for node in ast.parse(
            path.read_text("utf-8")
        ).body:  # what is for type checkers only is deeper
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert not re.search(r"\bmatplotlib\b", ast.unparse(node)), path


@pytest.mark.parametrize("scale", ["log", "log2"])
def test_points_refuse_a_scale_without_a_place_for_negative_numbers(scale: Any) -> None:
    with pytest.raises(ValueError, match="points may be negative"):
        Points(names=("a",), x=[1.0], y=[1.0], x_label="x", y_label="y", scale=scale)


def test_what_has_no_place_on_a_logarithmic_axis_is_left_out() -> None:
    low, high = np.array([-1.0, 0.5, -3.0]), np.array([2.0, 4.0, -1.0])
    one = Series(name="s", values=[1.0, 2.0, -2.0], low=low, high=high, line=False)
    mark = Lines(x=[1, 2, 3], series=(one,), x_label="x", y_label="y", y_scale="log")
    axes = draw(mark).axes[0]
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [1, 2, NAN])
    assert axes.get_yscale() == "log"
    bottom = min(
        segment[:, 1].min() for bars in axes.collections for segment in bars.get_segments()
    )
    assert bottom == 0.5
