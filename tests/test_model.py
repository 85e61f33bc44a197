"""The forward pass: the textbook's function, causal, the same however it is looked at."""

# mypy: disable-error-code="union-attr"

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from conftest import N_CTX, assert_close, random_model, random_tokens
from helpers import each_dtype, each_variant, everything
from torch import Tensor
from torch.nn import functional as F

from interp import (
    CharTokenizer,
    ConfigError,
    GPTConfig,
    HookedGPT,
    TokenError,
    from_reference,
    hook_shapes,
    to_reference,
)  # fmt: skip
from interp.gpt import kernels


@each_variant
@each_dtype
def test_logits_are_the_textbooks(variant: dict[str, Any], dtype: torch.dtype) -> None:
    model = random_model(dtype, **variant)
    for pos in (1, 9, N_CTX):
        tokens = random_tokens(model, pos=pos)
        assert_close(model(tokens), to_reference(model)(tokens))


@each_variant
@each_dtype
def test_from_reference_gives_the_same_logits_and_the_same_weights_back(
    variant: dict[str, Any], dtype: torch.dtype
) -> None:
    reference = to_reference(random_model(dtype, **variant))
    model = from_reference(reference, CharTokenizer("abcdefg"))
    tokens = random_tokens(model)
    assert_close(model(tokens), reference(tokens))
    assert model.training == reference.training
    returned = to_reference(model).state_dict()
    assert returned.keys() == reference.state_dict().keys()
    assert all(torch.equal(returned[k], v) for k, v in reference.state_dict().items())


def test_a_model_without_blocks_is_the_textbooks() -> None:
    model = random_model(torch.float64, n_layers=0)
    tokens = random_tokens(model)
    assert_close(model(tokens), to_reference(model)(tokens))


def test_the_seed_decides_the_weights_and_the_global_generator_is_left_alone() -> None:
    cfg = GPTConfig(n_layers=2, n_heads=4, d_model=32, n_ctx=16, d_vocab=7)
    before = torch.random.get_rng_state()
    a, b, c = HookedGPT(cfg, seed=3), HookedGPT(cfg, seed=3), HookedGPT(cfg, seed=4)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    for name in ("embed.W_E", "pos_embed.W_pos", "blocks.1.attn.W_K", "blocks.0.mlp.W_out"):
        assert not torch.equal(a.get_parameter(name), c.get_parameter(name)), name


def test_initial_weights_have_the_documented_spread() -> None:
    cfg = GPTConfig(n_layers=2, n_heads=4, d_model=128, n_ctx=16, d_vocab=7)
    block = HookedGPT(cfg, seed=0).blocks[1]
    assert block.mlp.W_in.std().item() == pytest.approx(0.02, rel=0.05)
    for weight in (block.mlp.W_out, block.attn.W_O):
        assert weight.std().item() == pytest.approx(0.02 / math.sqrt(4), rel=0.05)
    assert torch.equal(block.ln1.w, torch.ones(128))
    for bias in (block.ln1.b, block.attn.b_O, block.mlp.b_in, block.mlp.b_out):
        assert torch.equal(bias, torch.zeros_like(bias))


def test_embeddings_may_start_with_a_spread_of_their_own() -> None:
    cfg = GPTConfig(n_layers=1, n_heads=4, d_model=128, n_ctx=64, d_vocab=65, embed_std=0.5)
    model = HookedGPT(cfg, seed=0)
    for name in ("embed.W_E", "pos_embed.W_pos"):
        assert model.get_parameter(name).std().item() == pytest.approx(0.5, rel=0.05), name
    for name in ("unembed.W_U", "blocks.0.attn.W_Q", "blocks.0.mlp.W_in"):
        assert model.get_parameter(name).std().item() == pytest.approx(0.02, rel=0.05), name


@each_variant
def test_hook_shapes_names_every_hook_with_the_shape_it_has(variant: dict[str, Any]) -> None:
    model = random_model(**variant)
    shapes = hook_shapes(model.config, batch=3, pos=5)
    assert set(shapes) == set(model.hook_dict)
    _, cache = model.run_with_cache(random_tokens(model, 3, 5), names_filter=everything)
    assert {name: tuple(value.shape) for name, value in cache.items()} == shapes


@each_variant
@each_dtype
def test_pattern_is_the_softmax_of_causally_masked_scores(
    variant: dict[str, Any], dtype: torch.dtype
) -> None:
    model = random_model(dtype, **variant)
    _, cache = model.run_with_cache(random_tokens(model), names_filter=everything)
    for layer in range(2):
        scores, pattern = cache["attn_scores", layer], cache["pattern", layer]
        future = torch.ones(9, 9, dtype=torch.bool).triu(1).expand_as(scores)
        assert torch.equal(scores == -torch.inf, future)
        assert torch.equal(pattern[future], torch.zeros_like(pattern[future]))
        assert_close(scores.softmax(-1), pattern)
        assert_close(pattern.sum(-1), torch.ones_like(pattern[..., 0]))
        scale = variant.get("attn_scale", math.sqrt(model.config.d_head))
        q, k = cache["q", layer], cache["k", layer]
        products = torch.einsum("bqhd,bkhd->bhqk", q, k) / scale
        assert_close(scores[~future], products[~future])


@each_variant
@each_dtype
def test_parts_sum_to_the_residual_stream(variant: dict[str, Any], dtype: torch.dtype) -> None:
    model = random_model(dtype, **variant)
    _, cache = model.run_with_cache(random_tokens(model), names_filter=everything)
    embeddings = cache["embed"] + (cache["pos_embed"] if model.config.positional else 0)
    assert_close(cache["resid_pre", 0], embeddings)
    for layer, block in enumerate(model.blocks):
        heads = cache["result", layer].sum(2) + block.attn.b_O
        assert_close(heads.detach(), cache["attn_out", layer])
        mid = cache["resid_pre", layer] + cache["attn_out", layer]
        if not model.config.attn_only:
            assert_close(mid, cache["resid_mid", layer])
            mid = cache["resid_mid", layer] + cache["mlp_out", layer]
        assert_close(mid, cache["resid_post", layer])


@each_variant
@pytest.mark.parametrize("way", ["fused", "everything", "pattern"])
def test_changing_a_token_leaves_all_earlier_logits_bitwise_the_same(
    variant: dict[str, Any], way: str
) -> None:
    model = random_model(**variant)

    @torch.no_grad()
    def run(tokens: Tensor) -> Any:
        if way == "fused":
            return model(tokens)
        names = everything if way == "everything" else None
        return model.run_with_cache(tokens, names_filter=names)[0]

    tokens = random_tokens(model)
    logits = run(tokens)
    for t in range(tokens.shape[1]):
        changed = tokens.clone()
        changed[:, t] = (changed[:, t] + 1) % model.config.d_vocab
        other = run(changed)
        assert torch.equal(other[:, :t], logits[:, :t]), t
        assert not torch.equal(other[:, t], logits[:, t]), t


@each_variant
@each_dtype
def test_attention_fused_and_written_out_agree(variant: dict[str, Any], dtype: torch.dtype) -> None:
    model = random_model(dtype, **variant)
    tokens = random_tokens(model)
    written, _ = model.run_with_cache(
        tokens, names_filter=[f"blocks.{layer}.attn.hook_attn_scores" for layer in range(2)]
    )
    assert_close(model(tokens), written)


@each_dtype
@pytest.mark.parametrize("per_piece", [1, 2, 100])
def test_attention_in_pieces_agrees_with_all_at_once(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, per_piece: int
) -> None:
    model = random_model(dtype)
    tokens = random_tokens(model, batch=5)
    names = ["blocks.0.attn.hook_pattern", "blocks.1.attn.hook_pattern"]
    whole_logits, whole = model.run_with_cache(tokens, names_filter=names)
    monkeypatch.setattr(kernels, "SCORES_IN_CACHE", per_piece * 4 * 9 * 9)
    with torch.no_grad():
        logits, cache = model.run_with_cache(tokens, names_filter=names)
    assert_close(logits, whole_logits.detach())
    for name in names:
        assert_close(cache[name], whole[name])


@each_dtype
def test_attention_scaled_by_zero_is_uniform(dtype: torch.dtype) -> None:
    model = random_model(dtype)
    with model.attn_scaled_by(0):
        fused = model(random_tokens(model))
        written, cache = model.run_with_cache(random_tokens(model), names_filter=everything)
    assert_close(fused, written)
    uniform = torch.ones(9, 9, dtype=dtype).tril() / torch.arange(1, 10, dtype=dtype)[:, None]
    for layer in range(2):
        pattern = cache["pattern", layer]
        torch.testing.assert_close(pattern, uniform.expand_as(pattern), atol=1e-7, rtol=0)


def test_attention_scaled_by_one_changes_nothing() -> None:
    model = random_model()
    tokens = random_tokens(model)
    clean = model(tokens)
    with model.attn_scaled_by(1):
        assert torch.equal(model(tokens), clean)


def test_attention_scaled_by_sqrt_d_head_is_attention_unscaled() -> None:
    model, unscaled = random_model(torch.float64), random_model(torch.float64, attn_scale=1.0)
    unscaled.load_state_dict(model.state_dict())
    tokens = random_tokens(model)
    with model.attn_scaled_by(math.sqrt(model.config.d_head)):
        assert_close(model(tokens), unscaled(tokens))
    assert (model(tokens) - unscaled(tokens)).abs().max() > 1e-3


def test_attention_is_scaled_per_layer_and_head() -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model)
    _, clean = model.run_with_cache(tokens)
    multiplier = torch.ones(2, 4)
    multiplier[1, 2] = 0
    with model.attn_scaled_by(multiplier):
        _, cache = model.run_with_cache(tokens)
    assert_close(cache["pattern", 0], clean["pattern", 0])
    others = [0, 1, 3]
    assert_close(cache["pattern", 1][:, others], clean["pattern", 1][:, others])
    last_row = cache["pattern", 1][:, 2, -1]
    assert_close(last_row, torch.full_like(last_row, 1 / 9))


def test_attention_scaling_is_restored_after_an_exception_and_nests() -> None:
    model = random_model()
    tokens = random_tokens(model)
    clean = model(tokens)
    with pytest.raises(ZeroDivisionError), model.attn_scaled_by(0):
        raise ZeroDivisionError
    assert torch.equal(model(tokens), clean)
    with model.attn_scaled_by(0):
        uniform = model(tokens)
        with model.attn_scaled_by(2):
            assert not torch.equal(model(tokens), uniform)
        assert torch.equal(model(tokens), uniform)


def test_the_loss_is_the_mean_cross_entropy_of_the_next_token() -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model)
    logits, loss = model(tokens, "both")
    log_p = F.log_softmax(logits, -1)
    expected = -torch.stack([log_p[b, t, tokens[b, t + 1]] for b in range(2) for t in range(8)])
    assert_close(loss, expected.mean())
    assert_close(model(tokens, "loss", loss_per_token=True), expected.view(2, 8))
    assert model(tokens, return_type=None) is None


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int16])
def test_any_integer_type_of_tokens_does(dtype: torch.dtype) -> None:
    model = random_model()
    tokens = random_tokens(model)
    assert torch.equal(model(tokens.to(dtype)), model(tokens))
    assert torch.equal(model(tokens.to(dtype), "loss"), model(tokens, "loss"))


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_run_can_stop_before_a_block_and_start_there_again(layer: int) -> None:
    model = random_model()
    tokens = random_tokens(model)
    residual = model(tokens, stop_at_layer=layer)
    assert residual.shape == (2, 9, 32)
    assert torch.equal(model(residual, start_at_layer=layer), model(tokens))


def test_dropout_is_for_training_only_and_the_cached_pattern_is_before_it() -> None:
    model = random_model(torch.float64, dropout=0.5)
    tokens = random_tokens(model)
    assert_close(model(tokens), to_reference(model)(tokens))
    model.train()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        _, cache = model.run_with_cache(tokens)
        assert not torch.equal(model(tokens), model(tokens))
    pattern = cache["pattern", 0]
    assert_close(pattern.sum(-1), torch.ones_like(pattern[..., 0]))
    assert_close(cache["resid_mid", 1] + cache["mlp_out", 1], cache["resid_post", 1])


def test_text_and_tokens_are_the_same_input() -> None:
    model = random_model()
    tokens = torch.tensor([[0, 2, 6]])
    for given in ("acg", ["acg"], tokens, tokens[0]):
        assert torch.equal(model(given), model(tokens))
    assert model.to_string(tokens[0]) == "acg"
    assert model.to_str_tokens("acg") == ["a", "c", "g"]
    assert model.to_single_token("g") == 6


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "at least one"),
        ([], "length"),
        (["ab", "a"], "one length"),
        ("a" * 17, "n_ctx = 16"),
        (torch.zeros(1, 17, dtype=torch.long), "n_ctx = 16"),
        (torch.tensor([7]), "outside 0 … 6"),
        (torch.tensor([-1]), "outside 0 … 6"),
        (torch.tensor([0.0]), "integer"),
        (torch.zeros(1, 1, 1, dtype=torch.long), "shape"),
        (torch.zeros(1, 0, dtype=torch.long), "at least one"),
        ("axbyx", "'x' at 1, 4; 'y' at 3"),
    ],
)
def test_input_that_does_not_fit_is_refused(given: Any, said: str) -> None:
    with pytest.raises(TokenError) as error:
        random_model()(given)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_text_without_a_tokenizer_is_refused() -> None:
    model = HookedGPT(random_model().config)
    with pytest.raises(TokenError, match="tokenizer"):
        model("abc")


def test_a_tokenizer_of_another_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="7"):
        HookedGPT(random_model().config, CharTokenizer("abc"))
