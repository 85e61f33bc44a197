"""The cache: what it rebuilds is what the run had, and what it cannot vouch for it refuses."""

# mypy: disable-error-code="arg-type, call-overload, union-attr"

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from conftest import assert_close, random_model, random_tokens
from helpers import each_dtype, each_variant, everything
from torch import Tensor

from interp import ActivationCache, CacheError, HookedGPT, HookError, TokenError, cache_bytes


@each_variant
@each_dtype
@pytest.mark.parametrize("preset", [None, "all", "contributions"])
@pytest.mark.parametrize("grad", [True, False])
def test_rebuilt_values_are_those_the_run_had(
    variant: dict[str, Any], dtype: torch.dtype, preset: str | None, grad: bool
) -> None:
    model = random_model(dtype, **variant)
    tokens = random_tokens(model)
    with torch.set_grad_enabled(grad):
        logits, cache = model.run_with_cache(tokens, names_filter=preset)
        _, recorded = model.run_with_cache(tokens, names_filter=everything)
    assert torch.equal(cache["hook_logits"], logits)
    for name in model.hook_dict:
        assert_close(cache[name], recorded[name], name)
        assert not cache[name].requires_grad, name


@pytest.mark.parametrize("preset", ["all", "contributions"])
def test_rebuilt_values_are_those_the_run_had_without_a_batch_axis(preset: str) -> None:
    model = random_model(torch.float64)
    _, cache = model.run_with_cache("abcde", names_filter=preset, remove_batch_dim=True)
    _, recorded = model.run_with_cache("abcde", names_filter=everything)
    for name in model.hook_dict:
        assert_close(cache[name], recorded[name][0], name)


def test_a_cache_of_a_model_without_blocks_is_complete() -> None:
    model = random_model(torch.float64, n_layers=0)
    tokens = random_tokens(model)
    _, cache = model.run_with_cache(tokens)
    _, recorded = model.run_with_cache(tokens, names_filter=everything)
    assert set(cache.keys()) == set(model.hook_dict)
    for name in model.hook_dict:
        assert_close(cache[name], recorded[name], name)


def test_keys_are_every_name_but_the_expanded_ones() -> None:
    model = random_model()
    _, cache = model.run_with_cache("abc")
    left_out = set(model.hook_dict) - set(cache.keys())
    kinds = {name.rsplit(".", 1)[-1] for name in left_out}
    assert kinds == {"hook_result", "hook_q_input", "hook_k_input", "hook_v_input"}
    assert len(cache) == len(list(cache)) == len(list(cache.values())) == len(cache.keys())
    assert all(name in cache for name in model.hook_dict)
    assert ("result", 1) in cache
    assert ("z", 5) not in cache


def test_short_names_and_negative_layers() -> None:
    model = random_model()
    _, cache = model.run_with_cache("abc", names_filter=everything)
    for short, name in {
        ("z", 1): "blocks.1.attn.hook_z",
        ("z", -1): "blocks.1.attn.hook_z",
        ("pattern", -2): "blocks.0.attn.hook_pattern",
        ("resid_post", -1): "blocks.1.hook_resid_post",
        ("post", 0): "blocks.0.mlp.hook_post",
        ("scale", 0, "ln2"): "blocks.0.ln2.hook_scale",
        ("normalized", -1, "ln1"): "blocks.1.ln1.hook_normalized",
        "scale": "ln_final.hook_scale",
        "embed": "hook_embed",
        "logits": "hook_logits",
    }.items():
        assert torch.equal(cache[short], cache[name]), short


@pytest.mark.parametrize("key", [("z", 2), ("z", -3), "hook_embde", "blocks.0.attn.hook_zz"])
def test_an_absent_activation_is_refused(key: Any) -> None:
    _, cache = random_model().run_with_cache("abc")
    with pytest.raises(CacheError) as error:
        cache[key]
    assert "\n" not in str(error.value)


def test_an_absent_activation_is_refused_with_the_nearest_name() -> None:
    _, cache = random_model().run_with_cache("abc", names_filter=["hook_embed", "hook_logits"])
    assert list(cache.keys()) == ["hook_embed", "hook_logits"]
    with pytest.raises(CacheError, match="did you mean 'hook_embed'"):
        cache["hook_pos_embed"]


def test_a_preset_keeps_what_it_says() -> None:
    model = random_model()
    _, attention = model.run_with_cache("abc", names_filter="attention")
    assert {name.rsplit(".", 1)[-1] for name in attention} == {
        "hook_q", "hook_k", "hook_v", "hook_z", "hook_attn_scores", "hook_pattern",
    }  # fmt: skip
    _, residual = model.run_with_cache("abc", names_filter="residual")
    assert_close(residual["resid_pre", 1] + residual["attn_out", 1], residual["resid_mid", 1])


def test_an_activation_edited_in_place_is_refused() -> None:
    _, cache = random_model().run_with_cache("abc", names_filter=everything)
    for name in ("blocks.0.hook_attn_out", "blocks.1.attn.hook_pattern", "hook_logits"):
        cache[name].mul_(2)
        with pytest.raises(CacheError, match="edited in place"):
            cache[name]
    assert cache["hook_embed"].shape == (1, 3, 32)


@pytest.mark.parametrize(
    "through",
    [
        lambda cache: cache.to("cpu"),
        lambda cache: cache.remove_batch_dim(),
        lambda cache: cache.apply_slice_to_batch_dim([0]),
    ],
    ids=["to", "remove_batch_dim", "apply_slice_to_batch_dim"],
)
def test_an_edit_in_place_is_refused_also_through_a_changed_cache(through: Any) -> None:
    _, cache = random_model().run_with_cache("abc")
    cache["attn_out", 0].mul_(2)
    with pytest.raises(CacheError, match="edited in place"):
        through(cache)["attn_out", 0]


def test_what_depends_on_an_edited_activation_is_refused() -> None:
    _, cache = random_model().run_with_cache("abc", names_filter="contributions")
    cache["attn_out", 0].mul_(2)
    with pytest.raises(CacheError, match="edited in place"):
        cache["resid_post", 1]


@pytest.mark.parametrize("parameter", ["blocks.0.attn.W_Q", "blocks.1.mlp.b_in", "embed.W_E"])
def test_nothing_is_rebuilt_from_weights_that_changed(parameter: str) -> None:
    model = random_model()
    _, cache = model.run_with_cache("abc", names_filter="contributions")
    kept = cache["pattern", 0].clone()
    with torch.no_grad():
        model.get_parameter(parameter).add_(1.0)
    for key in (("q", 0), ("pre", 1), ("result", 0)):
        with pytest.raises(CacheError, match="changed after the run"):
            cache[key]
    assert torch.equal(cache["pattern", 0], kept)


def test_nothing_is_rebuilt_after_the_model_moved_to_another_dtype() -> None:
    model = random_model()
    _, cache = model.run_with_cache("abc", names_filter="contributions")
    model.double()
    with pytest.raises(CacheError, match="changed after the run"):
        cache["q", 0]


def test_rebuilding_ignores_scaling_and_hooks_of_the_moment() -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model)
    _, cache = model.run_with_cache(tokens)
    _, recorded = model.run_with_cache(tokens, names_filter=everything)
    with model.attn_scaled_by(0), model.hooks([(everything, lambda x, hook: x * 0)]):
        for name in model.hook_dict:
            assert_close(cache[name], recorded[name], name)


@pytest.mark.parametrize("preset", [None, "contributions"])
@pytest.mark.parametrize("name", ["blocks.0.hook_resid_post", "blocks.0.attn.hook_pattern",
                                  "blocks.1.hook_mlp_in", "blocks.0.attn.hook_q"])  # fmt: skip
def test_a_cache_under_somebodys_hook_holds_what_that_run_had(
    preset: str | None, name: str
) -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model)
    with model.hooks([(name, lambda x, hook: x * 0.5)]):
        _, cache = model.run_with_cache(tokens, names_filter=preset)
        _, recorded = model.run_with_cache(tokens, names_filter=everything)
    for key in cache:
        assert_close(cache[key], recorded[key], key)
    with pytest.raises(CacheError):
        cache["result", 0]
    if preset is None:
        assert len(cache) == len(model.run_with_cache(tokens)[1])


def test_a_cache_of_scaled_attention_holds_what_that_run_had() -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model)
    with model.attn_scaled_by(3):
        _, cache = model.run_with_cache(tokens)
        _, recorded = model.run_with_cache(tokens, names_filter=everything)
    for key in cache:
        assert_close(cache[key], recorded[key], key)


def test_head_results_of_an_edited_run_are_not_made_up() -> None:
    model = random_model(torch.float64)
    with model.hooks([("blocks.0.attn.hook_result", lambda x, hook: x * 0)]):
        _, cache = model.run_with_cache("abcd")
    try:
        stack = cache.stack_head_results()
    except CacheError:
        return
    assert stack[:4].abs().max() == 0


@pytest.mark.parametrize("pos_slice", [2, -1, slice(1, 4), [0, 3], (1, 3)])
def test_positions_can_be_sliced(pos_slice: Any) -> None:
    model = random_model()
    tokens = random_tokens(model)
    _, full = model.run_with_cache(tokens, names_filter=everything)
    _, sliced = model.run_with_cache(tokens, names_filter=everything, pos_slice=pos_slice)
    index = slice(*pos_slice) if isinstance(pos_slice, tuple) else pos_slice
    index = [index] if isinstance(index, int) else index
    per_head = {f"hook_{x}" for x in ("q", "k", "v", "z", "result")}
    per_head |= {f"hook_{x}_input" for x in "qkv"}
    for name in model.hook_dict:
        kind, value = name.rsplit(".", 1)[-1], full[name]
        if kind in ("hook_attn_scores", "hook_pattern"):
            expected = value[:, :, index]
        else:
            assert value.ndim == (4 if kind in per_head else 3)
            expected = value[:, index]
        assert torch.equal(sliced[name], expected), name


def test_the_batch_axis_can_be_removed_only_when_it_is_one() -> None:
    model = random_model()
    logits, cache = model.run_with_cache("abc", remove_batch_dim=True)
    assert logits.shape == (1, 3, 7)
    assert cache["resid_post", -1].shape == (3, 32)
    assert cache["result", 0].shape == (3, 4, 32)
    with pytest.raises(TokenError, match="batch of 1"):
        model.run_with_cache(["abc", "abd"], remove_batch_dim=True)
    with pytest.raises(CacheError, match="2"):
        model.run_with_cache(["abc", "abd"])[1].remove_batch_dim()


def test_some_sequences_can_be_taken_from_a_cache() -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model, batch=4)
    _, cache = model.run_with_cache(tokens)
    some = cache.apply_slice_to_batch_dim([1, 3])
    assert torch.equal(some.tokens, tokens[[1, 3]])
    for name in model.hook_dict:
        assert_close(some[name], cache[name][[1, 3]], name)


def test_the_device_and_the_plain_dict() -> None:
    model = random_model()
    logits, cache = model.run_with_cache("abc", device="meta", names_filter=["hook_embed"])
    assert cache["hook_embed"].device.type == "meta"
    assert logits.device.type == "cpu"
    _, plain = model.run_with_cache("abc", names_filter="hook_embed", return_cache_object=False)
    assert type(plain) is dict
    assert list(plain) == ["hook_embed"]


def explicit_gradient(model: HookedGPT, tokens: Tensor, name: Any) -> Any:
    """The gradient of the loss to a zero added to one activation."""
    _, cache = model.run_with_cache(tokens, names_filter=name)
    zero = torch.zeros_like(cache[name], requires_grad=True)
    with torch.enable_grad():
        loss = model.run_with_hooks(
            tokens, return_type="loss", fwd_hooks=[(name, lambda x, hook: x + zero)]
        )
    return torch.autograd.grad(loss, zero)[0]


def wrong_gradients(model: HookedGPT, tokens: Tensor, cache: ActivationCache, names: Any) -> Any:
    """The names whose cached gradient is absent or another than autograd's."""
    wrong = []
    for name in names:
        expected = explicit_gradient(model, tokens, name)
        given = cache.cache_dict.get(f"{name}_grad")
        if given is None or not torch.allclose(given, expected, atol=1e-12, rtol=0):
            wrong.append(name)
    return wrong


WITH_GRADIENTS = {"return_type": "loss", "incl_bwd": True}


@each_variant
@pytest.mark.parametrize("grad", [True, False])
def test_cached_gradients_are_autograds(variant: dict[str, Any], grad: bool) -> None:
    model = random_model(torch.float64, **variant)
    tokens = random_tokens(model)
    with torch.set_grad_enabled(grad):
        loss, cache = model.run_with_cache(tokens, **WITH_GRADIENTS)
    assert_close(loss.detach(), model(tokens, "loss").detach())
    names = [name for name in cache if not name.endswith("_grad")]
    assert len(names) > 20
    assert wrong_gradients(model, tokens, cache, names) == []
    assert all(p.grad is None for p in model.parameters())


@each_variant
def test_cached_gradients_are_autograds_when_everything_is_kept(variant: dict[str, Any]) -> None:
    model = random_model(torch.float64, **variant)
    tokens = random_tokens(model)
    _, cache = model.run_with_cache(tokens, names_filter=everything, **WITH_GRADIENTS)
    assert wrong_gradients(model, tokens, cache, model.hook_dict) == []


@pytest.mark.parametrize("kind", ["hook_scale", "hook_normalized", "hook_result", "hook_q_input",
                                  "hook_attn_scores", "hook_mlp_in", "hook_resid_mid"])  # fmt: skip
def test_cached_gradients_are_autograds_when_one_kind_is_kept(kind: str) -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model)
    names = [name for name in model.hook_dict if name.endswith(kind)]
    _, cache = model.run_with_cache(tokens, names_filter=names, **WITH_GRADIENTS)
    assert wrong_gradients(model, tokens, cache, names) == []


def test_gradients_need_a_loss() -> None:
    with pytest.raises(HookError, match="loss"):
        random_model().run_with_cache("abc", incl_bwd=True)


@each_variant
@each_dtype
@pytest.mark.parametrize("grad", [True, False])
def test_cache_bytes_foretells_the_memory_of_a_cache(
    variant: dict[str, Any], dtype: torch.dtype, grad: bool
) -> None:
    model = random_model(dtype, **variant)
    tokens = random_tokens(model, batch=3)
    size = dtype.itemsize
    with torch.set_grad_enabled(grad):
        for preset in ("contributions", "all", "residual", "attention"):
            _, cache = model.run_with_cache(tokens, names_filter=preset)
            told = cache_bytes(model.config, 3, 9, preset, bytes_per_number=size)
            rel = 0.0 if preset == "contributions" else 0.03
            assert cache.nbytes == pytest.approx(told, rel=rel, abs=0), preset


@each_variant
def test_contributions_are_smaller_than_all(variant: dict[str, Any]) -> None:
    model = random_model(**variant)
    tokens = random_tokens(model)
    _, small = model.run_with_cache(tokens, names_filter="contributions")
    _, large = model.run_with_cache(tokens)
    assert small.nbytes < large.nbytes
    assert set(small.keys()) == set(large.keys())


def test_a_filtered_cache_keeps_no_more_than_it_shows() -> None:
    model = random_model()
    name = "blocks.0.attn.hook_k"
    _, cache = model.run_with_cache("abcd", names_filter=name)
    assert cache.nbytes == cache[name].numel() * 4
    assert repr(cache).startswith("ActivationCache(1 activations, 1 in memory")


@pytest.mark.parametrize("incl_bwd", [False, True])
def test_a_model_and_its_cache_are_freed_without_the_garbage_collector(incl_bwd: bool) -> None:
    model = random_model()
    gc.collect()
    gc.disable()
    try:
        _, cache = model.run_with_cache("abc", return_type="loss", incl_bwd=incl_bwd)
        model.run_with_hooks("abc", fwd_hooks=[("hook_embed", lambda x, hook: x + 1)])
        with model.attn_scaled_by(2):
            model("abc")
        assert isinstance(cache, ActivationCache)
        tensor = weakref.ref(next(iter(cache.cache_dict.values())))
        watched = weakref.ref(model)
        del model, cache, _
        assert watched() is None
        assert tensor() is None
    finally:
        gc.enable()
