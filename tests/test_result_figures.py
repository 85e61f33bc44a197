"""What results show: their marks hold independently computed numbers; every kind keeps its word."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import random_model, random_tokens
from every_result import CLEAN, CORRUPTED, TEXT, every_result, model
from PIL import Image

import interp
from interp.figures.draw import draw, png
from interp.figures.marks import Bars, Dots, HeatMap, Mark, Panels, Points
from interp.results.intervals import mean_interval

STRANGE = "$\n\0_^\\{🦊א"  # what markup, fonts and terminals stumble over
KINDS = (
    "predictions", "lens", "patterns", "logits by block", "logits by head", "logits by source",
    "logits by neuron", "stream", "shapley", "patched heads", "patched positions", "patched paths",
    "effects", "effects of one", "scores", "labels", "card", "path effects", "score sources",
    "scaling", "scaling each", "checks", "copying", "composition", "training", "own", "formation",
    "sweep", "ngrams", "initial", "softmax", "gradients",
)  # fmt: skip


def marks_of(result: interp.Result) -> list[Any]:
    return [shown.mark for shown in result.figures()]


def assert_same_marks(one: Mark, other: Mark) -> None:
    assert type(one) is type(other)
    assert repr(one.to_document(repr)) == repr(other.to_document(repr))


# ---- every kind ------------------------------------------------------------------------------


def test_every_public_kind_of_result_is_among_those_that_are_tested() -> None:
    public = {getattr(interp, name) for name in interp.__all__}
    kinds = {
        kind for kind in public
        if isinstance(kind, type) and issubclass(kind, interp.Result) and kind is not interp.Result
    }  # fmt: skip
    assert kinds <= {type(result) for result in every_result().values()}
    assert set(every_result()) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_its_figures_are_drawn_with_captions_and_names_of_their_own(kind: str) -> None:
    result = every_result()[kind]
    shown = result.figures()
    assert len({one.name for one in shown}) == len(shown)
    for one in shown:
        assert re.fullmatch(r"[\w.→=,+-]+", one.name), one.name
        assert one.caption[0].isupper()
        assert one.caption.endswith("."), one.caption
        image = Image.open(io.BytesIO(png(draw(one.mark, result.provenance.line()), 30)))
        assert np.ptp(np.asarray(image.convert("L"))) > 100  # there is something on it
        assert result.picture(one.name).caption == one.caption
    if shown:
        figure = result.plot()
        assert figure.texts[0].get_text().replace("\n", " · ") == result.provenance.line()
    else:
        with pytest.raises(interp.ConfigError, match="has no figures"):
            result.plot()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_from_its_file_shows_the_same(kind: str, tmp_path: Path) -> None:
    result = every_result()[kind]
    result.save(tmp_path / "result.json")
    again = interp.Result.load(tmp_path / "result.json")
    assert type(again) is type(result)
    assert (again.name, again.section, again.heading) == (
        result.name, result.section, result.heading,
    )  # fmt: skip
    pd.testing.assert_frame_equal(again.to_frame(), result.to_frame())
    for one, other in zip(result.figures(), again.figures(), strict=True):
        assert (one.name, one.caption, one.on_page) == (other.name, other.caption, other.on_page)
        assert_same_marks(one.mark, other.mark)
    assert (again.summary(), again.finding()) == (result.summary(), result.finding())


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_printed_in_short(kind: str) -> None:
    result = every_result()[kind]
    assert 10 < len(repr(result)) < 200
    assert repr(result).startswith(type(result).__name__)
    assert 20 < len(str(result)) < 3000
    for text in (repr(result), str(result)):
        assert not re.search(r"array\(|dtype=|tensor\(|[0-9a-f]{20}", text), text


@pytest.mark.parametrize("kind", KINDS)
def test_a_notebook_shows_its_figures_and_its_table(kind: str) -> None:
    result = every_result()[kind]
    html = result._repr_html_()
    assert html.count("data:image/png;base64,") == len(result.figures())
    assert html.startswith('<iframe sandbox="" srcdoc="')
    for column in result.to_frame().columns:
        assert f"{column}&lt;/th&gt;" in html


@pytest.mark.parametrize("kind", KINDS)
def test_its_table_is_kept_and_handed_out_as_a_copy(kind: str) -> None:
    result = every_result()[kind]
    table = result.to_frame()
    table.iloc[:, 0] = table.iloc[::-1, 0].to_numpy()
    table["mine"] = 1
    assert "mine" not in result.to_frame()


# ---- effects ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def effects() -> interp.ComponentEffects:
    found = every_result()["effects"]
    assert isinstance(found, interp.ComponentEffects)
    return found


def test_effects_show_means_and_their_intervals(effects: interp.ComponentEffects) -> None:
    dots, _ = marks_of(effects)
    assert isinstance(dots, Dots)
    assert dots.names == effects.components
    assert dots.label == "effect on log_prob (nats)"
    for series, values in zip(dots.series, (effects.direct, effects.total), strict=True):
        np.testing.assert_allclose(series.values, values.mean(1), rtol=1e-5)
        table = effects.to_frame()
        np.testing.assert_array_equal(series.low, table[f"{series.name}_low"])
        np.testing.assert_array_equal(series.high, table[f"{series.name}_high"])
        assert series.low is not None
        assert series.high is not None
        assert (series.low <= series.values).all()
        assert (series.values <= series.high).all()
    assert [series.name for series in dots.series] == ["direct", "total"]


def test_effects_show_a_panel_for_each_layer(effects: interp.ComponentEffects) -> None:
    _, panels = marks_of(effects)
    assert isinstance(panels, Panels)
    assert len(panels.marks) == 2
    for layer, mark in enumerate(panels.marks):
        assert isinstance(mark, Points)
        rows = [i for i, at in enumerate(effects.layers) if at == layer]
        assert mark.names == tuple(effects.components[i] for i in rows)
        np.testing.assert_allclose(mark.x, effects.direct[rows].mean(1), rtol=1e-5)
        np.testing.assert_allclose(mark.y, effects.total[rows].mean(1), rtol=1e-5)
        assert mark.x_low is not None
        assert mark.y_low is not None
        assert mark.x_high is not None
        assert mark.y_high is not None
        apart = ((mark.x_low > 0) & (mark.y_high < 0)) | ((mark.x_high < 0) & (mark.y_low > 0))
        assert mark.ringed == tuple(np.flatnonzero(apart))
        x, y = pd.Series(mark.x), pd.Series(mark.y)
        rank = x.rank().corr(y.rank())
        assert mark.title.startswith(f"layer {layer}: rank correlation {rank:.2f}")
        assert (mark.x_label, mark.y_label) == ("direct effect on log_prob (nats)", "total effect")


@pytest.mark.parametrize(
    ("metric", "said"), [("kl", "kl (nats)"), ("loss", "loss (nats)"), ("centered", "(logits)")]
)
def test_effects_name_their_unit(effects: interp.ComponentEffects, metric: str, said: str) -> None:
    dots, panels = marks_of(replace(effects, metric=metric))
    assert said in dots.label
    assert all(said in mark.x_label for mark in panels.marks)


def test_one_sequence_has_points_without_intervals() -> None:
    dots = marks_of(every_result()["effects of one"])[0]
    for series in dots.series:
        assert np.isfinite(series.values).all()
        assert np.isnan(series.low).all()
        assert np.isnan(series.high).all()


def test_effects_of_nothing_at_all_are_zero(effects: interp.ComponentEffects) -> None:
    zero = np.zeros_like(effects.direct)
    none = replace(effects, direct=zero, direct_renormalised=zero, total=zero)
    for shown in none.figures():
        assert draw(shown.mark)
    assert (marks_of(none)[0].series[0].values == 0).all()


@pytest.mark.parametrize("n_layers", [0, 1, 3])
@pytest.mark.parametrize("by", ["block", "head"])
def test_models_with_few_parts_a_layer_are_drawn(n_layers: int, by: Any) -> None:
    gpt = random_model(n_layers=n_layers)
    result = interp.component_effects(gpt, random_tokens(gpt, batch=3), by=by)
    panels = [mark for mark in marks_of(result) if isinstance(mark, Panels)]
    titles = [mark.title.split(":")[0] for panel in panels for mark in panel.marks]
    assert titles == [f"layer {layer}" for layer in range(n_layers)]
    for mark in marks_of(result):
        assert draw(mark)


def test_effects_of_very_different_sizes_are_all_seen(effects: interp.ComponentEffects) -> None:
    sizes = np.full_like(effects.total, 0.02)
    sizes[0], sizes[1] = 40.0, -7.0
    result = replace(effects, direct=sizes, direct_renormalised=sizes, total=sizes)
    dots = marks_of(result)[0]
    assert (dots.scale, dots.linear_within) == ("symlog", 0.01)
    assert draw(dots).axes[0].get_xscale() == "symlog"
    sizes[:2] = 0.02
    assert marks_of(replace(result, direct=sizes, total=sizes))[0].scale == "linear"


# ---- attribution, Shapley values, the lens ---------------------------------------------------


def test_many_rows_are_shown_one_by_one_or_as_their_sum() -> None:
    parts = every_result()["logits by neuron"]
    assert isinstance(parts, interp.LogitAttribution)
    heat, bars = marks_of(parts)
    assert isinstance(heat, HeatMap)
    assert len(heat.rows) == 40
    assert heat.rows[-1] == f"{len(parts.components) - 39:,} others"
    np.testing.assert_allclose(heat.values.sum(0), parts.values[:, 0].sum(0), atol=1e-4)
    for name, row in zip(heat.rows[:-1], heat.values, strict=False):
        np.testing.assert_array_equal(row, parts.row(name)[0])
    smallest = min(np.abs(row).mean() for row in heat.values[:-1])
    hidden = [name for name in parts.components if name not in heat.rows]
    assert all(np.abs(parts.row(name)[0]).mean() <= smallest for name in hidden)
    assert heat.high == np.abs(heat.values).max()

    assert isinstance(bars, Bars)
    pos = int(parts.total[0, :-1].argmax())  # the last has no next token
    for name, value in zip(bars.names[:-1], bars.values, strict=False):
        assert value == parts.row(name)[0, pos]
    assert bars.values.sum() == pytest.approx(parts.total[0, pos], abs=1e-4)
    assert f"they sum to {parts.total[0, pos]:+.2f}" in bars.title
    assert f"after {TEXT[pos]}" in bars.title


def test_sources_are_shown_summed_over_heads_and_masked() -> None:
    parts = every_result()["logits by source"]
    assert isinstance(parts, interp.LogitAttribution)
    heat = marks_of(parts)[0]
    n = parts.values.shape[2]
    for key in range(n):
        mine = [i for i, name in enumerate(parts.components) if name.endswith(f".S{key}")]
        expected = parts.values[mine, 0].sum(0)
        np.testing.assert_allclose(heat.values[key, key:], expected[key:], atol=1e-5)
        assert np.isnan(heat.values[key, :key]).all()  # a later key is never seen
    assert heat.rows == tuple(TEXT[:n])


@pytest.mark.parametrize("into", ["L1.H2.k", "L1.N5"])
def test_what_a_part_reads_is_shown(into: str) -> None:
    _, cache = model().run_with_cache(TEXT)
    vector = torch.ones(model().config.d_head) if into.endswith("k") else None
    parts = interp.stream_attribution(model(), cache, into, vector, by="head")
    heat, bars = marks_of(parts)
    np.testing.assert_array_equal(heat.values, parts.values[:, 0])
    assert heat.rows == parts.components
    assert heat.columns == tuple(TEXT)
    assert into in heat.label
    pos = int(np.abs(parts.total[0]).argmax())
    np.testing.assert_array_equal(bars.values, parts.values[:, 0, pos])


def test_shapley_values_are_shown_as_means_over_positions() -> None:
    values = every_result()["shapley"]
    assert isinstance(values, interp.ShapleyValues)
    (bars,) = marks_of(values)
    np.testing.assert_allclose(bars.values, values.values.mean((1, 2)))
    assert bars.names == values.components
    assert bars.label == "Shapley value of log_prob (nats), mean over positions"


def test_the_lens_shows_log_probabilities_and_the_likeliest_characters() -> None:
    lens = every_result()["lens"]
    assert isinstance(lens, interp.LogitLens)
    (heat,) = marks_of(lens)
    logits, _ = model().run_with_cache(TEXT)
    n = len(heat.columns)
    last = logits[0, :n].log_softmax(-1).detach().numpy()  # the last depth is the model's own
    targets = lens.targets[0]
    np.testing.assert_allclose(heat.values[0], last[np.arange(n), targets], atol=1e-4)
    assert heat.numbers[0] == tuple("abcdefg"[i] for i in last.argmax(-1))
    assert heat.rows == lens.depths[::-1]
    assert heat.high == 0


# ---- patching --------------------------------------------------------------------------------


def patching(site: Any = "head", **options: Any) -> interp.Patching:
    options = {"target": "c", "foil": "e"} | options
    return interp.activation_patching(model(), CLEAN, CORRUPTED, site, **options)


@pytest.mark.parametrize("site", ["head", "resid_pre", "mlp_out"])
def test_a_map_of_patches_shows_the_shares(site: str) -> None:
    result = patching(site)
    (heat,) = marks_of(result)
    n_places = 4 if site == "head" else len(CLEAN)
    shares = (result.values - result.corrupted) / (result.clean - result.corrupted)
    np.testing.assert_allclose(heat.values.ravel(), shares.mean(1), atol=1e-5)
    assert heat.values.shape == (2, n_places)
    assert heat.rows == ("L0", "L1")
    assert heat.title == "denoise: c over e after position 7"
    assert heat.high == -heat.low == max(1, np.abs(heat.values).max())
    if site == "head":
        assert heat.columns == ("H0", "H1", "H2", "H3")
        written = [text for row in heat.numbers for text in row]
        assert written == [f"{share:.2f}" for share in heat.values.ravel()]
    else:
        assert heat.columns == tuple(f"{a}\n{b}" for a, b in zip(CLEAN, CORRUPTED, strict=True))
        assert heat.strong_columns == (4,)


@pytest.mark.parametrize("into", ["L1.H2.q", "logits"])
def test_paths_are_shown_as_bars(into: str) -> None:
    result = interp.path_patching(
        model(), CLEAN, CORRUPTED, into, direction="noise", target="c", foil="e"
    )
    (bars,) = marks_of(result)
    np.testing.assert_array_equal(bars.values, result.shares)
    assert bars.names == result.labels
    assert bars.label == f"share of the difference moved (paths into {into})"
    assert bars.title == "noise: c over e after position 7"


@pytest.mark.parametrize("what", ["patched heads", "patched positions", "patched paths"])
def test_shares_that_do_not_exist_are_missing(what: str) -> None:
    result = every_result()[what]
    assert isinstance(result, interp.Patching)
    none = replace(result, corrupted=result.clean)
    (mark,) = marks_of(none)
    assert np.isnan(mark.values).all()
    assert draw(mark)


# ---- characters ------------------------------------------------------------------------------


def test_strange_characters_are_drawn() -> None:
    tokenizer = interp.CharTokenizer.from_text(STRANGE)
    cfg = interp.GPTConfig(n_layers=1, n_heads=2, d_model=8, n_ctx=16, d_vocab=len(tokenizer))
    gpt = interp.HookedGPT(cfg, tokenizer, seed=3).eval()
    other = STRANGE[1] + STRANGE[1:]
    _, cache = gpt.run_with_cache(STRANGE)
    patch = interp.activation_patching
    results: list[interp.Result] = [
        interp.logit_attribution(gpt, cache, by="source", metric="foil", foils="$"),
        interp.stream_attribution(gpt, cache, "L0.N1"),
        interp.logit_lens(gpt, cache),
        interp.attention_patterns(gpt, cache),
        interp.path_patching(gpt, STRANGE, other, "logits", target="_", foil="^"),
        *(patch(gpt, STRANGE, other, "resid_pre", target=target, foil=foil)
          for target, foil in (("$", "\n"), ("\0", "🦊"), ("א", "\\"))),
    ]  # fmt: skip
    last, titles = len(STRANGE) - 1, []
    for result in results:
        for shown in result.figures():
            figure = draw(shown.mark, result.provenance.line())
            assert png(figure, 30)
            titles.append(figure.axes[0].get_title())
    assert f"denoise: $ over ⏎ after position {last}" in titles
    assert f"denoise: \\u0000 over □ after position {last}" in titles
    assert f"denoise: א over \\ after position {last}" in titles


# ---- intervals -------------------------------------------------------------------------------


def test_the_interval_that_is_drawn_is_that_of_the_table_with_the_result_s_own_seed() -> None:
    labels = every_result()["labels"]
    formation = every_result()["formation"]
    assert isinstance(formation, interp.Formation)
    loss = marks_of(formation)[0].marks[0].series[0]
    _, low, high = mean_interval(formation.repeated_loss, seed=formation.provenance.seed or 0)
    np.testing.assert_allclose(loss.values, formation.repeated_loss.mean(1), rtol=1e-6)
    np.testing.assert_allclose(loss.low, low)
    np.testing.assert_allclose(loss.high, high)
    for mark in marks_of(labels):
        if isinstance(mark, Dots) and mark.names:
            table = labels.to_frame()
            for series in mark.series:
                assert set(np.round(series.values, 6)) <= set(
                    np.round(table.select_dtypes("number").to_numpy().ravel(), 6)
                )
