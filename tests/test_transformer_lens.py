"""TransformerLens's own functions, run on the hooked model as they are."""

# mypy: disable-error-code="arg-type, operator, union-attr"

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import VARIANTS, assert_close, random_model, random_tokens, variant_id
from torch import Tensor
from transformer_lens import TransformerBridge, TransformerBridgeConfig, patching
from transformer_lens.head_detector import detect_head
from transformer_lens.model_protocol import TransformerLensModelWithWeights
from transformer_lens.tools.analysis.attribution_patching import cache_activation_and_gradient
from transformer_lens.utilities import lm_cross_entropy_loss

from interp import CacheError, ConfigError, HookedGPT, HookError
from interp.gpt.aliases import hook_aliases
from interp.hooks import HookPoint

each_variant = pytest.mark.parametrize("variant", VARIANTS, ids=variant_id)
each_preset = pytest.mark.parametrize("preset", ["all", "contributions"])


def close(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, atol=1e-11, rtol=0)


def metric(logits: Tensor) -> Any:
    return logits[:, -1, 2].mean() - logits[:, -1, 3].mean()


def cached(preset: str = "all", batch: int = 2, **variant: Any) -> Any:
    model = random_model(torch.float64, **variant).requires_grad_(requires_grad=False)
    logits, cache = model.run_with_cache(random_tokens(model, batch), names_filter=preset)
    return model, logits, cache


def test_the_model_fits_the_protocol() -> None:
    assert isinstance(random_model(), TransformerLensModelWithWeights)


@pytest.mark.parametrize("grad", [True, False])
def test_patching_the_residual_stream_is_a_loop_over_layers_and_positions(grad: bool) -> None:
    model = random_model()
    clean, corrupted = random_tokens(model, 2, 5, seed=1), random_tokens(model, 2, 5, seed=2)
    _, cache = model.run_with_cache(clean)
    expected = torch.zeros(2, 5)
    with torch.set_grad_enabled(grad):
        patched = patching.get_act_patch_resid_pre(model, corrupted, cache, metric)
        for layer in range(2):
            for pos in range(5):
                stream = cache["resid_pre", layer]

                def patch(x: Tensor, hook: HookPoint, pos: Any = pos, stream: Any = stream) -> Any:
                    return torch.cat((x[:, :pos], stream[:, pos : pos + 1], x[:, pos + 1 :]), 1)

                name = f"blocks.{layer}.hook_resid_pre"
                logits = model.run_with_hooks(corrupted, fwd_hooks=[(name, patch)])
                expected[layer, pos] = metric(logits)
    torch.testing.assert_close(patched, expected.detach(), atol=1e-6, rtol=0)
    assert (expected - metric(model(corrupted))).abs().max() > 1e-2


@pytest.mark.parametrize("grad", [True, False])
def test_patching_heads_is_a_loop_over_layers_and_heads(grad: bool) -> None:
    model = random_model()
    clean, corrupted = random_tokens(model, 2, 5, seed=1), random_tokens(model, 2, 5, seed=2)
    _, cache = model.run_with_cache(clean, names_filter="contributions")
    expected = torch.zeros(2, 4)
    with torch.set_grad_enabled(grad):
        patched = patching.get_act_patch_attn_head_out_all_pos(model, corrupted, cache, metric)
        for layer in range(2):
            for head in range(4):
                chosen = torch.arange(4)[:, None] == head
                z = cache["z", layer]

                def patch(x: Tensor, hook: HookPoint, chosen: Any = chosen, z: Any = z) -> Any:
                    return torch.where(chosen, z, x)

                name = f"blocks.{layer}.attn.hook_z"
                logits = model.run_with_hooks(corrupted, fwd_hooks=[(name, patch)])
                expected[layer, head] = metric(logits)
    torch.testing.assert_close(patched, expected.detach(), atol=1e-5, rtol=0)
    assert (expected - metric(model(corrupted))).abs().max() > 1e-2


@pytest.mark.parametrize("name", ["previous_token_head", "duplicate_token_head", "induction_head"])
def test_detected_heads_have_their_share_of_attention_on_the_pattern(name: Any) -> None:
    model = random_model()
    text = "abcabcab"
    scores = detect_head(model, text, name)
    _, cache = model.run_with_cache(text, remove_batch_dim=True)
    wanted = torch.zeros(8, 8)
    for t in range(8):
        for s in range(t):
            wanted[t, s] = {
                "previous_token_head": s == t - 1,
                "duplicate_token_head": text[s] == text[t],
                "induction_head": s > 0 and text[s - 1] == text[t],
            }[name]
    expected = torch.stack([(cache["pattern", layer] * wanted).sum((1, 2)) for layer in range(2)])
    torch.testing.assert_close(scores, expected / 8, atol=1e-6, rtol=0)


@each_variant
@each_preset
def test_decompose_resid_sums_to_the_stream(variant: dict[str, Any], preset: Any) -> None:
    _, _, cache = cached(preset, **variant)
    close(cache.decompose_resid().sum(0), cache["resid_post", -1])
    close(cache.decompose_resid(1).sum(0), cache["resid_pre", 1])
    parts, labels = cache.decompose_resid(1, mlp_input=True, return_labels=True)
    assert len(parts) == len(labels)
    assert labels[-1] == "1_attn_out"
    close(parts.sum(0), cache["resid_pre", 1] + cache["attn_out", 1])


@each_preset
def test_accumulated_resid_is_the_stream_at_each_layer(preset: Any) -> None:
    model, logits, cache = cached(preset)
    stack, labels = cache.accumulated_resid(incl_mid=True, return_labels=True)
    assert labels == ["0_pre", "0_mid", "1_pre", "1_mid", "final_post"]
    names = [("resid_pre", 0), ("resid_mid", 0), ("resid_pre", 1), ("resid_mid", 1),
             ("resid_post", 1)]  # fmt: skip
    for row, name in zip(stack, names, strict=True):
        close(row, cache[name])
    close(cache.accumulated_resid(apply_ln=True)[-1] @ model.W_U + model.b_U, logits)


@each_variant
@each_preset
def test_head_results_sum_to_what_attention_wrote(variant: dict[str, Any], preset: Any) -> None:
    model, _, cache = cached(preset, **variant)
    stack, labels = cache.stack_head_results(return_labels=True)
    assert labels == [f"L{layer}H{head}" for layer in range(2) for head in range(4)]
    for layer in range(2):
        rows = stack[4 * layer : 4 * layer + 4]
        close(rows.sum(0) + model.blocks[layer].attn.b_O, cache["attn_out", layer])
    remainder = cache.stack_head_results(incl_remainder=True)
    close(remainder.sum(0), cache["resid_post", -1])


@each_variant
@each_preset
@pytest.mark.parametrize("expand_neurons", [True, False])
def test_the_full_decomposition_sums_to_the_stream(
    variant: dict[str, Any], preset: Any, expand_neurons: bool
) -> None:
    _, _, cache = cached(preset, **variant)
    parts = cache.get_full_resid_decomposition(expand_neurons=expand_neurons)
    close(parts.sum(0), cache["resid_post", -1])
    before = cache.get_full_resid_decomposition(1, mlp_input=True, expand_neurons=expand_neurons)
    close(before.sum(0), cache["resid_pre", 1] + cache["attn_out", 1])


@each_preset
def test_neuron_results_sum_to_what_the_mlp_wrote(preset: Any) -> None:
    model, _, cache = cached(preset)
    stack, labels = cache.stack_neuron_results(-1, return_labels=True)
    assert len(stack) == len(labels) == 2 * 128
    for layer in range(2):
        rows = stack[128 * layer : 128 * layer + 128]
        close(rows.sum(0) + model.blocks[layer].mlp.b_out, cache["mlp_out", layer])
    remainder = cache.stack_neuron_results(-1, incl_remainder=True)
    close(remainder.sum(0), cache["resid_post", -1])


def constants(model: HookedGPT, like: Any) -> Any:
    """What the final LayerNorm's bias and b_U add to each logit."""
    total = torch.zeros_like(like[0, 0])
    if model.config.final_norm:
        total = total + model.ln_final.b @ model.W_U
    return total if model.b_U is None else total + model.b_U


@each_variant
@each_preset
def test_logit_attributions_and_the_constants_sum_to_the_logits(
    variant: dict[str, Any], preset: Any
) -> None:
    model, logits, cache = cached(preset, **variant)
    stack, extra = cache.decompose_resid(), constants(model, logits)
    for token in (0, 6):
        close(cache.logit_attrs(stack, token).sum(0) + extra[token], logits[..., token])
    close(cache.logit_attrs(stack, "c").sum(0) + extra[2], logits[..., 2])
    targets = random_tokens(model, seed=5)
    own = logits.gather(-1, targets[..., None])[..., 0]
    close(cache.logit_attrs(stack, targets).sum(0) + extra[targets], own)
    difference = logits[..., 1] - logits[..., 4] - extra[1] + extra[4]
    close(cache.logit_attrs(stack, 1, 4).sum(0), difference)
    heads = cache.get_full_resid_decomposition(expand_neurons=False)
    close(cache.logit_attrs(heads, 3).sum(0) + extra[3], logits[..., 3])


@pytest.mark.parametrize("final_norm", [True, False])
def test_logit_attributions_take_positions_and_sequences(final_norm: bool) -> None:
    model, _, cache = cached(batch=3, final_norm=final_norm)
    stack = cache.decompose_resid()
    whole = cache.logit_attrs(stack, 2)
    close(cache.logit_attrs(stack[:, :, -1], 2, pos_slice=-1), whole[:, :, -1])
    close(cache.logit_attrs(stack, 2, batch_slice=[0, 2]), whole[:, [0, 2]])
    assert torch.equal(model.tokens_to_residual_directions(2), model.W_U[:, 2])


def test_the_logit_lens_reads_the_stream_at_each_layer() -> None:
    model, logits, cache = cached()
    lens = cache.logit_lens()
    assert lens.labels == ["0_pre", "1_pre", "final_post"]
    rows = lens.readout.values  # at the last position
    assert_close(rows[-1], logits[:, -1])
    stream = model.ln_final.read(cache["resid_pre", 1][:, -1])
    assert_close(rows[1], stream @ model.W_U + model.b_U)


# ---- names that people type ----------------------------------------------------------------------


def bridge_of(model: HookedGPT) -> TransformerBridge:
    """TransformerLens's own model with this one's weights, which know nothing of our code."""
    cfg = model.config
    bridge = TransformerBridge.boot_native(
        TransformerBridgeConfig(
            d_model=cfg.d_model, d_head=cfg.d_head, n_layers=cfg.n_layers, n_ctx=cfg.n_ctx,
            n_heads=cfg.n_heads, d_vocab=cfg.d_vocab, d_mlp=cfg.d_mlp, act_fn="relu",
            normalization_type="LN",
        )
    )  # fmt: skip
    weights = {
        "tok_embed.weight": model.W_E,
        "pos.weight": model.W_pos,
        "ln_out.weight": model.ln_final.w,
        "ln_out.bias": model.ln_final.b,
        "head.weight": model.W_U.T,
    }
    for layer, block in enumerate(model.blocks):
        at, attn = f"layers.{layer}", block.attn
        for norm in ("ln1", "ln2"):
            weights[f"{at}.{norm}.weight"] = getattr(block, norm).w
            weights[f"{at}.{norm}.bias"] = getattr(block, norm).b
        for x in "QKV":
            weight, bias = getattr(attn, f"W_{x}"), getattr(attn, f"b_{x}")
            weights[f"{at}.attn.{x.lower()}.weight"] = weight.permute(0, 2, 1).flatten(0, 1)
            weights[f"{at}.attn.{x.lower()}.bias"] = bias.flatten()
        weights[f"{at}.attn.o.weight"] = attn.W_O.flatten(0, 1).T
        weights[f"{at}.attn.o.bias"] = attn.b_O
        weights[f"{at}.mlp.fc_in.weight"] = block.mlp.W_in.T
        weights[f"{at}.mlp.fc_in.bias"] = block.mlp.b_in
        weights[f"{at}.mlp.fc_out.weight"] = block.mlp.W_out.T
        weights[f"{at}.mlp.fc_out.bias"] = block.mlp.b_out
    parameters = {
        name.replace("._original_component", ""): p for name, p in bridge.named_parameters()
    }
    assert parameters.keys() == weights.keys()
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
    return bridge.eval()


def twins() -> tuple[HookedGPT, TransformerBridge]:
    model = random_model(qkv_bias=True, unembed_bias=False)
    return model.requires_grad_(requires_grad=False), bridge_of(model)


def shared_aliases(model: HookedGPT) -> dict[str, str]:
    """Those that this Bridge computes too: it has no copies of the stream for each head."""
    aliases = hook_aliases(model.config)
    return {alias: name for alias, name in aliases.items() if not alias.endswith("_input")}


def test_the_bridge_with_our_weights_is_our_model() -> None:
    model, bridge = twins()
    tokens = random_tokens(model)
    assert_close(model(tokens), bridge(tokens).detach())


@torch.no_grad()
def test_an_alias_is_the_activation_that_the_bridge_has_under_that_name() -> None:
    model, bridge = twins()
    tokens = random_tokens(model)
    aliases = shared_aliases(model)
    _, ours = model.run_with_cache(tokens, names_filter=list(aliases))
    _, theirs = bridge.run_with_cache(tokens)
    for alias, name in aliases.items():
        assert alias not in model.hook_dict
        assert alias in ours
        assert torch.equal(ours[alias], ours[name])
        assert_close(ours[alias], theirs[alias], alias)
    assert set(model.aliases) <= set(bridge.hook_dict)


@torch.no_grad()
def test_an_edit_by_an_alias_does_what_it_does_to_the_bridge() -> None:
    model, bridge = twins()
    tokens = random_tokens(model)
    clean = model(tokens)

    def edit(x: Tensor, hook: HookPoint) -> Any:
        return x + 0.3 * torch.rand(x.shape, generator=torch.Generator().manual_seed(0))

    for alias in shared_aliases(model):
        ours = model.run_with_hooks(tokens, fwd_hooks=[(alias, edit)])
        theirs = bridge.run_with_hooks(tokens, fwd_hooks=[(alias, edit)])
        assert (ours - clean).abs().max() > 1e-3, alias
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=0, msg=alias)


@each_variant
def test_aliases_are_of_hook_points_that_the_model_has(variant: dict[str, Any]) -> None:
    model = random_model(**variant)
    assert set(model.aliases.values()) <= set(model.hook_dict)
    assert not set(model.aliases) & set(model.hook_dict)
    name = "blocks.0.mlp.hook_out"
    assert (name in model.aliases) == (not model.config.attn_only)
    assert random_model(n_layers=0).aliases.keys() == {
        "embed.hook_out", "pos_embed.hook_out", "unembed.hook_out", "hook_unembed",
    }  # fmt: skip


def test_a_filter_function_is_shown_aliases_only_where_it_selects_no_name() -> None:
    model = random_model()
    wanted = "blocks.1.hook_out"  # as the Jacobian lens asks
    assert model.resolve_names(lambda name: name == wanted) == ["blocks.1.hook_resid_post"]
    in_attention = model.resolve_names(lambda name: name.startswith("blocks.0.attn."))
    assert all(name.startswith("blocks.0.attn.") for name in in_attention)
    _, cache = model.run_with_cache("abc", names_filter=lambda name: name == wanted)
    assert list(cache.keys()) == ["blocks.1.hook_resid_post"]
    assert cache[wanted].shape == (1, 3, 32)


def test_a_misspelt_alias_is_refused_with_the_nearest() -> None:
    model = random_model()
    with pytest.raises(HookError, match=r"did you mean .*blocks\.0\.mlp\.hook_out"):
        model.run_with_hooks("abc", fwd_hooks=[("blocks.0.mlp.hook_outt", lambda x, hook: None)])
    _, cache = model.run_with_cache("abc")
    assert "blocks.7.hook_out" not in cache
    with pytest.raises(CacheError):
        cache["blocks.7.hook_out"]
    with pytest.raises(HookError):
        model.run_with_cache("abc", names_filter="ln1.hook_out")


@torch.no_grad()
@pytest.mark.parametrize("component", ["q", "k", "v"])
def test_direct_path_patching_changes_what_one_head_reads(component: Any) -> None:
    model = random_model(torch.float64, qkv_bias=True)
    clean, corrupted = random_tokens(model, 2, 5, seed=1), random_tokens(model, 2, 5, seed=2)
    caches = [model.run_with_cache(tokens)[1] for tokens in (clean, corrupted)]
    patched = patching.get_act_patch_direct_path(  # type: ignore[call-arg, misc]
        model, corrupted, *caches, metric, 0, 2, component=component, verbose=False
    )
    written = [cache["z", 0][:, :, 2] @ model.blocks[0].attn.W_O[2] for cache in caches]
    stream = caches[1]["resid_pre", 1] + written[0] - written[1]
    read = model.blocks[1].ln1.read(stream)
    attn, letter = model.blocks[1].attn, component.upper()
    for head in range(4):
        new = read @ getattr(attn, f"W_{letter}")[head] + getattr(attn, f"b_{letter}")[head]

        def put(x: Tensor, hook: HookPoint, head: Any = head, new: Any = new) -> None:
            x[:, :, head] = new

        name = f"blocks.1.attn.hook_{component}"
        expected = metric(model.run_with_hooks(corrupted, fwd_hooks=[(name, put)]))
        assert patched[1, head].item() == pytest.approx(float(expected), abs=1e-6)
        assert abs(float(expected - metric(model(corrupted)))) > 1e-4


def test_activations_and_gradients_for_attribution_patching_are_the_caches() -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model)
    found = cache_activation_and_gradient(model, tokens, lambda x: model.loss_fn(x, tokens))
    _, cache = model.run_with_cache(tokens, return_type="loss", incl_bwd=True)
    assert len(found.activations) == 1 + 2 * 2
    for name, value in found.activations.items():
        close(value, cache[name])
        close(found.gradients[name], cache.cache_dict[f"{name}_grad"])


@torch.no_grad()
@pytest.mark.parametrize("name", ["W_E", "W_pos", "W_U", "W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K",
                                  "b_V", "b_O", "W_in", "b_in", "W_out", "b_out"])  # fmt: skip
def test_stacked_weights_are_the_bridges(name: str) -> None:
    model, bridge = twins()
    assert torch.equal(getattr(model, name), getattr(bridge, name))


def test_what_a_model_lacks_is_zeros_of_the_shape_it_would_have() -> None:
    model = random_model(d_mlp=0)
    for name in ("b_Q", "b_K", "b_V"):
        assert torch.equal(getattr(model, name), torch.zeros(2, 4, 8)), name
    assert torch.equal(model.b_out, torch.zeros(2, 32))
    assert [tuple(x.shape) for x in (model.W_in, model.b_in, model.W_out)] == [
        (2, 32, 0), (2, 0), (2, 0, 32),
    ]  # fmt: skip
    assert random_model(n_layers=0).W_Q.shape == (0, 4, 32, 8)


@torch.no_grad()
def test_circuits_composition_and_labels_are_the_bridges() -> None:
    model, bridge = twins()
    assert model.all_head_labels == bridge.all_head_labels
    for name in ("OV", "QK"):
        ours, theirs = getattr(model, name), getattr(bridge, name)
        assert ours.shape == theirs.shape == (2, 4, 32, 32)
        assert_close(ours.AB, theirs.AB)
    for mode in ("Q", "K", "V"):
        ours, theirs = model.all_composition_scores(mode), bridge.all_composition_scores(mode)
        assert ours.head_labels == theirs.head_labels
        assert_close(ours.scores, theirs.scores)


@torch.no_grad()
@pytest.mark.parametrize("mode", ["Q", "K", "V"])
def test_composition_is_the_norm_of_the_product_over_the_norms(mode: str) -> None:
    model = random_model(torch.float64)
    scores = model.all_composition_scores(mode).scores
    ov = torch.einsum("lhie,lhej->lhij", model.W_V, model.W_O)
    qk = torch.einsum("lhie,lhje->lhij", model.W_Q, model.W_K)
    reads = {"Q": qk, "K": qk.mT, "V": ov}[mode]
    for a in range(4):
        for b in range(4):
            sender, reader = ov[0, a], reads[1, b]
            expected = (sender @ reader).norm() / sender.norm() / reader.norm()
            close(scores[0, a, 1, b], expected)
    assert scores[1].abs().max() == scores[0, :, 0].abs().max() == 0


def test_an_unknown_mode_of_composition_is_refused() -> None:
    with pytest.raises(ConfigError, match="'R'"):
        random_model().all_composition_scores("R")
    with pytest.raises(ConfigError, match="blocks"):
        random_model(n_layers=0).all_composition_scores("V")


@pytest.mark.parametrize("per_token", [True, False])
def test_the_loss_function_is_transformerlenss(per_token: bool) -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model)
    logits = model(tokens)
    given = model.loss_fn(logits, tokens, per_token=per_token)
    assert_close(given, lm_cross_entropy_loss(logits, tokens, per_token=per_token))
