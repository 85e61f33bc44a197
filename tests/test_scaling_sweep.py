"""Scaling from scratch: the arms, what is measured, the grid on disk; learned_scale and qk_norm."""

# mypy: disable-error-code="arg-type, attr-defined, dict-item, index, union-attr"

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import assert_close, random_model, random_tokens, variant_id

import interp
from interp import ConfigError, GPTConfig, HookedGPT, OutputError, Recipe, Result, load_model
from interp.analysis.scaling.arms import (
    ARMS,
    Run,
    build_arm,
    measure,
    some_windows,
    train_run,
)
from interp.analysis.scaling.initial import predicted_entropy, predicted_std, statistics_of_rows
from interp.analysis.scaling.rescaled import scale_identity
from interp.analysis.scaling.sweep import scaling_sweep
from interp.analysis.scaling.theory import QUANTILES
from interp.cli import main
from interp.data.corpus import Corpus
from interp.training.optimiser import make_optimizer

GAINS = [{"learned_scale": True}, {"qk_norm": True}, {"qk_norm": True, "attn_scale": 1.0}]
TEXT = "To be, or not to be: that is the question.\n" * 40
RECIPE = {
    "name": "tiny",
    "model": {"n_layers": 2, "n_heads": 2, "d_model": 8, "n_ctx": 8, "init_std": 0.3},
    "training": {"steps": 5, "batch_size": 4, "warmup_steps": 1, "precision": "float32"},
}


def recipe(**model: object) -> Recipe:
    return Recipe.parse({**RECIPE, "model": {**RECIPE["model"], **model}})


def run(arm: str = "sqrt", d_head: int = 4, learning_rate: float = 1e-2, seed: int = 0) -> Run:
    return Run(arm=arm, d_head=d_head, learning_rate=learning_rate, seed=seed)


CORPUS = Corpus(text=TEXT, name="hamlet")
D_VOCAB = len(CORPUS.tokenizer())


# ---- learned_scale and qk_norm ----------------------------------------------------------------


@pytest.mark.parametrize("options", GAINS, ids=variant_id)
def test_scores_are_the_formula(options: Any) -> None:
    model = random_model(torch.float64, **options)
    attn = model.blocks[1].attn
    assert attn.gain.shape == (4,)
    _, cache = model.run_with_cache(random_tokens(model, 2, 6))
    q, k = cache["q", 1], cache["k", 1]
    if "qk_norm" in options:
        q, k = (x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * attn.gain[:, None, None]
    scores = scores / options.get("attn_scale", math.sqrt(model.config.d_head))
    seen = torch.ones(6, 6).tril().bool()
    assert_close(cache["attn_scores", 1][..., seen], scores[..., seen].detach())


@pytest.mark.parametrize("options", GAINS, ids=variant_id)
def test_every_way_through_attention_agrees(options: Any) -> None:
    model = random_model(torch.float64, **options)
    tokens = random_tokens(model, 3, 9)
    fused = model(tokens)
    written_out, cache = model.run_with_cache(tokens)
    with torch.no_grad():
        pieces, _ = model.run_with_cache(tokens, names_filter="blocks.0.attn.hook_pattern")
    for other in (written_out, pieces):
        assert_close(other, fused)
    parts = interp.logit_attribution(model, cache, by="source")
    assert parts.completeness_error.max() < 1e-11
    step_by_step = interp.generate(model, tokens[:1, :3], 4, temperature=0)
    whole = tokens[:1, :3]
    for _ in range(4):
        whole = torch.cat((whole, model(whole)[:, -1:].argmax(-1)), 1)
    assert step_by_step.equal(whole)


@pytest.mark.parametrize("options", GAINS, ids=variant_id)
def test_gain_is_saved_loaded_trained_and_not_decayed(options: Any, tmp_path: Path) -> None:
    model = random_model(**options)
    model.save_pretrained(tmp_path)
    again = load_model(tmp_path)
    assert again.config == model.config
    assert again.blocks[0].attn.gain.equal(model.blocks[0].attn.gain)
    fresh = HookedGPT(model.config)
    assert fresh.blocks[0].attn.gain.equal(torch.ones(4))
    groups = make_optimizer(fresh, 1e-3, 0.5, (0.9, 0.99)).param_groups
    gain = fresh.blocks[0].attn.gain
    assert [any(p is gain for p in g["params"]) for g in groups] == [False, True]
    (grad,) = torch.autograd.grad(model(random_tokens(model), "loss"), [model.blocks[0].attn.gain])
    assert (grad != 0).all()


def test_learned_scale_starts_as_the_lessons_model() -> None:
    shape = {"n_layers": 2, "n_heads": 2, "d_model": 8, "n_ctx": 8, "d_vocab": 7}
    plain = HookedGPT(GPTConfig.parse(shape), seed=3)
    learned = HookedGPT(GPTConfig.parse({**shape, "learned_scale": True}), seed=3)
    tokens = random_tokens(plain, 2, 8)
    assert learned(tokens).equal(plain(tokens))


def test_normalised_queries_of_any_length_are_the_same() -> None:
    model = random_model(torch.float64, qk_norm=True)
    tokens = random_tokens(model)
    before = model(tokens)
    with torch.no_grad():
        model.blocks[0].attn.W_Q.mul_(7)
        model.blocks[1].attn.W_K.mul_(0.3)
    torch.testing.assert_close(model(tokens), before, atol=1e-5, rtol=0)  # eps in the norm
    checks = interp.check_model(model, tokens[:2])
    assert bool(checks.passed)


def test_a_multiplier_works_beside_a_gain() -> None:
    model = random_model(torch.float64, learned_scale=True)
    tokens = random_tokens(model)
    with model.attn_scaled_by(2.0):
        doubled = model(tokens)
    with torch.no_grad():
        for block in model.blocks:
            block.attn.gain.mul_(2)
    assert_close(model(tokens), doubled)
    found = scale_identity(model, tokens)
    np.testing.assert_allclose(found["W_Q"], found["scale"], atol=1e-13)


def test_what_has_no_such_thing_says_so() -> None:
    with pytest.raises(ConfigError, match="not homogeneous"):
        scale_identity(random_model(qk_norm=True), "abc")
    with pytest.raises(ConfigError, match="neither learned_scale nor qk_norm"):
        interp.to_reference(random_model(learned_scale=True))


# ---- the arms ---------------------------------------------------------------------------------


def test_arms_differ_in_their_scores_alone() -> None:
    models = {arm: build_arm(recipe(), run(arm, d_head=16), D_VOCAB) for arm in ARMS}
    scales = {arm: model.config.attn_scale for arm, model in models.items()}
    assert scales == {
        "sqrt": 4,
        "unscaled": 1,
        "inverse": 16,
        "learned": 4,
        "qk-norm": 4,
        "matched": 1,
    }
    base = dict(models["sqrt"].named_parameters())
    for arm, model in models.items():
        for name, value in model.named_parameters():
            if name.endswith("gain"):
                assert value.eq(1).all()
                continue
            by = 0.5 if arm == "matched" and name.endswith(("W_Q", "W_K")) else 1.0
            torch.testing.assert_close(value, base[name] * by, msg=f"{arm} {name}")


def test_matched_and_learned_start_as_the_scaled_model() -> None:
    tokens = some_windows(CORPUS, 8, 4)[:, :8]
    for d in (4, 8, 32):
        scaled = build_arm(recipe(), run("sqrt", d), D_VOCAB).double()(tokens)
        for arm in ("matched", "learned"):
            other = build_arm(recipe(), run(arm, d), D_VOCAB).double()(tokens)
            torch.testing.assert_close(other, scaled, atol=1e-6, rtol=0)  # d^(−¼) in float32
        unscaled = build_arm(recipe(), run("unscaled", d), D_VOCAB).double()(tokens)
        assert (unscaled - scaled).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("key", "value"),
    [("attn_scale", 2.0), ("qk_norm", True), ("learned_scale", True), ("qkv_bias", True)],
)
def test_a_recipe_that_decides_the_scale_itself_is_refused(key: str, value: bool | float) -> None:
    with pytest.raises(ConfigError, match=f"sets model.{key}, which the arms"):
        build_arm(recipe(**{key: value}), run(), D_VOCAB)


def test_a_recipe_with_dropout_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"dropout = 0\.2"):
        build_arm(recipe(dropout=0.2), run(), D_VOCAB)


def test_an_unknown_arm_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown arm 'sqr'.*sqrt"):
        build_arm(recipe(), run("sqr"), D_VOCAB)


# ---- what is measured -------------------------------------------------------------------------


def test_statistics_of_rows_by_hand() -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((3, 2, 5, 5))
    masked = torch.from_numpy(np.where(np.tri(5, dtype=bool), scores, -np.inf))
    entropy, std = statistics_of_rows(masked)
    for head in range(2):
        rows = [scores[b, head, t, : t + 1] for b in range(3) for t in range(1, 5)]
        h = [
            -(p * np.log(p)).sum() / np.log(len(p))
            for p in (np.exp(r) / np.exp(r).sum() for r in rows)
        ]
        assert float(entropy[head]) == pytest.approx(np.mean(h), abs=1e-12)
        spread = np.sqrt(np.mean([r.var(ddof=1) for r in rows]))
        assert float(std[head]) == pytest.approx(spread, abs=1e-12)


def test_measures_are_those_of_the_model() -> None:
    model = build_arm(recipe(), run(), D_VOCAB)
    windows = some_windows(CORPUS, 8, 20)
    found = measure(model, windows)
    logits = model(windows[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()).detach()
    assert found["loss"] == pytest.approx(float(loss), abs=1e-6)
    first = model(windows[:8, :-1])
    F.cross_entropy(first.flatten(0, 1), windows[:8, 1:].flatten()).backward()
    for layer in range(2):
        for w, name in enumerate(("W_Q", "W_K")):
            sizes = getattr(model.blocks[layer].attn, name).grad[1].abs().flatten().numpy()
            expected = np.quantile(sizes, QUANTILES)
            np.testing.assert_allclose(found["gradient"][layer][1][w], expected, rtol=1e-4)


def test_a_run_learns_and_is_a_function_of_its_seed() -> None:
    long = Recipe.parse({**RECIPE, "training": {**RECIPE["training"], "steps": 60}})
    windows = some_windows(CORPUS, 8, 8)
    found = train_run(long, run(), CORPUS, windows, D_VOCAB)
    assert found["loss"][-1] < found["loss"][0] - 0.5
    assert found["steps"][0] == 0
    assert found["steps"][-1] == 60
    assert train_run(long, run(), CORPUS, windows, D_VOCAB) == found
    assert train_run(long, run(seed=1), CORPUS, windows, D_VOCAB)["loss"] != found["loss"]


def test_a_diverged_run_ends_in_nan_not_in_an_error() -> None:
    wild = Recipe.parse({**RECIPE, "training": {**RECIPE["training"], "grad_clip": 1e30}})
    found = train_run(wild, run(learning_rate=1e30), CORPUS, some_windows(CORPUS, 8, 8), D_VOCAB)
    assert math.isfinite(found["loss"][0])
    assert math.isnan(found["loss"][-1])
    assert np.isnan(found["entropy"][-1]).all()


# ---- theory -----------------------------------------------------------------------------------


def test_predicted_entropy_of_equal_scores_is_one_and_of_two_keys_is_the_integral() -> None:
    assert predicted_entropy(0.0, 16) == (pytest.approx(1.0), pytest.approx(0.0, abs=1e-12))  # type: ignore[comparison-overlap]
    found, error = predicted_entropy(2.0, 2, draws=20_000)
    x = np.linspace(-40, 40, 200_001)  # the difference of two scores: normal, std 2√2
    density = np.exp(-(x**2) / 16) / np.sqrt(16 * np.pi)
    p = 1 / (1 + np.exp(-x))
    h = (np.logaddexp(0, x) - p * x) / np.log(2)  # of a softmax of (x, 0)
    exact = float((h * density).sum() * (x[1] - x[0]))
    assert abs(found - exact) < 4 * error


def test_predicted_entropy_of_many_keys_is_that_of_plain_rows() -> None:
    found, error = predicted_entropy(3.0, 9, draws=8000)
    rows = [
        interp.softmax_statistics(3.0, n, draws=50_000).entropy_normalised for n in range(2, 10)
    ]
    assert found == pytest.approx(np.mean([r[0] for r in rows]), abs=4 * error)


def test_the_start_is_as_predicted() -> None:
    """Independent embeddings meet the theory's assumption: every token occurs once."""
    wide = recipe(d_model=64, n_ctx=32, init_std=1 / math.sqrt(3 * 64))
    tokens = torch.stack(
        [torch.randperm(200, generator=torch.Generator().manual_seed(i))[:33] for i in range(16)]
    )
    for arm in ARMS:
        for d in (8, 64):
            model = build_arm(wide, run(arm, d), 200)
            found = measure(model, tokens)
            std = predicted_std(model.config, arm)
            assert np.mean(found["std"][0]) == pytest.approx(std, rel=0.2), (arm, d)
            entropy = predicted_entropy(std, 32)[0]
            assert np.mean(found["entropy"][0]) == pytest.approx(entropy, abs=0.04), (arm, d)


def test_table_of_untrained_attention() -> None:
    """Known: scaled .982 to .985 at every width, unscaled .892 to .165, at 64 positions."""
    tokens = torch.stack(
        [torch.randperm(200, generator=torch.Generator().manual_seed(i))[:64] for i in range(8)]
    )
    table = interp.initial_attention(tokens, 200, (8, 32, 128, 512), seeds=3).to_frame()
    rows = table.set_index(["arm", "d_head"])["entropy"]
    assert rows["sqrt"].between(0.978, 0.989).all()
    known = {8: 0.892, 32: 0.628, 128: 0.354, 512: 0.165}
    for d, value in known.items():
        assert rows["unscaled", d] == pytest.approx(value, abs=0.03)
    assert (rows["inverse"] > 0.997).all()
    ours = interp.initial_attention(tokens, 200, (8, 512), init="ours", seeds=2).to_frame()
    assert (ours[ours["arm"] != "unscaled"]["entropy"] > 0.999).all()


# ---- the grid ---------------------------------------------------------------------------------

GRID = {"arms": ("sqrt", "matched"), "d_heads": (4, 8), "learning_rates": (1e-3, 1e-2), "seeds": 2}


def test_the_grid_is_its_runs_and_goes_on(tmp_path: Path) -> None:
    seen = []
    small = scaling_sweep(recipe(), tmp_path / "a", **{**GRID, "d_heads": (4,)}, corpus=CORPUS)
    result = scaling_sweep(
        recipe(), tmp_path / "a", **GRID, corpus=CORPUS, progress=lambda *x: seen.append(x)
    )
    assert seen[0] == (8, 16)  # the smaller grid's runs are there
    assert seen[-1] == (16, 16)
    np.testing.assert_array_equal(result.loss[:, :1], small.loss)
    windows = some_windows(CORPUS, 8, 48)
    one = train_run(recipe(), run("matched", 8, 1e-3, 1), CORPUS, windows, D_VOCAB)
    np.testing.assert_array_equal(result.loss[1, 1, 0, 1], np.float32(one["loss"]))
    np.testing.assert_array_equal(result.entropy[1, 1, 0, 1], np.float32(one["entropy"]))
    again = Result.load(tmp_path / "a" / "sweep.json")
    np.testing.assert_array_equal(again.gradient, result.gradient)
    frame = result.to_frame()
    assert len(frame) == 2 * 2 * 2 * 2 * len(result.steps) * 2 * 2
    here = "arm == 'matched' and d_head == 8 and learning_rate == 0.001 and seed == 1"
    row = frame.query(f"{here} and step == 5 and layer == 1 and `head` == 0")
    assert row["W_K_q50"].item() == result.gradient[1, 1, 0, 1, -1, 1, 0, 1, 2]
    assert row["loss"].item() == result.loss[1, 1, 0, 1, -1]


def test_processes_give_what_one_gives(tmp_path: Path) -> None:
    few = {**GRID, "d_heads": (4,), "seeds": 1}
    one = scaling_sweep(recipe(), tmp_path / "a", **few, corpus=CORPUS)
    two = scaling_sweep(recipe(), tmp_path / "b", **few, jobs=2, corpus=CORPUS)
    np.testing.assert_allclose(two.loss, one.loss, atol=1e-5)


def test_table_by_arm_and_best_rates(tmp_path: Path) -> None:
    result = scaling_sweep(recipe(), tmp_path / "a", **GRID, corpus=CORPUS)
    table = result.by_arm()
    assert len(table) == 4
    best = result.best_rates()
    for row in table.itertuples():
        a, d = result.arms.index(row.arm), list(result.d_heads).index(row.d_head)
        losses = result.loss[a, d, :, :, -1].mean(-1)
        assert row.loss == pytest.approx(losses.min())
        assert (
            row.learning_rate
            == result.learning_rates[losses.argmin()]
            == result.learning_rates[best[a, d]]
        )
        if row.arm == "sqrt":
            assert row.against_sqrt == 0


def test_figures_show_the_results_numbers(tmp_path: Path) -> None:
    result = scaling_sweep(recipe(), tmp_path / "a", **GRID, corpus=CORPUS)
    entropy, gradients, losses = result.figures()
    assert [one.name for one in (entropy, gradients, losses)] == [
        "sweep-entropy", "sweep-gradients", "sweep-losses",
    ]  # fmt: skip
    for one in (entropy, gradients, losses):
        assert "n = 2 seeds; trained on hamlet" in one.caption
    first, last = entropy.mark.marks
    dashed = [series for series in first.series if series.dashed]
    np.testing.assert_allclose(dashed[0].values, result.predicted_entropy[0])
    assert not any(series.dashed for series in last.series)
    rate = result.best_rates()[1, 0]
    np.testing.assert_allclose(
        last.series[1].values[0], result.entropy[1, 0, rate, :, -1].mean(), rtol=1e-6
    )
    np.testing.assert_allclose(
        losses.mark.marks[1].series[1].values, result.loss[1, 1, :, :, -1].mean(-1), rtol=1e-6
    )
    low = interp.mean_interval(result.loss[1, 1, :, :, -1])[1]
    np.testing.assert_allclose(losses.mark.marks[1].series[1].low, low)
    middle = gradients.mark.marks[0].series[1]
    of_steps = np.median(result.gradient[1, 0, 1, ..., 0, :], axis=(0, 2, 3))  # [step quantile]
    np.testing.assert_allclose(middle.values, of_steps[:, 2])
    np.testing.assert_allclose((middle.low, middle.high), of_steps[:, [0, -1]].T)


def test_a_run_that_diverged_is_nan_in_the_tables_and_left_out_of_the_figures(
    tmp_path: Path,
) -> None:
    result = scaling_sweep(recipe(), tmp_path / "a", **GRID, corpus=CORPUS)
    values = {name: getattr(result, name).copy() for name in ("loss", "gradient")}
    values["loss"][0, 0, 1, 0, -1] = np.nan
    values["gradient"][0, 0, 1, :, -1] = np.nan
    hurt = dataclasses.replace(result, **values)
    row = hurt.losses().query("arm == 'sqrt' and d_head == 4").iloc[1]
    assert np.isnan([row.loss, row.low, row.high]).all()
    assert np.isnan(hurt.picture("sweep-losses").mark.marks[0].series[0].values[1])
    drawn = hurt.picture("sweep-gradients").mark.marks[0].series[0].values
    assert np.isnan(drawn[-1])
    assert np.isfinite(drawn[:-1]).all()


def test_initial_attention_goes_to_disk_and_is_drawn_from_its_table(tmp_path: Path) -> None:
    tokens = torch.randint(0, 20, (3, 6), generator=torch.Generator().manual_seed(0))
    result = interp.initial_attention(tokens, 20, (4, 8), seeds=3)
    result.save(tmp_path / "r.json")
    assert Result.load(tmp_path / "r.json").to_document() == result.to_document()
    table = result.to_frame()
    assert table["d_head"].tolist() == [4, 4, 4, 8, 8, 8]
    assert (table["n"] == 3).all()
    (shown,) = result.figures()
    for i, arm in enumerate(result.arms):
        rows = table[table["arm"] == arm]
        points, theory = shown.mark.series[2 * i : 2 * i + 2]
        assert (points.values.tolist(), points.low.tolist()) == (
            rows["entropy"].tolist(), rows["low"].tolist(),
        )  # fmt: skip
        assert theory.values.tolist() == rows["predicted_entropy"].tolist()
    np.testing.assert_allclose(table["entropy"].to_numpy().reshape(2, 3), result.entropy.mean(-1))


def test_a_sweep_whose_recipe_was_written_otherwise_goes_on(tmp_path: Path) -> None:
    few = {**GRID, "d_heads": (4,), "seeds": 1, "learning_rates": (1e-3,), "arms": ("sqrt",)}
    result = scaling_sweep(recipe(), tmp_path / "a", **few, corpus=CORPUS)
    path = tmp_path / "a" / "recipe.toml"
    path.write_text("# by hand\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    again = scaling_sweep(recipe(), tmp_path / "a", **few, corpus=CORPUS)
    np.testing.assert_array_equal(again.loss, result.loss)


def test_another_recipe_or_anything_else_in_the_folder_is_refused(tmp_path: Path) -> None:
    few = {**GRID, "d_heads": (4,), "seeds": 1, "learning_rates": (1e-3,), "arms": ("sqrt",)}
    scaling_sweep(recipe(), tmp_path / "a", **few, corpus=CORPUS)
    with pytest.raises(OutputError, match="another recipe or text"):
        scaling_sweep(recipe(d_model=16), tmp_path / "a", **few, corpus=CORPUS)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine").touch()
    with pytest.raises(OutputError, match="something else"):
        scaling_sweep(recipe(), tmp_path / "b", **few, corpus=CORPUS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arms": ()}, "arms"), ({"d_heads": (4, 4)}, "each once"), ({"seeds": 0}, "positive"),
        ({"learning_rates": (-1.0,)}, "positive"), ({"arms": ("sqrt", "x")}, "unknown arm"),
    ],
    ids=["no-arms", "twice", "no-seeds", "negative", "unknown"],
)  # fmt: skip
def test_a_grid_that_is_none_is_refused(change: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        scaling_sweep(recipe(), tmp_path / "a", **{**GRID, **change}, corpus=CORPUS)
    assert not (tmp_path / "a").exists()


def status_of(command: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("sys.argv", ["interp", *command])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.txt").write_text(TEXT)
    (tmp_path / "r.toml").write_text(recipe().to_toml())
    command = ["scaling-sweep", str(tmp_path / "r.toml"), "--out", str(tmp_path / "o"), "--arms",
               "sqrt,unscaled", "--d-heads", "4", "--learning-rates", "0.01", "--seeds", "2",
               "--text", str(tmp_path / "t.txt")]  # fmt: skip
    assert status_of(command, monkeypatch) == 0
    said = capsys.readouterr().out
    assert "unscaled" in said
    assert "n = 2 seeds" in said
    assert (tmp_path / "o" / "sweep.csv").is_file()
    assert status_of([*command, "--d-heads", "4,x"], monkeypatch) == 2
    assert "--d-heads '4,x' must be whole numbers" in capsys.readouterr().err
