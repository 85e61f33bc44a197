# mypy: disable-error-code="index"
from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from conftest import VARIANTS, VOCABULARY, random_model, random_tokens, variant_id

from interp import (
    CacheError,
    CompletenessError,
    ConfigError,
    HookedGPT,
    attention_patterns,
    logit_lens,
    predictions,
)

ALL_VARIANTS = [*VARIANTS, {"n_layers": 0}, {"n_layers": 0, "positional": False}]


@pytest.fixture
def model() -> HookedGPT:
    return random_model()


@pytest.fixture
def lens(model: HookedGPT) -> Any:
    return logit_lens(model, model.run_with_cache(random_tokens(model))[1])


def log_probs_at(model: HookedGPT, stream: Any) -> Any:
    """Final LayerNorm with the stream's own statistics, then the unembedding."""
    if model.config.final_norm:
        centred = stream - stream.mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + model.config.ln_eps).sqrt()
        stream = centred / scale * model.ln_final.w + model.ln_final.b
    logits = stream @ model.W_U + (0 if model.b_U is None else model.b_U)
    return logits.log_softmax(-1).detach()


@pytest.mark.parametrize("variant", ALL_VARIANTS, ids=variant_id)
def test_last_depth_is_the_model(variant: dict[str, Any]) -> None:
    model = random_model(torch.float64, **variant)
    tokens = random_tokens(model)
    lens = logit_lens(model, model.run_with_cache(tokens)[1])
    log_p = model(tokens).log_softmax(-1).detach()
    targets = torch.cat((tokens[:, 1:], log_p[:, -1:].argmax(-1)), dim=1)
    expected = log_p.gather(-1, targets[..., None])[..., 0]
    np.testing.assert_array_equal(lens.targets, targets)
    np.testing.assert_allclose(lens.log_prob[-1], expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(lens.top[-1], log_p.argmax(-1))


@pytest.mark.parametrize("variant", ALL_VARIANTS, ids=variant_id)
def test_first_depth_reads_the_embeddings_with_their_own_statistics(
    variant: dict[str, Any],
) -> None:
    model = random_model(torch.float64, **variant)
    tokens = random_tokens(model)
    lens = logit_lens(model, model.run_with_cache(tokens)[1])
    stream = model.W_E[tokens]
    if model.config.positional:
        stream = stream + model.W_pos[:9]
    log_p = log_probs_at(model, stream)
    expected = log_p.gather(-1, torch.from_numpy(np.array(lens.targets))[..., None])[..., 0]
    assert lens.depths[0] == "embed"
    np.testing.assert_allclose(lens.log_prob[0], expected, rtol=0, atol=1e-12)


def test_every_depth_is_read_by_its_definition(model: HookedGPT) -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model)
    _, cache = model.run_with_cache(tokens)
    lens = logit_lens(model, cache)
    streams = [
        cache["resid_pre", 0], cache["resid_mid", 0], cache["resid_post", 0],
        cache["resid_mid", 1], cache["resid_post", 1],
    ]  # fmt: skip
    assert lens.depths == ("embed", "L0.attn", "L0", "L1.attn", "L1")
    for depth, stream in enumerate(streams):
        for b in range(2):
            for t in range(9):
                log_p = log_probs_at(model, stream[b, t]).numpy()
                y = int(tokens[b, t + 1] if t < 8 else model(tokens)[b, t].argmax())
                assert lens.log_prob[depth, b, t] == pytest.approx(log_p[y], abs=1e-12)
                assert lens.rank[depth, b, t] == sum(other > log_p[y] for other in log_p)
                entropy = -sum(np.exp(value) * value for value in log_p)
                assert lens.entropy[depth, b, t] == pytest.approx(entropy, abs=1e-12)
                assert lens.top[depth, b, t] == log_p.argmax()
                assert lens.top_prob[depth, b, t] == pytest.approx(np.exp(log_p.max()), abs=1e-12)


def test_attention_only_model_has_one_depth_a_block() -> None:
    model = random_model(d_mlp=0)
    lens = logit_lens(model, model.run_with_cache(random_tokens(model))[1])
    assert lens.depths == ("embed", "L0", "L1")


@pytest.mark.parametrize("names", ["contributions", "residual"])
def test_smaller_caches_serve_too(model: HookedGPT, lens: Any, names: str) -> None:
    _, cache = model.run_with_cache(random_tokens(model), names_filter=names)
    np.testing.assert_allclose(logit_lens(model, cache).log_prob, lens.log_prob, atol=1e-5)


def test_ranks_and_entropies_are_within_their_bounds(lens: Any) -> None:
    assert lens.rank.min() >= 0
    assert lens.rank.max() <= 6
    assert ((lens.rank == 0) == (lens.top == lens.targets)).all()
    assert (lens.entropy >= 0).all()
    assert (lens.entropy <= np.log(7) + 1e-6).all()


def test_frame_has_one_row_a_prediction(lens: Any) -> None:
    frame = lens.to_frame()
    assert list(frame.columns) == [
        "depth", "batch", "pos", "target", "target_char", "log_prob", "rank", "entropy", "top",
        "top_char", "top_prob",
    ]  # fmt: skip
    assert len(frame) == 5 * 2 * 9
    row = frame[(frame.depth == "L1.attn") & (frame.batch == 1) & (frame.pos == 2)]
    assert row.log_prob.item() == lens.log_prob[3, 1, 2]
    assert row.target.item() == lens.targets[1, 2]
    assert row.target_char.item() == VOCABULARY[lens.targets[1, 2]]
    assert row.top_char.item() == VOCABULARY[lens.top[3, 1, 2]]


def test_the_map_has_the_deepest_on_top_and_the_likeliest_as_letters(lens: Any) -> None:
    (shown,) = lens.figures()
    mark = shown.mark
    assert mark.rows == lens.depths[::-1]
    np.testing.assert_array_equal(mark.values, lens.log_prob[::-1, 0])
    assert mark.numbers[0] == tuple(VOCABULARY[t] for t in lens.top[-1, 0])
    assert mark.columns == tuple(VOCABULARY[t] for t in lens.targets[0])
    assert (mark.low, mark.high) == (lens.log_prob[:, 0].min(), 0)


def test_summary_says_what_each_depth_predicts_at_the_end(lens: Any) -> None:
    first, *rows = lens.summary().splitlines()
    assert first.startswith("what the stream predicts after the last of 9 positions")
    assert [row.split()[:2] for row in rows] == [
        [depth, VOCABULARY[top]] for depth, top in zip(lens.depths, lens.top[:, 0, -1], strict=True)
    ]
    assert f"log-probability {lens.log_prob[-1, 0, -1]:+.3f}" in rows[-1]


# ---- predictions ---------------------------------------------------------------------------------


@pytest.fixture
def predicted(model: HookedGPT) -> Any:
    return predictions(model, model.run_with_cache(random_tokens(model))[1], k=3)


def test_predictions_are_of_every_position_and_the_last_has_no_truth(
    model: HookedGPT, predicted: Any
) -> None:
    tokens = random_tokens(model)
    p = model(tokens).softmax(-1).detach()
    for b in range(2):
        for t in range(9):
            order = sorted(range(7), key=lambda i: -p[b, t, i])
            np.testing.assert_array_equal(predicted.top[b, t], order[:3])
            if t < 8:
                true = int(tokens[b, t + 1])
                assert predicted.rank[b, t] == order.index(true)
                assert predicted.prob[b, t] == pytest.approx(float(p[b, t, true]), abs=1e-6)
    assert np.isnan(predicted.prob[:, -1]).all()
    assert (predicted.rank[:, -1] == -1).all()


def test_predictions_have_characters_beside_their_ids(predicted: Any) -> None:
    frame = predicted.to_frame()
    assert list(frame.columns) == ["batch", "pos", "choice", "token", "token_char", "prob"]
    assert len(frame) == 2 * 9 * 3
    assert frame.token_char.tolist() == [VOCABULARY[t] for t in predicted.top.ravel()]
    bare = dataclasses.replace(predicted, characters=None)
    assert "token_char" not in bare.to_frame()


def test_predictions_draw_the_probability_of_the_truth(predicted: Any) -> None:
    mark = predicted.picture().mark
    np.testing.assert_array_equal(mark.series[0].values, predicted.prob[0, :-1])
    assert [text for _, text in mark.ticks] == [VOCABULARY[t] for t in predicted.tokens[0, 1:]]
    first, second = predicted.summary().splitlines()
    assert f"what comes after 9 positions: {VOCABULARY[predicted.top[0, -1, 0]]} " in first
    assert f"mean probability {predicted.prob[:, :-1].mean():.3f}" in second


def test_one_token_has_predictions_and_nothing_to_draw(model: HookedGPT) -> None:
    found = predictions(model, model.run_with_cache("a")[1])
    assert found.figures() == []
    assert len(found.summary().splitlines()) == 1


def test_cache_of_another_model_is_refused(model: HookedGPT) -> None:
    _, cache = model.run_with_cache(random_tokens(model))
    with pytest.raises(CacheError, match="another model"):
        logit_lens(random_model(), cache)


def test_cache_without_the_stream_is_refused(model: HookedGPT) -> None:
    _, cache = model.run_with_cache(random_tokens(model), names_filter="attention")
    with pytest.raises(CacheError):
        logit_lens(model, cache)


@pytest.mark.parametrize("positions", [slice(1, None), slice(0, 4)])
def test_cache_of_some_positions_is_refused(model: HookedGPT, positions: Any) -> None:
    _, cache = model.run_with_cache(random_tokens(model), pos_slice=positions)
    with pytest.raises(CacheError):
        logit_lens(model, cache)


def test_predictions_that_are_not_numbers_are_refused() -> None:
    model = random_model()
    with torch.no_grad():
        model.unembed.W_U[0, 0] = torch.nan
    with pytest.raises(CompletenessError, match="NaN"):
        logit_lens(model, model.run_with_cache("abc")[1])


def test_a_model_without_blocks_has_no_patterns() -> None:
    model = random_model(n_layers=0)
    with pytest.raises(ConfigError, match="without blocks"):
        attention_patterns(model, model.run_with_cache("abc")[1])
