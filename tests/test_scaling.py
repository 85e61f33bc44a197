# mypy: disable-error-code="arg-type, attr-defined, operator, union-attr"
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import VARIANTS, random_model, random_tokens, variant_id
from hypothesis import given, settings, strategies as st
from scipy.special import softmax
from torch import Tensor

from interp import (
    AttentionScaling,
    ConfigError,
    HookedGPT,
    Result,
    SoftmaxStatistics,
    TokenError,
    attention_scaling,
    entropy_floor,
    entropy_of_scores,
    freezing_std,
    gradient_statistics,
    scale_identity,
    small_score_entropy,
    softmax_statistics,
)

# ---- theory --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("std", "median", "mean", "entropy", "slope"),
    [
        (1.0, 0.3362, 0.3613, 1.7218, 0.0960),
        (8**0.5, 0.6669, 0.6704, 0.8963, 0.0560),
        (8.0, 0.9653, 0.8764, 0.3141, 0.0219),
        (512**0.5, 0.99995, 0.9563, 0.1066, 0.0079),
    ],
    ids=["scaled", "d_k = 8", "d_k = 64", "d_k = 512"],
)
def test_softmax_of_eight_normal_scores(
    std: Any, median: float, mean: float, entropy: float, slope: float
) -> None:
    found = softmax_statistics(std, draws=200_000, seed=1)
    pairs = (found.median_largest, found.mean_largest, found.entropy, found.slope)
    for (value, error), known in zip(pairs, (median, mean, entropy, slope), strict=True):
        assert abs(value - known) < 5 * error + 6e-5  # the known ones are rounded to four digits
        assert 0 < error < 0.003
    assert found.entropy_normalised[0] == pytest.approx(found.entropy[0] / np.log(8))


@pytest.mark.parametrize(("n_keys", "std", "error"), [(8, 1 / 3, 0.0012), (8, 1, 0.08),
                                                            (256, 1, 0.005)])  # fmt: skip
def test_small_scores_have_nearly_the_entropy_of_the_expansion(
    n_keys: int, std: Any, error: float
) -> None:
    value, uncertainty = softmax_statistics(std, n_keys, draws=100_000).entropy
    gap = abs(value - small_score_entropy(std, n_keys))
    assert gap < 1.2 * error + 4 * uncertainty
    if error > 0.01:
        assert gap > 0.8 * error


def test_the_largest_weight_takes_over_near_the_freezing_std() -> None:
    for n_keys in (16, 256):
        at = freezing_std(n_keys)
        below, above = (softmax_statistics(at * f, n_keys, draws=5000).mean_largest[0]
                        for f in (0.4, 2.5))  # fmt: skip
        assert below < 0.25
        assert above > 0.6


def test_no_row_has_less_entropy_than_the_floor() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20_000, 8)) * rng.uniform(0, 12, (20_000, 1))
    assert (entropy_of_scores(rows) >= entropy_floor(rows) - 1e-12).all()


@settings(deadline=None, max_examples=60)
@given(st.floats(0, 30), st.integers(2, 40))
def test_the_floor_is_reached_by_a_row_with_one_larger_score(size: float, n: int) -> None:
    row = np.zeros((1, n))
    row[0, 0] = size
    np.testing.assert_allclose(entropy_of_scores(row), entropy_floor(row), atol=1e-11)


def test_entropy_of_masked_scores_is_that_of_the_others() -> None:
    scores = np.array([[0.3, -1.0, -np.inf], [2.0, -np.inf, -np.inf]])
    p = softmax(scores[0, :2])
    np.testing.assert_allclose(entropy_of_scores(scores), [-(p * np.log(p)).sum(), 0], atol=1e-15)


def test_unscaled_gradients_are_larger_in_the_mean_and_dead_in_the_middle() -> None:
    unscaled, scaled, over = (
        gradient_statistics(512, c, draws=8000).to_frame().set_index("of")
        for c in (1, 512**-0.5, 1 / 512)
    )
    assert unscaled.loc["q", "mean"] > 2.5 * scaled.loc["q", "mean"]
    assert unscaled.loc["q", "q50"] < 0.01 * scaled.loc["q", "q50"]
    assert scaled.loc["score", "q50"] == pytest.approx(0.312, abs=0.01)
    assert scaled.loc["score", "rms"] == pytest.approx(0.368, abs=0.01)
    assert scaled.loc["q", "q50"] == pytest.approx(0.313, abs=0.01)
    assert unscaled.loc["score", "rms"] == pytest.approx(0.146, abs=0.015)
    assert unscaled.loc["score", "q50"] < 2e-4
    assert over.loc["q", "q50"] == pytest.approx(0.0139, abs=0.0007)


@pytest.mark.parametrize("wrong", [{"std": -1.0}, {"std": 1.0, "n_keys": 1},
                                   {"std": float("nan")}])  # fmt: skip
def test_rows_that_cannot_be_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="expected a std"):
        softmax_statistics(**wrong)


# ---- a model's scores multiplied ---------------------------------------------------------------


def by_hand(model: HookedGPT, tokens: Tensor, c: Any, layer: Any, head: Any) -> Any:
    """Mean normalised entropy of one head with all scores multiplied, from the pattern itself."""
    with model.attn_scaled_by(c):
        _, cache = model.run_with_cache(tokens)
    p = cache["pattern", layer][:, head, 1:].double()
    h = -(p * p.clamp(min=1e-300).log()).sum(-1)
    return (h / torch.arange(2, tokens.shape[1] + 1).double().log()).mean(1).numpy()


@pytest.mark.parametrize("variant", VARIANTS, ids=variant_id)
def test_entropy_and_loss_are_those_of_the_scaled_run(variant: dict[str, Any]) -> None:
    model = random_model(torch.float64, **variant)
    tokens = random_tokens(model, 3, 7)
    result = attention_scaling(model, tokens, (0.0, 1.0, 2.5))
    for i, c in enumerate((0.0, 1.0, 2.5)):
        np.testing.assert_allclose(
            result.entropy_normalised[i, 1, 2], by_hand(model, tokens, c, 1, 2), atol=1e-12
        )
        with model.attn_scaled_by(c):
            loss = model(tokens, "loss", loss_per_token=True).mean(1)
        np.testing.assert_allclose(result.loss[i, 0, 0], loss.detach(), atol=1e-12)
    np.testing.assert_allclose(result.entropy_normalised[0], 1, atol=1e-12)


def test_single_head_at_a_time() -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model, 2, 6)
    result = attention_scaling(model, tokens, (0.0, 1.0), each=True)
    grid = torch.ones(2, 4, dtype=torch.float64)
    grid[1, 3] = 0
    with model.attn_scaled_by(grid):
        loss = model(tokens, "loss", loss_per_token=True).mean(1)
    np.testing.assert_allclose(result.loss[0, 1, 3], loss.detach(), atol=1e-12)
    assert np.ptp(result.loss[1]) > 0  # sequences differ
    assert np.ptp(result.loss[1], axis=(0, 1)).max() < 1e-12  # heads do not, at 1


def test_entropy_falls_in_every_row_of_a_first_layer_and_of_frozen_inputs() -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model, 4, 9)
    cs = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
    result = attention_scaling(model, tokens, cs)
    assert (np.diff(result.entropy[:, 0], axis=0) < 0).all()
    frozen = attention_scaling(model, tokens, cs, inputs="frozen")
    assert (np.diff(frozen.entropy, axis=0) < 0).all()
    np.testing.assert_allclose(frozen.entropy[:, 0], result.entropy[:, 0], atol=1e-12)
    assert np.abs(frozen.entropy[:, 1] - result.entropy[:, 1]).max() > 1e-3
    np.testing.assert_array_equal(frozen.loss, result.loss)


def test_entropies_are_averaged_not_maps() -> None:
    """The entropy of an averaged map is larger: Jensen's gap, which averaging maps would hide."""
    model = random_model(torch.float64)
    tokens = random_tokens(model, 8, 9)
    _, cache = model.run_with_cache(tokens)
    result = attention_scaling(model, tokens, (1.0,))
    mean_map = cache["pattern", 0].mean(0)[:, 1:].numpy()
    of_mean = -np.where(mean_map > 0, mean_map * np.log(np.where(mean_map > 0, mean_map, 1)), 0)
    of_mean = of_mean.sum(-1).mean(-1)  # [head]
    assert (of_mean - result.entropy[0, 0].mean(-1) > 1e-3).all()


def test_more_sequences_than_one_piece_and_progress() -> None:
    model = random_model()
    tokens = random_tokens(model, 18, 5)
    seen = []
    result = attention_scaling(model, tokens, (1.0, 2.0), progress=lambda *x: seen.append(x))
    parts = [attention_scaling(model, t, (1.0, 2.0)) for t in (tokens[:16], tokens[16:])]
    np.testing.assert_allclose(
        result.loss, np.concatenate([p.loss for p in parts], axis=-1), atol=1e-6
    )
    assert seen[-1] == (4, 4)


def test_to_table_to_disk_to_figure(tmp_path: Path) -> None:
    model = random_model()
    result = attention_scaling(model, random_tokens(model, 6, 5), (0.0, 0.5, 1.0), seed=3)
    frame = result.to_frame()
    assert list(frame.columns) == [
        "multiplier", "layer", "head", "entropy_nats", "entropy_bits", "entropy_normalised",
        "max_weight", "loss", "low", "high", "n",
    ]  # fmt: skip
    assert len(frame) == 3 * 2 * 4
    one = frame[frame.multiplier == 1]
    np.testing.assert_allclose(one.low, one.loss)  # the difference from itself is certain
    np.testing.assert_allclose(one.high, one.loss)
    result.save(tmp_path / "r.json")
    again = Result.load(tmp_path / "r.json")
    assert isinstance(again, AttentionScaling)
    np.testing.assert_array_equal(again.loss, result.loss)
    (shown,) = again.figures()
    assert "n = 6 sequences, seed 3" in shown.caption
    assert shown.name == "scaling-all-as-they-come"
    losses, entropies = shown.mark.marks
    (line,) = losses.series
    np.testing.assert_allclose(line.values, result.loss[:, 0, 0].mean(-1))
    np.testing.assert_array_equal(line.low, one_head(frame).low)
    np.testing.assert_array_equal(line.high, one_head(frame).high)
    assert [text for _, text in losses.ticks] == ["0", "0.5", "1"]
    assert losses.spans[0].at == losses.x[2]  # 1: the model as it is
    assert [series.name for series in entropies.series].count("") == 6
    np.testing.assert_allclose(
        entropies.series[5].values, result.entropy_normalised[:, 1, 1].mean(-1)
    )


def one_head(frame: Any) -> Any:
    return frame[(frame["layer"] == 0) & (frame["head"] == 0)]


def test_with_one_head_at_a_time_each_has_a_line_and_nothing_is_found() -> None:
    model = random_model()
    result = attention_scaling(model, random_tokens(model, 3, 5), (0.0, 1.0), each=True)
    losses, _ = result.picture("scaling-each-as-they-come").mark.marks
    assert len(losses.series) == 8
    np.testing.assert_allclose(losses.series[6].values, result.loss[:, 1, 2].mean(-1))
    assert result.finding() is None
    assert result.name == "attention-scaling-each-as-they-come"
    assert "one head at a time" in result.summary()
    assert "L1.H2" in result.summary()


def test_the_finding_is_where_the_loss_is_least() -> None:
    model = random_model()
    result = attention_scaling(model, random_tokens(model, 3, 5), (0.5, 1.0, 2.0))
    losses = result.loss[:, 0, 0].mean(-1)
    best = (0.5, 1.0, 2.0)[int(losses.argmin())]
    said = result.finding().text
    assert ("as they are" if best == 1 else f"multiplied by {best:g}") in said
    assert f"{losses[1]:.3f}" in said
    for row in result.to_frame().query("layer == 0 and head == 0").itertuples():
        assert f"loss {row.loss:.4f} [{row.low:.4f}, {row.high:.4f}]" in result.summary()


@pytest.mark.parametrize(
    "result", [softmax_statistics(2.0, draws=500), gradient_statistics(8, 0.5, draws=500)],
    ids=["softmax", "gradients"],
)  # fmt: skip
def test_theory_goes_to_disk_and_back_and_is_drawn_from_its_numbers(
    result: Any, tmp_path: Path
) -> None:
    result.save(tmp_path / "r.json")
    again = Result.load(tmp_path / "r.json")
    assert again.to_document() == result.to_document()
    assert again.provenance.seed == 0
    (shown,) = again.figures()
    series = shown.mark.series
    if isinstance(result, SoftmaxStatistics):
        value, error = result.median_largest
        assert series[0].values[0] == value
        np.testing.assert_allclose(series[0].high[0] - value, 1.96 * error)
        assert result.to_frame()["standard_error"].iloc[0] == error
    else:
        table = result.to_frame()
        assert series[0].values.tolist() == table["q50"].tolist()
        assert series[1].values.tolist() == table["mean"].tolist()
    assert "seed 0" in result.summary()


def test_the_earlier_name_of_the_std_is_still_taken() -> None:
    with pytest.warns(DeprecationWarning, match="deviation is called std now"):
        earlier = softmax_statistics(deviation=2.0, draws=50)  # type: ignore[call-arg]
    assert earlier.to_document() == softmax_statistics(2.0, draws=50).to_document()


@pytest.mark.parametrize("multipliers", [(0.5, 2.0), (1.0, -1.0), (1.0, float("nan")), ()])
def test_multipliers_must_hold_one_and_be_finite(multipliers: Any) -> None:
    model = random_model()
    with pytest.raises(ConfigError, match=r"hold 1\.0"):
        attention_scaling(model, random_tokens(model), multipliers)


def test_what_has_no_attention_or_no_second_key_is_refused() -> None:
    model = random_model()
    with pytest.raises(TokenError, match="two tokens"):
        attention_scaling(model, random_tokens(model, 2, 1))
    with pytest.raises(ConfigError, match="without blocks"):
        attention_scaling(random_model(n_layers=0), "abc")


# ---- the identity ------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", [v for v in VARIANTS if not v.get("qkv_bias")], ids=variant_id)
def test_the_gradient_to_the_scale_is_that_along_the_weights(variant: dict[str, Any]) -> None:
    model = random_model(torch.float64, **variant)
    found = scale_identity(model, random_tokens(model))
    np.testing.assert_allclose(found["W_Q"], found["scale"], atol=1e-13)
    np.testing.assert_allclose(found["W_K"], found["scale"], atol=1e-13)
    assert (np.abs(found["scale"]) > 1e-8).all()
    assert all(p.grad is None for p in model.parameters())
    step = 1e-5
    losses = []
    for c in (1 + step, 1 - step):
        grid = torch.ones(2, 4, dtype=torch.float64)
        grid[1, 0] = c
        with model.attn_scaled_by(grid):
            losses.append(float(model(random_tokens(model), "loss").detach()))
    slope = (losses[0] - losses[1]) / (2 * step)
    assert found["scale"][1, 0] == pytest.approx(slope, abs=1e-8)


def test_biased_queries_are_refused() -> None:
    with pytest.raises(ConfigError, match="not homogeneous"):
        scale_identity(random_model(qkv_bias=True), "abc")
