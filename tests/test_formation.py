"""Heads over training: measures at each checkpoint, change points; the text that repeats."""

# mypy: disable-error-code="attr-defined, operator, union-attr"

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import random_model, random_tokens

import interp
from interp import (
    CheckpointError,
    ConfigError,
    Recipe,
    RepeatedTokens,
    Result,
    TextError,
    TokenError,
)
from interp.analysis.heads import formation_results
from interp.analysis.heads.change_points import change_point
from interp.analysis.heads.formation import checkpoints_of, formation, random_repeats
from interp.cli import main
from interp.data.repeated import repeats_for
from interp.ground_truth import heads as truth
from interp.results.intervals import mean_interval

TINY = {
    "name": "tiny-repeats",
    "text": {"source": "repeated-tokens", "symbols": 8, "min_period": 2, "max_period": 6},
    "model": {"n_layers": 2, "n_heads": 2, "d_model": 16, "n_ctx": 12, "d_mlp": 0},
    "training": {"steps": 6, "batch_size": 4, "eval_every": 3, "checkpoints": 0,
                 "checkpoint_every": 2, "precision": "float32"},
}  # fmt: skip


# ---- tokens that repeat -----------------------------------------------------------------------


def test_every_sequence_repeats_with_its_own_period() -> None:
    source = RepeatedTokens(symbols=20, min_period=3, max_period=9)
    tokens, periods = source.draw(200, 30, np.random.default_rng(0))
    assert set(periods.tolist()) == set(range(3, 10))
    for row, period in zip(tokens, periods.tolist(), strict=True):
        assert row[period:].equal(row[:-period])
        assert len(set(row[:period].tolist())) == period  # without replacement


def test_with_replacement_tokens_occur_twice() -> None:
    source = RepeatedTokens(symbols=4, min_period=8, max_period=8, replacement=True)
    tokens, _ = source.draw(5, 16, np.random.default_rng(0))
    assert all(len(set(row[:8].tolist())) <= 4 for row in tokens)


def test_batches_are_functions_of_seed_and_step_and_validation_is_fixed() -> None:
    source = RepeatedTokens(symbols=20, min_period=3, max_period=9)
    one = source.batch(16, 4, seed=1, step=2)
    assert one.shape == (4, 17)
    assert one.equal(source.batch(16, 4, seed=1, step=2))
    assert not one.equal(source.batch(16, 4, seed=1, step=3))
    first, again = (torch.cat(list(source.windows(16, 100))) for _ in range(2))
    assert first.equal(again)
    assert first.shape == (512, 17)
    text = source.passages(16, 3)
    assert [len(t) for t in text] == [16] * 3
    assert source.tokenizer().encode(text[2]) == first[2, :16].tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"symbols": 1}, "symbols = 1"), ({"min_period": 9, "max_period": 3}, "in that order"),
        ({"symbols": 5, "max_period": 6}, "needs as many symbols"),
    ],
    ids=["symbols", "order", "too-few"],
)  # fmt: skip
def test_wrong_settings_are_refused(change: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RepeatedTokens(**{"symbols": 20, "min_period": 3, "max_period": 9, **change})


def test_a_period_that_does_not_fit_and_keys_of_another_source_are_refused() -> None:
    with pytest.raises(TextError, match="n_ctx = 46 or more"):
        RepeatedTokens().check_long_enough(20)
    with pytest.raises(ConfigError, match="is of the source 'repeated-tokens' only"):
        Recipe.parse({**TINY, "text": {"source": "shakespeare", "symbols": 4}})
    with pytest.raises(ConfigError, match="needs as many symbols"):
        Recipe.parse({**TINY, "text": {"source": "repeated-tokens", "symbols": 4}})


def test_random_repeats_fill_a_models_context() -> None:
    model = random_model()
    tokens, periods = random_repeats(model, 30, seed=0)
    assert tokens.shape == (30, model.config.n_ctx)
    assert set(periods.tolist()) <= set(range(2, 8))
    with pytest.raises(TokenError, match="no tokens can repeat"):
        random_repeats(random_model(n_ctx=3), 2, seed=0)


def test_periods_reach_from_a_quarter_of_the_greatest_to_half_of_the_context() -> None:
    assert repeats_for(128, 65) == (16, 64)
    assert repeats_for(64, 12) == (3, 12)  # no token twice in a segment
    assert repeats_for(4, 2) == (2, 2)
    assert repeats_for(3, 9) is None
    assert repeats_for(64, 1) is None


# ---- change points ----------------------------------------------------------------------------


@pytest.mark.parametrize("place", [1, 4, 9, 19])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_an_injected_change_is_found_within_one_checkpoint(place: Any, noise: float) -> None:
    rng = np.random.default_rng(place)
    steps = np.arange(20) * 25 if place < 19 else np.arange(21) * 25
    level = np.where(np.arange(len(steps)) < place, 3.0, 0.5)
    losses = level[:, None] * np.exp(noise * rng.standard_normal((len(steps), 64)))
    found = change_point(steps, losses)
    assert abs(found.step - place * 25) <= 25
    assert found.low <= found.step <= found.high
    assert (found.before, found.after) == pytest.approx((3.0, 0.5), rel=0.1)


def test_a_slow_fall_is_no_change() -> None:
    losses = np.linspace(3.5, 3.2, 20)[:, None] + np.zeros(8)
    assert change_point(np.arange(20), losses).step is None


def test_too_few_checkpoints_or_no_losses_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 3 checkpoints"):
        change_point(np.arange(2), np.ones((2, 4)))
    with pytest.raises(ConfigError, match="positive losses"):
        change_point(np.arange(3), np.full((3, 4), np.nan))


def test_an_injected_circuit_is_found_in_models(tmp_path: Path) -> None:
    """Checkpoints without and with the induction circuit: the change is at the first with it."""
    models = {}
    for step in range(0, 60, 10):
        models[step] = truth.induction()
        if step < 30:
            with torch.no_grad():
                models[step].unembed.W_U.mul_(0.01)
                models[step].blocks[0].attn.W_O.zero_()
    found = formation(models, sequences=16)
    assert found.change_point().step == 30
    induction = found.values[found.scores.index("induction")]
    assert induction[-1, 1, 0] > 0.9
    assert induction[0, 1, 0] < 0.4
    s, r = found.senders.index("L0.H0"), found.receivers.index("L1.k")
    assert found.paths[s, r, -1] > 1
    assert np.abs(found.paths[s, r, :3]).max() < 1e-9
    assert found.icl.shape == (6, 0)


@pytest.fixture(scope="module")
def formed() -> Any:
    """Three models without the induction circuit, three with it."""
    models = {}
    for step in range(0, 60, 10):
        models[step] = truth.induction()
        if step < 30:
            with torch.no_grad():
                models[step].unembed.W_U.mul_(0.01)
                models[step].blocks[0].attn.W_O.zero_()
    return formation(models, sequences=9, seed=7)


def test_the_band_that_is_drawn_is_the_interval_in_the_table(formed: Any) -> None:
    table = formed.to_frame()
    own = table[table["measure"] == "repeated_loss"]
    drawn = formed.picture().mark.marks[0].series[0]
    for name in ("value", "low", "high"):
        values = getattr(drawn, "values" if name == "value" else name)
        np.testing.assert_array_equal(values, own[name])
    _, low, high = mean_interval(formed.repeated_loss, seed=7)
    np.testing.assert_array_equal(drawn.low, low)
    np.testing.assert_array_equal(drawn.high, high)


def test_every_panel_has_the_change_point(formed: Any) -> None:
    panels = formed.picture().mark.marks
    assert [p.y_label.split(" (")[0] for p in panels] == [
        "loss", "previous score", "induction score", "loss carried"
    ]  # fmt: skip
    found = change_point(formed.steps, formed.repeated_loss, seed=7)
    for panel in panels:
        (span,) = panel.spans
        assert (span.at, span.low, span.high) == (found.step, found.low, found.high) != (0, 0, 0)
    induction = panels[2]
    at = formed.scores.index("induction")
    np.testing.assert_array_equal(induction.series[2].values, formed.values[at, :, 1, 0])
    assert [one.name for one in induction.series] == ["layer 0", "", "layer 1", ""]
    most = np.nanmax(formed.paths[..., -1])
    assert panels[3].series[0].values[-1] == most
    assert panels[3].series[0].name == "L0.H0 → L1.k"


def test_the_change_point_is_computed_once(formed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = formed.change_point()
    monkeypatch.delattr(formation_results, "change_point")
    assert formed.change_point() is first


def test_the_summary_has_each_step_and_the_change(formed: Any) -> None:
    lines = formed.summary().splitlines()
    assert lines[0] == "n = 9 random repeating sequences, 6 checkpoints, seed 7"
    assert [int(line.split()[0]) for line in lines[2:-1]] == formed.steps.tolist()
    assert lines[-1].startswith("change point: step 30 [")


# ---- a run ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("run") / "m"
    interp.train(Recipe.parse(TINY), folder)
    return folder


def test_measures_are_those_of_each_checkpoint(trained: Any, tmp_path: Path) -> None:
    assert list(checkpoints_of(trained)) == [0, 2, 4, 6]
    tokens = interp.HookedGPT.from_pretrained(trained).to_tokens(["ABCDABCDABCD", "ABABABABABAB"])
    found = formation(trained, tokens, sequences=6, seed=3)
    assert found.steps.tolist() == [0, 2, 4, 6]
    model = interp.HookedGPT.from_pretrained(trained / "checkpoints" / "step-000004")
    repeats, periods = random_repeats(model, 6, 3)
    loss = model(repeats, "loss", loss_per_token=True).detach().numpy()
    for b, period in enumerate(periods.tolist()):
        assert found.repeated_loss[2, b] == pytest.approx(loss[b, period:].mean(), rel=1e-5)
        if period > 1:
            assert found.first_loss[2, b] == pytest.approx(loss[b, : period - 1].mean(), rel=1e-5)
    own = model(tokens, "loss", loss_per_token=True).detach().numpy()
    np.testing.assert_allclose(found.icl[2], own[:, -1] - own[:, 1], atol=1e-5)
    frame = found.to_frame()
    assert {"repeated_loss", "icl", "induction:L1", "L0.H1>L1.k"} <= set(frame["measure"])
    found.save(tmp_path / "f.json")
    np.testing.assert_array_equal(Result.load(tmp_path / "f.json").paths, found.paths)
    (shown,) = found.figures()
    assert "n = 6 sequences, 4 checkpoints, seed 3" in shown.caption


def test_the_command(
    trained: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def status_of(*command: Any) -> Any:
        monkeypatch.setattr("sys.argv", ["interp", *map(str, command)])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code

    csv, out = tmp_path / "f.csv", tmp_path / "f"
    assert status_of("formation", trained, "--sequences", 6, "--csv", csv, "--out", out) == 0
    said = capsys.readouterr().out
    assert "no change point" in said
    assert csv.is_file()
    assert out.with_suffix(".png").is_file()
    random_model().save_pretrained(tmp_path / "plain")
    assert status_of("formation", tmp_path / "plain") == 2
    assert "has no checkpoints" in capsys.readouterr().err
    assert status_of("heads", trained, "--untrained", 1, "--sequences", 12) == 0


def test_a_folder_without_checkpoints_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no checkpoints"):
        formation(tmp_path)
    with pytest.raises(ConfigError, match="no checkpoints to look at"):
        formation({})


def test_a_model_of_one_layer_has_no_paths() -> None:
    models = {step: random_model(n_layers=1) for step in range(3)}
    found = formation(models, random_tokens(models[0], 4, 16), sequences=4)
    assert found.senders == ()
    assert found.icl.shape == (3, 4)
    (shown,) = found.figures()
    labels = [panel.y_label for panel in shown.mark.marks]
    assert labels == ["loss (nats per token)", "previous score", "induction score"]


def test_a_file_is_not_said_to_be_missing(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    with pytest.raises(interp.CheckpointError, match=r"f is a file, not the folder of a run"):
        interp.formation(tmp_path / "f")
