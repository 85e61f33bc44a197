# mypy: disable-error-code="arg-type, attr-defined, index, operator"
from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TOLERANCE, VARIANTS, VOCABULARY, random_model, random_tokens, variant_id
from helpers import metric_of
from hypothesis import given, settings, strategies as st
from torch import Tensor

from interp import (
    ActivationCache,
    CacheError,
    CompletenessError,
    ConfigError,
    HookedGPT,
    InterpError,
    TokenError,
    attention_patterns,
    logit_attribution,
)
from interp.stream.tolerance import check_complete

ALL_VARIANTS = [*VARIANTS, {"n_layers": 0}, {"dropout": 0.2}]
METRICS = ["centered", "foil", "probability", "raw"]
unchecked = inspect.unwrap(logit_attribution)


@pytest.fixture
def model() -> HookedGPT:
    return random_model()


@pytest.fixture
def cache(model: HookedGPT) -> ActivationCache:
    return model.run_with_cache(random_tokens(model))[1]


def with_one_replaced(cache: ActivationCache, name: Any, value: Any) -> Any:
    values = {**cache.cache_dict, name: value}
    return ActivationCache(values, cache.model, tokens=cache.tokens, rebuilds=True)


def scalar_of(logits: Tensor, metric: Any, targets: Any, foil: Any) -> Any:
    """The definition, from the logits of a plain run."""
    return metric_of(metric, logits, logits, targets, foil)


def next_or_likeliest(tokens: Tensor, logits: Tensor) -> Any:
    """The targets by default: what follows, and at the end what the model finds likeliest."""
    return torch.cat((tokens[:, 1:], logits[:, -1:].argmax(-1)), dim=1)


def with_tensor(cache: ActivationCache, name: Any, value: Any) -> Any:
    """A cache like `cache` but for one tensor."""
    return ActivationCache(
        dict(cache.cache_dict) | {name: value}, cache.model, tokens=cache.tokens,
        rebuilds=cache.rebuilds,
    )  # fmt: skip


def perturbed(value: Any) -> Any:
    noise = torch.randn(value.shape, generator=torch.Generator().manual_seed(7))
    return value + 0.1 * noise.to(value.dtype)


# ---- the sum -----------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("variant", ALL_VARIANTS, ids=variant_id)
def test_rows_sum_to_the_scalar_at_every_position_for_every_target(
    variant: dict[str, Any], dtype: torch.dtype
) -> None:
    model = random_model(dtype, **variant)
    tokens = random_tokens(model)
    logits = model(tokens)
    _, cache = model.run_with_cache(tokens)
    for by in ("block", "head"):
        for metric in METRICS:
            for y in range(model.config.d_vocab):
                targets = torch.full_like(tokens, y)
                parts = logit_attribution(
                    model, cache, by, metric=metric, targets=targets,
                    foils=3 if metric == "foil" else None,
                )  # fmt: skip
                expected = scalar_of(logits, metric, targets, 3).numpy()
                tolerance = TOLERANCE[dtype] * (1 + np.abs(parts.values).sum(0))
                assert (np.abs(parts.values.sum(0) - expected) <= tolerance).all()
                assert (np.abs(parts.total - expected) <= tolerance).all()


@settings(deadline=None, max_examples=25)
@given(
    batch=st.integers(1, 3), pos=st.integers(1, 16), n_layers=st.integers(0, 3),
    n_heads=st.integers(1, 4), d_head=st.integers(1, 6), seed=st.integers(0, 100),
    metric=st.sampled_from(METRICS), by=st.sampled_from(["block", "head"]),
    names=st.sampled_from(["all", "contributions"]),
)  # fmt: skip
def test_rows_sum_for_any_shape(
    batch: int,
    pos: int,
    n_layers: int,
    n_heads: int,
    d_head: int,
    seed: int,
    metric: Any,
    by: Any,
    names: Any,
) -> None:
    model = random_model(
        torch.float64, seed, n_layers=n_layers, n_heads=n_heads, d_head=d_head, d_model=12
    )
    tokens = random_tokens(model, batch, pos, seed)
    logits, cache = model.run_with_cache(tokens, names_filter=names)
    parts = logit_attribution(
        model, cache, by, metric=metric, targets=tokens.flip(1),
        foils=seed % 7 if metric == "foil" else None,
    )  # fmt: skip
    expected = scalar_of(logits.detach(), metric, tokens.flip(1), seed % 7).numpy()
    assert parts.values.shape == (len(parts.components), batch, pos)
    np.testing.assert_allclose(parts.values.sum(0), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("variant", ALL_VARIANTS, ids=variant_id)
def test_heads_sum_to_their_block(variant: dict[str, Any]) -> None:
    model = random_model(torch.float64, **variant)
    _, cache = model.run_with_cache(random_tokens(model))
    blocks = logit_attribution(model, cache, "block")
    heads = logit_attribution(model, cache, "head")
    for layer in range(model.config.n_layers):
        rows = [heads.row(f"L{layer}.H{h}") for h in range(model.config.n_heads)]
        np.testing.assert_allclose(sum(rows), blocks.row(f"L{layer}.attn"), rtol=0, atol=1e-12)
    for name in set(blocks.components) & set(heads.components):
        np.testing.assert_array_equal(blocks.row(name), heads.row(name))


def test_rows_are_the_frozen_layernorm_formula() -> None:
    model = random_model(torch.float64, n_layers=1)
    tokens = random_tokens(model)
    logits, cache = model.run_with_cache(tokens)
    parts = logit_attribution(model, cache, "head", metric="raw")
    targets = next_or_likeliest(tokens, logits)
    x = cache["resid_post", 0]
    s = (x.var(-1, unbiased=False) + model.config.ln_eps).sqrt()[..., None]
    result = torch.einsum("bphd,hdm->bphm", cache["z", 0], model.W_O[0])
    b_O = model.blocks[0].attn.b_O.expand_as(x)
    for name, part in {"embed": cache["embed"], "L0.H2": result[:, :, 2], "L0.b_O": b_O}.items():
        read = model.ln_final.w * (part - part.mean(-1, keepdim=True)) / s @ model.W_U
        expected = read.gather(-1, targets[..., None])[..., 0].detach()
        np.testing.assert_allclose(parts.row(name), expected, rtol=0, atol=1e-12)
    b_U = model.b_U[targets].detach()
    np.testing.assert_allclose(parts.row("b_U"), b_U, rtol=0, atol=1e-13)


def test_probability_centred_total_is_log_p_plus_entropy() -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model)
    logits, cache = model.run_with_cache(tokens)
    parts = logit_attribution(model, cache, metric="probability")
    log_p = logits.log_softmax(-1).detach()
    entropy = -(log_p.exp() * log_p).sum(-1)
    expected = log_p.gather(-1, next_or_likeliest(tokens, logits)[..., None])[..., 0] + entropy
    np.testing.assert_allclose(parts.total, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(parts.values.sum(0), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_adding_one_vector_to_every_column_of_the_unembedding(metric: Any) -> None:
    model, shifted = random_model(torch.float64), random_model(torch.float64)
    w = torch.randn(32, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    with torch.no_grad():
        shifted.unembed.W_U += w  # type: ignore[assignment]
    tokens = random_tokens(model)
    foil = {"foils": 2} if metric == "foil" else {}
    before, after = (
        logit_attribution(m, m.run_with_cache(tokens)[1], "head", metric=metric, **foil).values
        for m in (model, shifted)
    )
    difference = np.abs(before - after).max()
    assert difference > 0.1 if metric == "raw" else difference < 1e-11


def test_permuted_heads_permute_the_rows() -> None:
    model, permuted = random_model(torch.float64), random_model(torch.float64)
    order = [2, 0, 3, 1]
    with torch.no_grad():
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            weight = getattr(permuted.blocks[0].attn, name)
            weight.copy_(weight[order].clone())
    tokens = random_tokens(model)
    before, after = (
        logit_attribution(m, m.run_with_cache(tokens)[1], "head") for m in (model, permuted)
    )
    for new, old in enumerate(order):
        np.testing.assert_allclose(
            after.row(f"L0.H{new}"), before.row(f"L0.H{old}"), rtol=0, atol=1e-12
        )


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("hook_embed", "block"),
        ("hook_pos_embed", "block"),
        ("blocks.0.hook_attn_out", "block"),
        ("blocks.1.hook_mlp_out", "head"),
        ("blocks.0.attn.hook_z", "head"),
        ("ln_final.hook_scale", "block"),
        ("hook_logits", "block"),
    ],
)
def test_one_wrong_tensor_is_incomplete(
    model: HookedGPT, cache: ActivationCache, name: str, by: Any
) -> None:
    wrong = with_tensor(cache, name, perturbed(cache[name]))
    with pytest.raises(CompletenessError, match=r"miss the model's own logits.*\(batch, pos\)"):
        logit_attribution(model, wrong, by)


@pytest.mark.parametrize("name", ["hook_embed", "blocks.1.hook_attn_out", "hook_logits"])
def test_tensor_replaced_in_the_cache_is_refused(
    model: HookedGPT, cache: ActivationCache, name: str
) -> None:
    cache.cache_dict[name] = perturbed(cache.cache_dict[name])
    with pytest.raises((CompletenessError, CacheError)):
        logit_attribution(model, cache)


def test_wrong_pattern_is_incomplete_where_z_is_rebuilt(model: HookedGPT) -> None:
    _, cache = model.run_with_cache(random_tokens(model), names_filter="contributions")
    name = "blocks.1.attn.hook_pattern"
    wrong = with_tensor(cache, name, perturbed(cache[name]))
    with pytest.raises(CompletenessError):
        logit_attribution(model, wrong, "head")


def test_one_wrong_position_is_found(model: HookedGPT, cache: ActivationCache) -> None:
    value = cache["hook_embed"].clone()
    value[1, 4, 0] += 0.5
    with pytest.raises(CompletenessError, match=r"\(1, 4\)"):
        logit_attribution(model, with_tensor(cache, "hook_embed", value))


@pytest.mark.parametrize("name", ["hook_embed", "blocks.0.hook_mlp_out", "hook_logits"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_nan_and_infinity_are_refused(
    model: HookedGPT, cache: ActivationCache, name: str, bad: Any
) -> None:
    value = cache[name].clone()
    value[0, 2, 1] = bad
    with pytest.raises(CompletenessError):
        logit_attribution(model, with_tensor(cache, name, value))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_check_refuses_what_is_not_finite(bad: Any) -> None:
    error = torch.tensor([[0.0, bad]])
    with pytest.raises(CompletenessError, match=r"\(0, 1\)"):
        check_complete(error, torch.tensor([[1.0, torch.inf]]))


def test_check_accepts_an_error_equal_to_its_tolerance() -> None:
    check_complete(torch.tensor([[0.5]]), torch.tensor([[0.5]]))
    with pytest.raises(CompletenessError):
        check_complete(torch.tensor([[0.50001]]), torch.tensor([[0.5]]))


@pytest.mark.parametrize("name", ["hook_embed", "ln_final.hook_scale", "hook_logits"])
def test_tensor_edited_in_place_is_refused(
    model: HookedGPT, cache: ActivationCache, name: str
) -> None:
    cache.cache_dict[name].mul_(1.5)
    with pytest.raises(CacheError, match="edited in place"):
        logit_attribution(model, cache)


def test_tokens_edited_after_the_run_do_not_move_the_targets(model: HookedGPT) -> None:
    tokens = random_tokens(model)
    original = tokens.clone()
    _, cache = model.run_with_cache(tokens)
    tokens.fill_(0)
    try:
        parts = logit_attribution(model, cache)
    except CacheError:
        return
    np.testing.assert_array_equal(parts.targets[:, :-1], original[:, 1:])


def test_cache_of_another_model_is_refused(model: HookedGPT, cache: ActivationCache) -> None:
    with pytest.raises(CacheError, match="another model"):
        logit_attribution(random_model(), cache)


def test_weights_changed_after_the_run_are_refused(
    model: HookedGPT, cache: ActivationCache
) -> None:
    with torch.no_grad():
        model.blocks[0].attn.W_O.mul_(1.1)
    with pytest.raises(InterpError):
        logit_attribution(model, cache, "head")


def test_heads_of_a_run_with_dropout_are_refused() -> None:
    model = random_model(dropout=0.5).train()
    _, cache = model.run_with_cache(random_tokens(model))
    with pytest.raises(CompletenessError, match="training mode"):
        logit_attribution(model, cache, "head")


def test_run_with_an_edited_stream_is_refused(model: HookedGPT) -> None:
    tokens = random_tokens(model)
    with model.hooks([("blocks.0.hook_resid_post", lambda x, hook: 2 * x)]):
        _, cache = model.run_with_cache(tokens)
    with pytest.raises(CompletenessError):
        logit_attribution(model, cache)


def test_run_with_an_edited_contribution_is_attributed(model: HookedGPT) -> None:
    tokens = random_tokens(model)
    with model.hooks([("blocks.1.hook_attn_out", lambda x, hook: torch.zeros_like(x))]):
        logits, cache = model.run_with_cache(tokens)
    parts = logit_attribution(model, cache, metric="raw")
    targets = next_or_likeliest(tokens, logits)
    expected = logits.gather(-1, targets[..., None])[..., 0].detach()
    np.testing.assert_allclose(parts.total, expected, rtol=0, atol=1e-6)


def test_cache_without_what_is_needed_is_refused(model: HookedGPT) -> None:
    tokens = random_tokens(model)
    for names in ("attention", "hook_logits"):
        _, cache = model.run_with_cache(tokens, names_filter=names)
        with pytest.raises(CacheError, match="not in this cache"):
            logit_attribution(model, cache)


def test_cache_without_its_batch_axis_is_refused(model: HookedGPT) -> None:
    _, cache = model.run_with_cache(random_tokens(model, batch=1), remove_batch_dim=True)
    with pytest.raises(CacheError, match="batch axis"):
        logit_attribution(model, cache)


def test_cache_without_tokens_is_refused(model: HookedGPT, cache: ActivationCache) -> None:
    _, later = model.run_with_cache(cache["resid_pre", 1].clone(), start_at_layer=1)
    with pytest.raises(CacheError, match="with its tokens"):
        logit_attribution(model, later)


@pytest.mark.parametrize("positions", [slice(1, None), slice(0, 4), [3]])
def test_cache_of_some_positions_is_refused(model: HookedGPT, positions: Any) -> None:
    _, cache = model.run_with_cache(random_tokens(model), pos_slice=positions)
    with pytest.raises(CacheError):
        logit_attribution(model, cache)


def test_cache_of_some_sequences_keeps_their_tokens(model: HookedGPT) -> None:
    tokens = random_tokens(model, batch=3)
    _, cache = model.run_with_cache(tokens)
    parts = logit_attribution(model, cache.apply_slice_to_batch_dim((1, 3)))
    np.testing.assert_array_equal(parts.targets[:, :-1], tokens[1:, 1:])
    whole = logit_attribution(model, cache)
    np.testing.assert_allclose(parts.values, whole.values[:, 1:], rtol=0, atol=1e-6)


def test_patterns_of_some_sequences_keep_their_tokens(model: HookedGPT) -> None:
    tokens = random_tokens(model, batch=3)
    _, cache = model.run_with_cache(tokens)
    patterns = attention_patterns(model, cache.apply_slice_to_batch_dim((1, 3)))
    np.testing.assert_array_equal(patterns.tokens, tokens[1])
    np.testing.assert_array_equal(
        patterns.patterns, attention_patterns(model, cache, sequence=1).patterns
    )


@pytest.mark.parametrize("what", ["targets", "foils"])
@pytest.mark.parametrize("shape", [(2,), (1, 8), (3, 8), (2, 10), (2, 0), (2, 8, 1)])
def test_targets_and_foils_of_the_wrong_shape_are_refused(
    model: HookedGPT, cache: ActivationCache, what: str, shape: Any
) -> None:
    metric = "foil" if what == "foils" else "centered"
    given = {what: torch.zeros(shape, dtype=torch.long)}
    with pytest.raises(TokenError, match=f"{what} have shape"):
        unchecked(model, cache, metric=metric, **given)


def test_foils_for_fewer_positions_than_targets_are_refused(
    model: HookedGPT, cache: ActivationCache
) -> None:
    with pytest.raises(TokenError):
        unchecked(model, cache, metric="foil", foils=torch.zeros(2, 3, dtype=torch.long))


@pytest.mark.parametrize("what", ["targets", "foils"])
@pytest.mark.parametrize("bad", [-1, 7])
def test_targets_and_foils_outside_the_vocabulary_are_refused(
    model: HookedGPT, cache: ActivationCache, what: str, bad: int
) -> None:
    metric = "foil" if what == "foils" else "centered"
    given = {what: torch.full((2, 8), bad)}
    with pytest.raises(TokenError, match=f"{what} run from {bad} to {bad}"):
        logit_attribution(model, cache, metric=metric, **given)


def test_targets_that_are_not_integers_are_refused(
    model: HookedGPT, cache: ActivationCache
) -> None:
    with pytest.raises(TokenError):
        unchecked(model, cache, targets=torch.full((2, 8), 0.5))


def test_foil_can_be_a_character_an_id_or_tokens(model: HookedGPT, cache: ActivationCache) -> None:
    tokens = torch.full((2, 8), 2)
    one, two, three = (
        logit_attribution(model, cache, metric="foil", foils=foil) for foil in ("c", 2, tokens)
    )
    np.testing.assert_array_equal(one.values, two.values)
    np.testing.assert_allclose(one.values[..., :8], three.values, rtol=0, atol=1e-6)
    assert (one.foils == 2).all()


def test_unknown_foil_is_refused(model: HookedGPT, cache: ActivationCache) -> None:
    for foil in ("z", 99, "ab"):
        with pytest.raises(TokenError):
            logit_attribution(model, cache, metric="foil", foils=foil)


def test_foils_and_their_scalar_come_together(model: HookedGPT, cache: ActivationCache) -> None:
    with pytest.raises(ConfigError, match="give foils together"):
        logit_attribution(model, cache, foils=1)
    with pytest.raises(ConfigError, match="give foils together"):
        logit_attribution(model, cache, metric="foil")


@pytest.mark.parametrize("choice", [{"by": "heads"}, {"metric": "logprob"}])
def test_unknown_choice_lists_the_known(
    model: HookedGPT, cache: ActivationCache, choice: Any
) -> None:
    with pytest.raises(ConfigError, match="is not one of '"):
        unchecked(model, cache, **choice)


def test_half_precision_has_no_tolerance() -> None:
    model = random_model(torch.bfloat16)
    _, cache = model.run_with_cache(random_tokens(model))
    with pytest.raises(ConfigError, match="bfloat16"):
        logit_attribution(model, cache)


# ---- the result ----------------------------------------------------------------------------------


def test_components_are_named_in_the_order_of_the_model(
    model: HookedGPT, cache: ActivationCache
) -> None:
    assert logit_attribution(model, cache, "head").components == (
        "embed", "pos_embed",
        "L0.H0", "L0.H1", "L0.H2", "L0.H3", "L0.b_O", "L0.mlp", "L0.b_out",
        "L1.H0", "L1.H1", "L1.H2", "L1.H3", "L1.b_O", "L1.mlp", "L1.b_out",
        "ln_bias", "b_U",
    )  # fmt: skip


def test_frame_has_one_row_a_contribution(model: HookedGPT, cache: ActivationCache) -> None:
    parts = logit_attribution(model, cache)
    frame = parts.to_frame()
    assert list(frame.columns) == [
        "batch", "pos", "target", "target_char", "component", "contribution",
    ]  # fmt: skip
    assert len(frame) == parts.values.size == 12 * 2 * 9
    row = frame[(frame.batch == 1) & (frame.pos == 3) & (frame.component == "L1.mlp")]
    assert row.contribution.item() == parts.row("L1.mlp")[1, 3]
    assert row.target.item() == parts.targets[1, 3]
    assert row.target_char.item() == VOCABULARY[parts.targets[1, 3]]
    sums = frame.groupby(["batch", "pos"]).contribution.sum().to_numpy().reshape(2, 9)
    np.testing.assert_allclose(sums, parts.total, atol=1e-4)


def test_unknown_row_names_the_nearest(model: HookedGPT, cache: ActivationCache) -> None:
    with pytest.raises(ConfigError, match=r"'L0\.mpl'.*'L0\.mlp'"):
        logit_attribution(model, cache).row("L0.mpl")


def test_result_carries_its_own_check(model: HookedGPT, cache: ActivationCache) -> None:
    parts = logit_attribution(model, cache)
    np.testing.assert_array_equal(
        parts.completeness_error, np.abs(torch.tensor(parts.values).sum(0).numpy() - parts.total)
    )
    assert (parts.completeness_error <= parts.tolerance).all()
    assert (parts.tolerance < 1e-3).all()


def test_attribution_edits_nothing(model: HookedGPT) -> None:
    tokens = random_tokens(model)
    weights = {name: p.clone() for name, p in model.named_parameters()}
    _, cache = model.run_with_cache(tokens)
    before = {name: value.clone() for name, value in cache.cache_dict.items()}
    for by in ("block", "head"):
        logit_attribution(model, cache, by, metric="probability")
    assert all(cache.cache_dict[name].equal(value) for name, value in before.items())
    assert all(p.equal(weights[name]) for name, p in model.named_parameters())
    assert list(cache.cache_dict) == list(before)


def test_after_the_last_token_the_models_own_choice_is_explained(model: HookedGPT) -> None:
    for prompt in ("a", "abcab"):
        logits, cache = model.run_with_cache(prompt)
        parts = logit_attribution(model, cache)
        assert parts.values.shape[1:] == (1, len(prompt))
        assert parts.targets[0, -1] == logits[0, -1].argmax()
        np.testing.assert_array_equal(parts.targets[0, :-1], model.to_tokens(prompt)[0, 1:])
        np.testing.assert_array_equal(parts.target_is_next, [[True] * (len(prompt) - 1) + [False]])
    given = logit_attribution(model, cache, targets="d")
    np.testing.assert_array_equal(given.target_is_next, [[False, False, False, False, False]])
    np.testing.assert_array_equal(given.targets, 3)


def test_targets_and_foils_are_read_alike_in_every_form(model: HookedGPT) -> None:
    _, cache = model.run_with_cache(["abc", "bca"])
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    characters = [["b", "c", "d"], ["e", "f", "g"]]
    forms = (
        ["bcd", "efg"], characters, np.array(characters), [["b", 2, "d"], "efg"],
        ids, ids.int(), ids.numpy(), ids.tolist(),
    )  # fmt: skip
    for form in forms:
        given = logit_attribution(model, cache, targets=form, metric="foil", foils="a")
        np.testing.assert_array_equal(given.targets, ids)
        given = logit_attribution(model, cache, targets=0, metric="foil", foils=form)
        np.testing.assert_array_equal(given.foils, ids)
        np.testing.assert_array_equal(given.targets, 0)
    _, one = model.run_with_cache("abc")
    for row in ("bcd", ["b", "c", "d"], [1, 2, 3], np.array([1, 2, 3]), torch.tensor([1, 2, 3])):
        np.testing.assert_array_equal(
            logit_attribution(model, one, targets=row).targets, [[1, 2, 3]]
        )
    for scalar in ("b", 1, np.int64(1), torch.tensor(1)):
        np.testing.assert_array_equal(logit_attribution(model, one, targets=scalar).targets, 1)


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (
            ["abc"],
            "targets have shape (1, 3); expected one character or id for all, or [2, up to 3]",
        ),
        (["abcd", "abcd"], "targets have shape (2, 4)"),
        (["ab", "abc"], "targets = ['ab', 'abc'] are no token ids"),
        (["abz", "abc"], "'z'"),
        ("", "targets have shape (0,)"),
        ([[1, 2], [3, 7]], "targets run from 1 to 7, outside the vocabulary 0 … 6"),
    ],
)
def test_targets_that_cannot_be_are_told_in_one_line(
    model: HookedGPT, targets: Any, said: str
) -> None:
    _, cache = model.run_with_cache(["abc", "bca"])
    with pytest.raises(TokenError, match=re.escape(said)) as caught:
        logit_attribution(model, cache, targets=targets)
    assert "\n" not in str(caught.value)


def test_scalar_is_still_taken_and_deprecated(model: HookedGPT, cache: ActivationCache) -> None:
    with pytest.warns(DeprecationWarning, match="logit_attribution: scalar is called metric now"):
        old = logit_attribution(model, cache, scalar="raw")  # type: ignore[call-arg]
    np.testing.assert_array_equal(old.values, logit_attribution(model, cache, metric="raw").values)
    with pytest.raises(TypeError, match="got metric and also scalar"):
        logit_attribution(model, cache, metric="raw", scalar="raw")  # type: ignore[call-arg]


# ---- what it shows -------------------------------------------------------------------------------


def test_the_map_is_of_every_component_and_position(
    model: HookedGPT, cache: ActivationCache
) -> None:
    parts = logit_attribution(model, cache, "head")
    shown, bars = parts.figures()
    mark = shown.mark
    np.testing.assert_array_equal(mark.values, parts.values[:, 0])
    assert mark.rows == parts.components
    assert mark.columns == tuple(VOCABULARY[t] for t in parts.targets[0])
    assert mark.columns_are == "positions"
    assert mark.high == -mark.low == np.abs(mark.values).max()
    assert shown.on_page
    assert not bars.on_page
    pos = int(parts.total[0, :-1].argmax())
    np.testing.assert_array_equal(bars.mark.values, parts.values[:, 0, pos])
    assert f"position {pos}," in bars.caption
    assert bars.mark.title.endswith(f"they sum to {parts.total[0, pos]:+.2f}")


def test_by_source_the_map_is_summed_over_heads_and_empty_where_masked(
    model: HookedGPT, cache: ActivationCache
) -> None:
    parts = logit_attribution(model, cache, "source")
    mark = parts.figures()[0].mark
    assert mark.rows == tuple(VOCABULARY[t] for t in parts.tokens[0])
    for key in range(9):
        total = sum(parts.row(f"L{i}.H{h}.S{key}")[0] for i in range(2) for h in range(4))
        assert np.isnan(mark.values[key, :key]).all()
        np.testing.assert_allclose(mark.values[key, key:], total[key:], rtol=0, atol=1e-6)


def test_many_components_are_drawn_as_the_largest_and_the_sum_of_the_others(
    model: HookedGPT, cache: ActivationCache
) -> None:
    parts = logit_attribution(model, cache, "neuron")
    mark = parts.figures()[0].mark
    assert len(mark.rows) == 40
    assert mark.rows[-1] == f"{len(parts.components) - 39:,} others"
    np.testing.assert_allclose(mark.values.sum(0), parts.values[:, 0].sum(0), atol=1e-4)
    sizes = np.abs(parts.values[:, 0]).mean(1)
    assert set(mark.rows[:-1]) == {parts.components[i] for i in np.argsort(-sizes)[:39]}


def test_one_row_can_be_drawn_over_the_passage(model: HookedGPT, cache: ActivationCache) -> None:
    parts = logit_attribution(model, cache, "head")
    mark = parts.picture("L1.H2").mark
    np.testing.assert_array_equal(mark.series[0].values, parts.row("L1.H2")[0])
    assert [text for _, text in mark.ticks] == [VOCABULARY[t] for t in parts.targets[0]]
    assert parts.picture().name == "contributions-by-head"
    with pytest.raises(ConfigError, match=r"has no figure 'L1\.H9'"):
        parts.picture("L1.H9")


def test_summary_has_the_rows_of_the_last_position_and_their_sum(
    model: HookedGPT, cache: ActivationCache
) -> None:
    parts = logit_attribution(model, cache)
    first, *rows, last = parts.summary().splitlines()
    assert first.startswith("9 positions; the last: after ")
    assert "not in the passage (logit − mean logit (logits))" in first
    assert {name: float(value) for name, value in map(str.split, rows)} == {
        name: pytest.approx(value, abs=1e-4)
        for name, value in zip(parts.components, parts.values[:, 0, -1], strict=True)
    }
    assert float(last.split()[1]) == pytest.approx(parts.total[0, -1], abs=1e-4)
    many = logit_attribution(model, cache, "neuron").summary().splitlines()
    assert len(many) == 1 + 20 + 1 + 1
    total = sum(float(line.split("others")[-1].split()[-1]) for line in many[1:-1])
    assert total == pytest.approx(float(many[-1].split()[1]), abs=5e-3)


def test_check_says_how_far_the_rows_missed(model: HookedGPT, cache: ActivationCache) -> None:
    parts = logit_attribution(model, cache)
    ((name, outcome),) = parts.checks()
    assert name == "largest miss of the model's logits, by block"
    assert outcome.startswith(f"{parts.completeness_error.max():.1e} logits")
    assert outcome.endswith("9 positions × 12 components")


def test_the_table_is_computed_once_and_handed_out_as_a_copy(
    model: HookedGPT, cache: ActivationCache
) -> None:
    parts = logit_attribution(model, cache)
    table = parts.to_frame()
    table["contribution"] = 0.0
    assert (parts.to_frame()["contribution"] != 0).any()
