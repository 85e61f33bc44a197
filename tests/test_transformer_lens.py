"""TransformerLens's own functions, run on the hooked model as they are."""

from __future__ import annotations

import pytest
import torch
from conftest import VARIANTS, assert_close, random_model, random_tokens, variant_id
from transformer_lens import patching
from transformer_lens.head_detector import detect_head
from transformer_lens.model_protocol import TransformerLensModelWithWeights

each_variant = pytest.mark.parametrize("variant", VARIANTS, ids=variant_id)
each_preset = pytest.mark.parametrize("preset", ["all", "contributions"])


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-11, rtol=0)


def metric(logits):
    return logits[:, -1, 2].mean() - logits[:, -1, 3].mean()


def cached(preset="all", batch=2, **variant):
    model = random_model(torch.float64, **variant).requires_grad_(requires_grad=False)
    logits, cache = model.run_with_cache(random_tokens(model, batch), names_filter=preset)
    return model, logits, cache


def test_the_model_fits_the_protocol():
    assert isinstance(random_model(), TransformerLensModelWithWeights)


@pytest.mark.parametrize("grad", [True, False])
def test_patching_the_residual_stream_is_a_loop_over_layers_and_positions(grad):
    model = random_model()
    clean, corrupted = random_tokens(model, 2, 5, seed=1), random_tokens(model, 2, 5, seed=2)
    _, cache = model.run_with_cache(clean)
    expected = torch.zeros(2, 5)
    with torch.set_grad_enabled(grad):
        patched = patching.get_act_patch_resid_pre(model, corrupted, cache, metric)
        for layer in range(2):
            for pos in range(5):
                stream = cache["resid_pre", layer]

                def patch(x, hook, pos=pos, stream=stream):
                    return torch.cat((x[:, :pos], stream[:, pos : pos + 1], x[:, pos + 1 :]), 1)

                name = f"blocks.{layer}.hook_resid_pre"
                logits = model.run_with_hooks(corrupted, fwd_hooks=[(name, patch)])
                expected[layer, pos] = metric(logits)
    torch.testing.assert_close(patched, expected.detach(), atol=1e-6, rtol=0)
    assert (expected - metric(model(corrupted))).abs().max() > 1e-2


@pytest.mark.parametrize("grad", [True, False])
def test_patching_heads_is_a_loop_over_layers_and_heads(grad):
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

                def patch(x, hook, chosen=chosen, z=z):
                    return torch.where(chosen, z, x)

                name = f"blocks.{layer}.attn.hook_z"
                logits = model.run_with_hooks(corrupted, fwd_hooks=[(name, patch)])
                expected[layer, head] = metric(logits)
    torch.testing.assert_close(patched, expected.detach(), atol=1e-5, rtol=0)
    assert (expected - metric(model(corrupted))).abs().max() > 1e-2


@pytest.mark.parametrize("name", ["previous_token_head", "duplicate_token_head", "induction_head"])
def test_detected_heads_have_their_share_of_attention_on_the_pattern(name):
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
def test_decompose_resid_sums_to_the_stream(variant, preset):
    _, _, cache = cached(preset, **variant)
    close(cache.decompose_resid().sum(0), cache["resid_post", -1])
    close(cache.decompose_resid(1).sum(0), cache["resid_pre", 1])
    parts, labels = cache.decompose_resid(1, mlp_input=True, return_labels=True)
    assert len(parts) == len(labels)
    assert labels[-1] == "1_attn_out"
    close(parts.sum(0), cache["resid_pre", 1] + cache["attn_out", 1])


@each_preset
def test_accumulated_resid_is_the_stream_at_each_layer(preset):
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
def test_head_results_sum_to_what_attention_wrote(variant, preset):
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
def test_the_full_decomposition_sums_to_the_stream(variant, preset, expand_neurons):
    _, _, cache = cached(preset, **variant)
    parts = cache.get_full_resid_decomposition(expand_neurons=expand_neurons)
    close(parts.sum(0), cache["resid_post", -1])
    before = cache.get_full_resid_decomposition(1, mlp_input=True, expand_neurons=expand_neurons)
    close(before.sum(0), cache["resid_pre", 1] + cache["attn_out", 1])


@each_preset
def test_neuron_results_sum_to_what_the_mlp_wrote(preset):
    model, _, cache = cached(preset)
    stack, labels = cache.stack_neuron_results(-1, return_labels=True)
    assert len(stack) == len(labels) == 2 * 128
    for layer in range(2):
        rows = stack[128 * layer : 128 * layer + 128]
        close(rows.sum(0) + model.blocks[layer].mlp.b_out, cache["mlp_out", layer])
    remainder = cache.stack_neuron_results(-1, incl_remainder=True)
    close(remainder.sum(0), cache["resid_post", -1])


def constants(model, like):
    """What the final LayerNorm's bias and b_U add to each logit."""
    total = torch.zeros_like(like[0, 0])
    if model.config.final_norm:
        total = total + model.ln_final.b @ model.W_U
    return total if model.b_U is None else total + model.b_U


@each_variant
@each_preset
def test_logit_attributions_and_the_constants_sum_to_the_logits(variant, preset):
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
def test_logit_attributions_take_positions_and_sequences(final_norm):
    model, _, cache = cached(batch=3, final_norm=final_norm)
    stack = cache.decompose_resid()
    whole = cache.logit_attrs(stack, 2)
    close(cache.logit_attrs(stack[:, :, -1], 2, pos_slice=-1), whole[:, :, -1])
    close(cache.logit_attrs(stack, 2, batch_slice=[0, 2]), whole[:, [0, 2]])
    assert torch.equal(model.tokens_to_residual_directions(2), model.W_U[:, 2])


def test_the_logit_lens_reads_the_stream_at_each_layer():
    model, logits, cache = cached()
    lens = cache.logit_lens()
    assert lens.labels == ["0_pre", "1_pre", "final_post"]
    rows = lens.readout.values  # at the last position
    assert_close(rows[-1], logits[:, -1])
    stream = model.ln_final.read(cache["resid_pre", 1][:, -1])
    assert_close(rows[1], stream @ model.W_U + model.b_U)
