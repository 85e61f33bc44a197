"""Figures of what was caused, and the page with every kind of result."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch
from conftest import N_CTX, random_model, random_tokens
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text

import interp
from interp.figures.style import style
from interp.pages import figures
from interp.pages.effect_figures import _name_largest

STRANGE = "$\n\0_^\\{🦊א"  # what markup, fonts and terminals stumble over
CLEAN, CORRUPTED = "abcdefga", "abcdgfga"


@pytest.fixture(scope="module")
def model() -> interp.HookedGPT:
    return random_model()


@pytest.fixture(scope="module")
def effects(model: interp.HookedGPT) -> interp.ComponentEffects:
    tokens = random_tokens(model, batch=6)
    return interp.component_effects(model, tokens, ablate="zero", metric="log_prob")


@pytest.fixture(scope="module")
def cache(model: interp.HookedGPT) -> interp.ActivationCache:
    return model.run_with_cache("abcdefgab")[1]


def patching(model: interp.HookedGPT, site: Any = "head", **options: Any) -> interp.Patching:
    options = {"target": "c", "foil": "e"} | options
    return interp.activation_patching(model, CLEAN, CORRUPTED, site, **options)


def strange_model() -> interp.HookedGPT:
    tokenizer = interp.CharTokenizer.from_text(STRANGE)
    cfg = interp.GPTConfig(n_layers=1, n_heads=2, d_model=8, n_ctx=16, d_vocab=len(tokenizer))
    return interp.HookedGPT(cfg, tokenizer, seed=3).eval()


def errorbars(axes: Axes) -> list[ErrorbarContainer]:
    return [c for c in axes.containers if isinstance(c, ErrorbarContainer)]


def bars(axes: Axes) -> np.ndarray:
    (container,) = (c for c in axes.containers if isinstance(c, BarContainer))
    return np.array([bar.get_width() for bar in container])


def ticks(labels: list[Text]) -> list[str]:
    return [label.get_text() for label in labels]


def image_of(figure: Figure) -> np.ma.MaskedArray:
    return np.ma.masked_invalid(figure.axes[0].images[0].get_array())


def bytes_of(figure: Figure) -> tuple[bytes, bytes]:
    svg = io.BytesIO()
    with style():
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return figures.png(figure, 40), svg.getvalue()


def outside(figure: Figure) -> list[str]:
    """Returns what is drawn outside the figure, a pixel of antialiasing aside."""
    with style():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        renderer = canvas.get_renderer()
        whole, found = figure.bbox, []
        drawn: list[tuple[str, Any]]
        texts = [
            t for axes in figure.axes for t in (axes.title, axes.xaxis.label, axes.yaxis.label)
        ]
        texts += [t for axes in figure.axes for t in axes.texts]
        texts += [t for axes in figure.axes for t in axes.get_yticklabels() if len(axes.images)]
        drawn = [(t.get_text(), t.get_window_extent(renderer)) for t in texts if t.get_text()]
        drawn += [(f"{axis.axis_name} axis", axis.get_tightbbox(renderer))
                  for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]  # fmt: skip
        for text, box in drawn:
            if box is not None and (
                min(box.x0, box.y0) < -1 or box.x1 > whole.x1 + 1 or box.y1 > whole.y1 + 1
            ):
                found.append(f"{text!r} at {np.round(box.extents)} in {whole.x1}×{whole.y1}")
    return found


# ---- effects ---------------------------------------------------------------------------------


def test_effects_bars_draw_the_means_and_their_intervals(effects: interp.ComponentEffects) -> None:
    axes = figures.effects_bars(effects).axes[0]
    table = effects.to_frame()
    for name, container in zip(("direct", "total"), errorbars(axes), strict=True):
        assert container.get_label() == name
        line, _, (spans,) = container.lines
        np.testing.assert_array_equal(line.get_xdata(), table[name])
        assert set(np.round(line.get_ydata())) == set(range(len(table)))
        ends = np.array([segment[:, 0] for segment in spans.get_segments()])
        np.testing.assert_allclose(ends[:, 0], table[f"{name}_low"], atol=1e-12)
        np.testing.assert_allclose(ends[:, 1], table[f"{name}_high"], atol=1e-12)
    assert ticks(axes.get_yticklabels()) == list(effects.components)
    assert axes.get_xlabel().startswith("effect on log_prob (nats)")
    top, bottom = axes.get_ylim()[::-1]
    assert top < 0 < len(table) - 1 < bottom  # the first part is on top


def test_effects_scatter_draws_a_panel_a_layer(effects: interp.ComponentEffects) -> None:
    figure = figures.effects_scatter(effects)
    table, agreement = effects.to_frame(), effects.agreement().set_index("layer")
    assert len(figure.axes) == 2
    for layer, axes in enumerate(figure.axes):
        some = table[table["layer"] == layer]
        (container,) = errorbars(axes)
        np.testing.assert_array_equal(container.lines[0].get_xdata(), some["direct"])
        np.testing.assert_array_equal(container.lines[0].get_ydata(), some["total"])
        across, along = container.lines[2]
        for spans, name, i in ((across, "direct", 0), (along, "total", 1)):
            ends = np.array([segment[:, i] for segment in spans.get_segments()])
            np.testing.assert_allclose(ends, some[[f"{name}_low", f"{name}_high"]], atol=1e-12)
        ringed = next(line for line in axes.lines if line.get_markersize() == 9)
        np.testing.assert_array_equal(ringed.get_xdata(), some["direct"][some["signs_disagree"]])
        assert f"layer {layer}: rank correlation" in axes.get_title()
        assert f"{agreement.loc[str(layer), 'spearman']:.2f}" in axes.get_title()
        assert axes.get_xlim() == axes.get_ylim()
        largest = some.loc[some["total"].abs().sort_values(ascending=False).index[:3], "component"]
        assert {t.get_text() for t in axes.texts} == set(largest)
    assert figure.get_supxlabel() == "direct effect on log_prob (nats)"
    assert figure.get_supylabel() == "total effect"


@pytest.mark.parametrize(
    ("metric", "said"), [("kl", "kl (nats)"), ("loss", "loss (nats)"), ("centered", "(logits)")]
)
def test_effects_name_their_unit(effects: interp.ComponentEffects, metric: str, said: str) -> None:
    result = replace(effects, metric=metric)
    assert said in figures.effects_bars(result).axes[0].get_xlabel()
    assert said in figures.effects_scatter(result).get_supxlabel()


def test_one_sequence_has_points_without_intervals(model: interp.HookedGPT) -> None:
    one = interp.component_effects(model, random_tokens(model, batch=1), ablate="zero")
    assert one.to_frame()["total_low"].isna().all()
    for figure in (figures.effects_bars(one), figures.effects_scatter(one)):
        container = errorbars(figure.axes[0])[0]
        assert np.isfinite(np.asarray(container.lines[0].get_xdata(), dtype=float)).all()
        for spans in container.lines[2]:
            assert all((segment[0] == segment[1]).all() for segment in spans.get_segments())
        assert figures.png(figure, 40)


def test_effects_of_nothing_at_all(effects: interp.ComponentEffects) -> None:
    zero = np.zeros_like(effects.direct)
    none = replace(effects, direct=zero, direct_renormalised=zero, total=zero)
    for figure in (figures.effects_bars(none), figures.effects_scatter(none)):
        np.testing.assert_array_equal(errorbars(figure.axes[0])[0].lines[0].get_xdata(), 0)
        assert figures.png(figure, 40)


@pytest.mark.parametrize("kwargs", [{"n_layers": 0}, {"n_layers": 1}, {"n_layers": 3}])
@pytest.mark.parametrize("by", ["block", "head"])
def test_models_with_few_parts_a_layer_are_drawn(kwargs: dict[str, int], by: Any) -> None:
    model = random_model(**kwargs)
    result = interp.component_effects(model, random_tokens(model, batch=3), by=by)
    assert figures.png(figures.effects_bars(result), 30)
    scatter = figures.effects_scatter(result)
    assert figures.png(scatter, 30)
    panels = [axes.get_title().split(":")[0] for axes in scatter.axes]
    assert panels == [f"layer {layer}" for layer in range(kwargs["n_layers"])]


def test_effects_of_very_different_sizes_are_all_seen(effects: interp.ComponentEffects) -> None:
    sizes = np.full_like(effects.total, 0.01)
    sizes[0], sizes[1] = 40.0, -7.0
    result = replace(effects, direct=sizes, direct_renormalised=sizes, total=sizes)
    axes = figures.effects_bars(result).axes[0]
    assert axes.get_xscale() == "symlog"
    assert {-1.0, 0.0, 0.01, 10.0} <= {round(float(t), 6) for t in axes.get_xticks()}
    low, high = axes.get_xlim()
    assert low <= -7 < 40 <= high
    sizes[:2] = 0.02
    axes = figures.effects_bars(replace(result, direct=sizes, total=sizes)).axes[0]
    assert axes.get_xscale() == "linear"


# ---- attribution and Shapley values ----------------------------------------------------------


@pytest.mark.parametrize("by", ["source", "neuron"])
def test_many_rows_are_drawn_one_by_one_or_as_their_sum(
    model: interp.HookedGPT, cache: interp.ActivationCache, by: Any
) -> None:
    parts = interp.logit_attribution(model, cache, by=by)
    figure = figures.contribution_map(parts)
    names = ticks(figure.axes[0].get_yticklabels())
    drawn = np.asarray(image_of(figure))
    assert len(names) == 40
    assert names[-1] == f"{len(parts.components) - 39:,} others"
    np.testing.assert_allclose(drawn.sum(0), parts.values[:, 0].sum(0), atol=1e-4)
    for name, row in zip(names[:-1], drawn, strict=False):
        np.testing.assert_array_equal(row, parts.row(name)[0])
    assert figure.axes[1].get_ylabel() == "contribution to\nlogit − mean logit (logits)"
    limit = figure.axes[0].images[0].get_clim()
    assert limit == (-np.abs(drawn).max(), np.abs(drawn).max())

    figure = figures.contribution_bars(parts, pos=3)
    axes = figure.axes[0]
    names, widths = ticks(axes.get_yticklabels()), bars(axes)
    assert len(names) == len(widths) == 40
    for name, width in zip(names[:-1], widths, strict=False):
        assert width == parts.row(name)[0, 3]
    assert widths.sum() == pytest.approx(parts.total[0, 3], abs=1e-4)
    hidden = [c for c in parts.components if c not in names]
    assert widths[-1] == pytest.approx(sum(parts.row(c)[0, 3] for c in hidden), abs=1e-5)
    assert axes.get_title() == f"after d, towards e: they sum to {parts.total[0, 3]:+.2f}"


@pytest.mark.parametrize("into", ["L1.H2.k", "L1.N5"])
def test_what_a_part_reads_is_drawn(
    model: interp.HookedGPT, cache: interp.ActivationCache, into: str
) -> None:
    vector = torch.ones(model.config.d_head) if into.endswith("k") else None
    parts = interp.stream_attribution(model, cache, into, vector, by="head")
    figure = figures.contribution_map(parts)
    axes = figure.axes[0]
    np.testing.assert_array_equal(image_of(figure), parts.values[:, 0])
    assert ticks(axes.get_yticklabels()) == list(parts.components)
    assert ticks(axes.get_xticklabels()) == list("abcdefgab")
    assert axes.get_xlabel() == "token at each position"
    assert figure.axes[1].get_ylabel() == f"contribution to\nwhat {into} reads"
    axes = figures.contribution_bars(parts, pos=-1).axes[0]
    np.testing.assert_array_equal(bars(axes), parts.values[:, 0, -1])
    assert axes.get_title() == f"after b: they sum to {parts.total[0, -1]:+.2f}"


def test_shapley_bars_draw_the_means(
    model: interp.HookedGPT, cache: interp.ActivationCache
) -> None:
    values = interp.shapley_values(model, cache)
    axes = figures.shapley_bars(values).axes[0]
    means = values.values.mean((1, 2))
    np.testing.assert_array_equal(bars(axes), means)
    assert ticks(axes.get_yticklabels()) == list(values.components)
    assert [t.get_text() for t in axes.texts] == [f"{mean:+.3f}" for mean in means]
    assert axes.get_xlabel() == "Shapley value of log_prob (nats), mean over positions"


# ---- patching --------------------------------------------------------------------------------


@pytest.mark.parametrize("site", ["head", "resid_pre", "mlp_out"])
def test_a_patching_map_draws_the_shares(model: interp.HookedGPT, site: str) -> None:
    result = patching(model, site)
    figure = figures.patching_map(result)
    axes = figure.axes[0]
    n_places = 4 if site == "head" else len(CLEAN)
    np.testing.assert_array_equal(image_of(figure), result.shares.reshape(2, n_places))
    assert ticks(axes.get_yticklabels()) == ["L0", "L1"]
    assert axes.get_title() == "denoise: c over e after position 7"
    assert figure.axes[1].get_ylabel() == "share of the\ndifference moved"
    low, high = axes.images[0].get_clim()
    assert low == -high == -max(1, np.abs(result.shares).max())
    if site == "head":
        assert ticks(axes.get_xticklabels()) == ["H0", "H1", "H2", "H3"]
        assert [t.get_text() for t in axes.texts] == [f"{share:.2f}" for share in result.shares]
    else:
        labels = axes.get_xticklabels()
        pairs = [f"{a}\n{b}" for a, b in zip(CLEAN, CORRUPTED, strict=True)]
        assert ticks(labels) == pairs
        bold = [i for i, label in enumerate(labels) if label.get_fontweight() == "bold"]
        assert bold == [4]


@pytest.mark.parametrize("into", ["L1.H2.q", "logits"])
def test_paths_are_drawn_as_bars(model: interp.HookedGPT, into: str) -> None:
    result = interp.path_patching(
        model, CLEAN, CORRUPTED, into, direction="noise", target="c", foil="e"
    )
    axes = figures.patching_map(result).axes[0]
    np.testing.assert_array_equal(bars(axes), result.shares)
    assert ticks(axes.get_yticklabels()) == list(result.labels)
    assert axes.get_xlabel() == f"share of the difference moved (paths into {into})"
    assert axes.get_title() == "noise: c over e after position 7"


@pytest.mark.parametrize("what", ["head", "attn_out", "paths"])
def test_shares_that_do_not_exist_are_drawn(model: interp.HookedGPT, what: str) -> None:
    result = (
        interp.path_patching(model, CLEAN, CORRUPTED, "logits", target="c", foil="e")
        if what == "paths"
        else patching(model, what)
    )
    result = replace(result, corrupted=result.clean)
    assert np.isnan(result.shares).all()
    figure = figures.patching_map(result)
    assert figures.png(figure, 40)
    if what == "paths":
        assert np.isnan(bars(figure.axes[0])).all()
    else:
        assert np.ma.getmaskarray(image_of(figure)).all()


# ---- any figure ------------------------------------------------------------------------------


def all_figures(
    model: interp.HookedGPT, effects: interp.ComponentEffects
) -> dict[str, Callable[[], Figure]]:
    _, cache = model.run_with_cache("abcdefgab")
    path = interp.path_patching(model, CLEAN, CORRUPTED, "L1.mlp", target="c", foil="e")
    parts = interp.logit_attribution(model, cache, by="block")
    read = interp.stream_attribution(model, cache, "L0.N3")
    values = interp.shapley_values(model, cache)
    return {
        "bars": lambda: figures.effects_bars(effects),
        "scatter": lambda: figures.effects_scatter(effects),
        "shapley": lambda: figures.shapley_bars(values),
        "patch head": lambda: figures.patching_map(patching(model)),
        "patch position": lambda: figures.patching_map(patching(model, "resid_mid")),
        "patch path": lambda: figures.patching_map(path),
        "map block": lambda: figures.contribution_map(parts),
        "bars block": lambda: figures.contribution_bars(parts),
        "map stream": lambda: figures.contribution_map(read),
    }


SOME = ("scatter", "shapley", "patch head", "map stream")


def test_nothing_written_is_cut_off_at_the_edge(
    model: interp.HookedGPT, effects: interp.ComponentEffects
) -> None:
    cut = {name: outside(draw()) for name, draw in all_figures(model, effects).items()}
    assert not {name: found for name, found in cut.items() if found}


def test_the_same_result_gives_the_same_bytes_and_settings_stay(
    model: interp.HookedGPT, effects: interp.ComponentEffects
) -> None:
    before = dict(mpl.rcParams)
    drawn = []
    for _ in range(2):
        each = all_figures(model, effects)
        drawn.append({name: bytes_of(each[name]()) for name in SOME})
    assert dict(mpl.rcParams) == before
    assert drawn[0] == drawn[1]


def test_strange_characters_are_drawn() -> None:
    model = strange_model()
    clean = STRANGE
    corrupted = STRANGE[1] + STRANGE[1:]
    assert clean != corrupted
    _, cache = model.run_with_cache(clean)
    results: list[interp.Result] = [
        interp.logit_attribution(model, cache, by="source", metric="foil", foils="$"),
        interp.stream_attribution(model, cache, "L0.N1"),
    ]
    asked = [("$", "\n"), ("\0", "🦊"), ("א", "\\")]
    for target, foil in asked:
        for site in ("resid_pre",):
            results.append(
                interp.activation_patching(  # type: ignore[call-overload]
                    model, clean, corrupted, site, target=target, foil=foil
                )
            )
    results.append(interp.path_patching(model, clean, corrupted, "logits", target="_", foil="^"))
    titles, last = [], len(STRANGE) - 1
    for result in results:
        for figure, _ in figures.figures_of(result).values():
            assert figures.png(figure, 40)
            titles.append(figure.axes[0].get_title())
    assert f"denoise: $ over ⏎ after position {last}" in titles
    assert f"denoise: \\u0000 over □ after position {last}" in titles
    assert f"denoise: א over \\ after position {last}" in titles


# ---- the page --------------------------------------------------------------------------------


def everything(model: interp.HookedGPT) -> list[interp.Result]:
    tokens = random_tokens(model, batch=4, pos=N_CTX)
    _, cache = model.run_with_cache("abcdefgab")
    return [
        interp.check_model(model, "abcdefgab"),
        interp.component_effects(model, tokens, ablate="zero", metric="log_prob"),
        interp.component_effects(model, tokens, ablate="mean", metric="log_prob"),
        patching(model, "head"),
        patching(model, "resid_pre", direction="noise"),
        interp.path_patching(model, CLEAN, CORRUPTED, "L0.mlp", target="c", foil="e"),
        interp.shapley_values(model, cache),
        interp.stream_attribution(model, cache, "L0.N3", by="head"),
        interp.logit_attribution(model, cache, by="head"),
        interp.attention_patterns(model, cache),
        interp.logit_lens(model, cache),
    ]


TABLES = {
    "ModelChecks": 0,
    "ComponentEffects-zero-log_prob": 1,
    "ComponentEffects-mean-log_prob": 2,
    "Patching-head-by-head-denoise": 3,
    "Patching-resid_pre-by-position-noise": 4,
    "Patching-paths-into-L0.mlp-denoise": 5,
    "ShapleyValues": 6,
    "StreamAttribution-L0.N3-by-head": 7,
    "LogitAttribution-by-head": 8,
    "AttentionPatterns": 9,
    "LogitLens": 10,
}


@pytest.fixture(scope="module")
def small() -> interp.HookedGPT:
    return random_model(n_layers=1, n_heads=2)


@pytest.fixture(scope="module")
def results(small: interp.HookedGPT) -> list[interp.Result]:
    return everything(small)


@pytest.fixture(scope="module")
def page(
    tmp_path_factory: pytest.TempPathFactory,
    small: interp.HookedGPT,
    results: list[interp.Result],
) -> Path:
    return interp.write_report(tmp_path_factory.mktemp("report") / "all", small, results)


def test_the_page_has_a_section_for_each_kind_of_result(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    sections = re.findall(r'<section id="([^"]+)">', html)
    assert sections[:4] == ["heads", "residual", "effects", "lens"]
    assert set(sections[4:-1]) == {"readers", "shapley", "more-effects", "patching"}
    assert sections[-1] == "provenance"
    for id in sections:
        assert f'<a href="#{id}">' in html
    assert "weights are finite numbers" in html
    drawn = {path.stem for path in (page.parent / "figures").glob("*.png")}
    assert 1 < html.count("<figure>") < len(drawn)  # the others are drawn by the script
    assert not any(name.endswith("at-one-position") for name in drawn)
    assert "n = 4 sequences × 15 positions" in html


def test_the_page_runs_one_script_and_loads_nothing(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    assert re.findall(r"<script[^>]*>", html) == [
        '<script type="application/json" id="results">', "<script>",
    ]  # fmt: skip
    assert not re.search(r"\son\w+=|javascript:|https?://", html.split("<main>")[0])


@pytest.mark.parametrize("name", TABLES)
def test_a_table_read_again_is_the_results(
    page: Path, results: list[interp.Result], name: str
) -> None:
    given = pd.read_csv(page.parent / "tables" / f"{name}.csv")
    expected = results[TABLES[name]].to_frame()
    assert list(given) == list(expected)
    for column in expected:
        kind = expected[column].dtype.kind
        if kind == "f":
            np.testing.assert_allclose(given[column], expected[column], rtol=2e-6, err_msg=column)
        elif column == "note":
            assert given[column].isna().all()
        else:
            assert list(given[column]) == list(expected[column]), column


def test_only_these_tables_are_there(page: Path) -> None:
    assert {p.stem for p in (page.parent / "tables").iterdir()} == set(TABLES)


@pytest.mark.parametrize("name", ["report.html", "results.json"])
def test_every_kind_of_result_is_read_back(
    page: Path, results: list[interp.Result], name: str
) -> None:
    for given, back in zip(results, interp.read_report(page.parent / name)["results"], strict=True):
        assert type(given) is type(back)
        for field, value in vars(given).items():
            if isinstance(value, np.ndarray) and field in given.QUANTA and name == "report.html":
                quantum = max(given.QUANTA[field], float(np.abs(value).max()) / 32767)
                np.testing.assert_allclose(
                    getattr(back, field), value, atol=0.51 * quantum, rtol=0, err_msg=field
                )
            elif isinstance(value, np.ndarray):
                np.testing.assert_array_equal(getattr(back, field), value, err_msg=field)
            else:
                assert getattr(back, field) == value, field


def test_effects_of_one_sequence_are_reported_and_read_back(
    tmp_path: Path, small: interp.HookedGPT
) -> None:
    one = interp.component_effects(
        small, random_tokens(small, batch=1), ablate="zero", by="block", chosen=["embed", "L0.mlp"]
    )
    path = interp.write_report(tmp_path / "r", small, [one])
    (back,) = interp.read_report(path)["results"]
    np.testing.assert_array_equal(back.total, one.total)


def test_a_result_of_another_model_is_refused(tmp_path: Path, effects: Any) -> None:
    with pytest.raises(interp.ConfigError, match="a ComponentEffects is of the model"):
        interp.write_report(tmp_path / "r", random_model(seed=1), [effects])
    assert not (tmp_path / "r").exists()


def test_results_of_one_kind_keep_a_table_each(tmp_path: Path, small: interp.HookedGPT) -> None:
    """Also those that differ in nothing but how finely the parts were told apart."""
    tokens = random_tokens(small, batch=3)
    pair = [interp.component_effects(small, tokens, by=by) for by in ("block", "head")]  # type: ignore[arg-type]
    path = interp.write_report(tmp_path / "r", small, pair)
    assert len(list((path.parent / "tables").iterdir())) == 2
    assert len(list((path.parent / "figures").glob("*.png"))) == 4


@pytest.mark.parametrize("values", [(0.2, 3.9), (1.5, 4.5), (1e-6, 10.0)])
@pytest.mark.parametrize("letter", ["x", "y"])
def test_a_logarithmic_axis_has_plain_numbers_on_it_however_narrow_it_is(letter, values):
    figure = Figure()
    axes = figure.subplots()
    axes.plot(values, values)
    figures.log_scale(axes, letter)
    figure.canvas.draw()
    axis = axes.xaxis if letter == "x" else axes.yaxis
    shown = [text.get_text() for text in axis.get_ticklabels(which="both") if text.get_text()]
    low, high = axis.get_view_interval()
    assert len([label for label in shown if low <= float(label) <= high]) >= 2


def test_names_of_crowded_points_cover_neither_each_other_nor_points_and_stand_by_their_own():
    rng = np.random.default_rng(0)
    for middle, spread in ((0.5, 1e-3), (0.5, 0.02), (0.97, 0.05), (0.02, 0.03), (0.5, 0.7)):
        points = middle + spread * rng.uniform(-0.5, 0.5, (8, 2))
        figure = Figure(figsize=(2.5, 2.6))
        axes = figure.subplots()
        axes.plot(*points.T, "o", markersize=3.5)
        axes.set(xlim=(0, 1), ylim=(0, 1))
        figure.draw_without_rendering()
        names = [f"L0.H{i}" for i in range(8)]
        _name_largest(axes, names, points)
        canvas = FigureCanvasAgg(figure)
        boxes = {t.get_text(): t.get_window_extent(canvas.get_renderer()) for t in axes.texts}
        at = axes.transData.transform(points)
        for name, box in boxes.items():
            low, high = box.min, box.max
            assert (low >= axes.bbox.min).all(), (spread, name)
            assert (high <= axes.bbox.max).all(), (spread, name)
            gaps = np.hypot(*np.maximum(0, np.maximum(low - at, at - high)).T)
            assert gaps[names.index(name)] <= gaps.min() + 1.5, (spread, name)  # pixels
            assert gaps.min() > 0, (spread, name)
            assert not any(box.overlaps(other) for key, other in boxes.items() if key != name)


def test_points_with_room_are_named():
    axes = Figure(figsize=(2.5, 2.6)).subplots()
    axes.set(xlim=(0, 1), ylim=(-1, 1))
    _name_largest(
        axes, ["a", "b", "c", "d"], np.array([[0.2, 0.3], [0.5, -0.6], [0.7, 0.8], [0.4, 0]])
    )
    assert [text.get_text() for text in axes.texts] == ["c", "b", "a"]
