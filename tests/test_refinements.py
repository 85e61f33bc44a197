# mypy: disable-error-code="arg-type, index, operator, union-attr"
from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import (
    N_CTX,
    TOLERANCE,
    VARIANTS,
    assert_close,
    random_model,
    random_tokens,
    variant_id,
)
from hypothesis import given, settings, strategies as st
from torch import Tensor

from interp import (
    ActivationCache,
    CacheError,
    CompletenessError,
    ConfigError,
    HookedGPT,
    TokenError,
    logit_attribution,
    stream_attribution,
)
from interp.hooks import HookPoint
from interp.stream.components import component, components
from interp.stream.metric import make_metric

ALL_VARIANTS = [*VARIANTS, {"n_layers": 0}]
REFINEMENTS = ["head", "source", "neuron"]
METRICS = ["centered", "foil", "probability", "raw"]
MEASURES = [*METRICS, "log_prob", "loss", "kl"]
FOIL = 3
unchecked = inspect.unwrap(stream_attribution)


@pytest.fixture
def model() -> HookedGPT:
    return random_model(torch.float64)


@pytest.fixture
def cache(model: HookedGPT) -> ActivationCache:
    return model.run_with_cache(random_tokens(model))[1]


def foils_of(metric: Any) -> Any:
    return {"foils": FOIL} if metric == "foil" else {}


def definition(metric: Any, logits: Tensor, own: Any, y: Any) -> Any:
    """One metric of one position: `logits` [d_vocab], those of the run as it was, the target."""
    log_p, log_own = (x - np.log(np.exp(x).sum()) for x in (logits, own))
    return {
        "raw": logits[y],
        "centered": logits[y] - logits.mean(),
        "foil": logits[y] - logits[FOIL],
        "probability": logits[y] - np.exp(log_own) @ logits,
        "log_prob": log_p[y],
        "loss": -log_p[y],
        "kl": -(np.exp(log_own) @ (log_own - log_p)),
    }[metric]


def defined(metric: Any, logits: Tensor, own: Any, targets: Any) -> Any:
    """The definition at every position of [..., batch, pos, d_vocab]."""
    logits, own = logits.detach().double().numpy(), own.detach().double().numpy()  # type: ignore[assignment]
    out = np.empty((*logits.shape[:-2], targets.shape[1]))
    for at in np.ndindex(out.shape):
        out[at] = definition(metric, logits[at], own[at[-2:]], int(targets[at[-2:]]))
    return out


def with_tensor(cache: ActivationCache, name: Any, value: Any) -> Any:
    """A cache like `cache` but for one tensor."""
    values = dict(cache.cache_dict) | {name: value}
    return ActivationCache(values, cache.model, tokens=cache.tokens, rebuilds=cache.rebuilds)


def nudged(value: Any) -> Any:
    """A tensor with one number changed: of the last sequence, early enough to be seen later."""
    value = value.clone()
    value[(-1,) + (0,) * (value.ndim - 1)] += 0.1
    return value


def parent(label: Any) -> Any:
    """The component that a row of a refinement is a part of."""
    layer, _, rest = label.partition(".")
    return {"H": f"{layer}.attn", "N": f"{layer}.mlp"}.get(rest[:1], label)


def grouped(parts: Any, key: Any) -> Any:
    """The rows summed by what `key` makes of their labels."""
    sums = {}  # type: ignore[var-annotated]
    for label, row in zip(parts.components, parts.values, strict=True):
        sums[key(label)] = sums.get(key(label), 0) + row
    return sums


# ---- every refinement of the logits --------------------------------------------------------------


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("variant", ALL_VARIANTS, ids=variant_id)
def test_rows_sum_to_the_scalar(variant: dict[str, Any], dtype: torch.dtype) -> None:
    model = random_model(dtype, **variant)
    tokens = random_tokens(model)
    logits, cache = model.run_with_cache(tokens)
    for metric in METRICS:
        targets = torch.cat((tokens[:, 1:], logits[:, -1:].argmax(-1)), dim=1)
        expected = defined(metric, logits, logits, targets)
        for by in REFINEMENTS:
            parts = logit_attribution(model, cache, by, metric=metric, **foils_of(metric))
            tolerance = TOLERANCE[dtype] * (1 + np.abs(parts.values).sum(0))
            assert (np.abs(parts.values.sum(0) - expected) <= tolerance).all()
            assert (np.abs(parts.total - expected) <= tolerance).all()
            np.testing.assert_allclose(parts.tolerance, tolerance, rtol=1e-4)


@settings(deadline=None, max_examples=30)
@given(
    batch=st.integers(1, 3), pos=st.integers(1, N_CTX), asked=st.integers(1, N_CTX),
    n_layers=st.integers(0, 3), n_heads=st.integers(1, 4), d_head=st.integers(1, 6),
    d_mlp=st.integers(0, 9), qkv_bias=st.booleans(), dtype=st.sampled_from(list(TOLERANCE)),
    metric=st.sampled_from(METRICS), by=st.sampled_from(REFINEMENTS), seed=st.integers(0, 100),
    names=st.sampled_from(["all", "contributions"]),
)  # fmt: skip
def test_rows_sum_for_any_shape(
    batch: int,
    pos: int,
    asked: int,
    n_layers: int,
    n_heads: int,
    d_head: int,
    d_mlp: int,
    qkv_bias: bool,
    dtype: Any,
    metric: Any,
    by: Any,
    seed: int,
    names: Any,
) -> None:
    model = random_model(
        dtype, seed, n_layers=n_layers, n_heads=n_heads, d_head=d_head, d_mlp=d_mlp,
        qkv_bias=qkv_bias, d_model=12,
    )  # fmt: skip
    tokens = random_tokens(model, batch, pos, seed)
    n = min(asked, pos)
    targets = random_tokens(model, batch, n, seed + 1)
    logits, cache = model.run_with_cache(tokens, names_filter=names)
    parts = logit_attribution(
        model, cache, by, metric=metric, targets=targets, **foils_of(metric)
    )  # fmt: skip
    expected = defined(metric, logits, logits, targets)
    n_attn = n_heads * n if by == "source" else n_heads if by == "head" else 1
    n_mlp = 0 if d_mlp == 0 else 1 + (d_mlp if by == "neuron" else 1)
    assert parts.values.shape == (4 + n_layers * (n_attn + 1 + n_mlp), batch, n)
    tolerance = TOLERANCE[dtype] * (1 + np.abs(parts.values).sum(0))
    assert (np.abs(parts.values.sum(0) - expected) <= tolerance).all()


@pytest.mark.parametrize("variant", ALL_VARIANTS, ids=variant_id)
def test_every_refinement_sums_to_its_parent_and_leaves_the_rest(variant: dict[str, Any]) -> None:
    model = random_model(torch.float64, **variant)
    _, cache = model.run_with_cache(random_tokens(model))
    blocks = logit_attribution(model, cache, "block")
    rows = {by: logit_attribution(model, cache, by) for by in REFINEMENTS}
    for by, parts in rows.items():
        sums = grouped(parts, parent)
        assert tuple(sums) == blocks.components
        for label, row in sums.items():
            if label in parts.components:
                np.testing.assert_array_equal(row, blocks.row(label), err_msg=f"{by} {label}")
            else:
                np.testing.assert_allclose(row, blocks.row(label), rtol=0, atol=1e-12)
    by_head = grouped(rows["source"], lambda label: label.split(".S")[0])
    assert tuple(by_head) == rows["head"].components
    for label, row in by_head.items():
        np.testing.assert_allclose(row, rows["head"].row(label), rtol=0, atol=1e-12)


def test_labels_are_in_the_order_of_the_model() -> None:
    model = random_model(n_layers=1, n_heads=2, d_mlp=3)
    _, cache = model.run_with_cache(random_tokens(model, pos=3))
    assert logit_attribution(model, cache, "source").components == (
        "embed", "pos_embed", "L0.H0.S0", "L0.H0.S1", "L0.H0.S2", "L0.H1.S0", "L0.H1.S1",
        "L0.H1.S2", "L0.b_O", "L0.mlp", "L0.b_out", "ln_bias", "b_U",
    )  # fmt: skip
    assert logit_attribution(model, cache, "neuron").components == (
        "embed", "pos_embed", "L0.attn", "L0.b_O", "L0.N0", "L0.N1", "L0.N2", "L0.b_out",
        "ln_bias", "b_U",
    )  # fmt: skip


@pytest.mark.parametrize("metric", METRICS)
def test_rows_of_later_keys_are_exactly_zero(
    model: HookedGPT, cache: ActivationCache, metric: Any
) -> None:
    targets = (cache.tokens + 1 + (cache.tokens == FOIL - 1).long()) % 7  # never the foil
    parts = logit_attribution(
        model, cache, "source", metric=metric, targets=targets, **foils_of(metric)
    )
    for layer in range(2):
        for head in range(4):
            for key in range(9):
                row = parts.row(f"L{layer}.H{head}.S{key}")
                assert (row[:, :key] == 0).all()
                assert (row[:, key:] != 0).all()


def written_by_one_block(model: HookedGPT, ids: Any) -> Any:
    """What a model of one block writes, by label, [pos, d_model]: numpy, position by position."""
    w = {name: p.detach().numpy() for name, p in model.named_parameters()}
    eps, scale = model.config.ln_eps, model.config.attn_scale
    a, m = "blocks.0.attn.", "blocks.0.mlp."

    def norm(x: Tensor, name: Any) -> Any:
        x = x - x.mean()
        return x / np.sqrt((x**2).mean() + eps) * w[f"{name}.w"] + w[f"{name}.b"]

    n, d = len(ids), model.config.d_model
    out = {"embed": w["embed.W_E"][ids], "pos_embed": w["pos_embed.W_pos"][:n]}
    x = out["embed"] + out["pos_embed"]
    normed = [norm(x[t], "blocks.0.ln1") for t in range(n)]
    for h in range(model.config.n_heads):
        q, k, v = (
            [y @ w[f"{a}W_{c}"][h] + w.get(f"{a}b_{c}", np.zeros((9, 1)))[h] for y in normed]
            for c in "QKV"
        )
        for s in range(n):
            out[f"L0.H{h}.S{s}"] = np.zeros((n, d))
        for t in range(n):
            e = np.exp([q[t] @ k[s] / scale for s in range(t + 1)])
            for s in range(t + 1):
                out[f"L0.H{h}.S{s}"][t] = e[s] / e.sum() * (v[s] @ w[f"{a}W_O"][h])
    out["L0.b_O"] = np.tile(w[f"{a}b_O"], (n, 1))
    x = sum(out.values())
    pre = np.array([norm(x[t], "blocks.0.ln2") @ w[f"{m}W_in"] + w[f"{m}b_in"] for t in range(n)])
    for i in range(model.config.d_mlp):
        out[f"L0.N{i}"] = np.maximum(pre[:, i : i + 1], 0) * w[f"{m}W_out"][i]
    out["L0.b_out"] = np.tile(w[f"{m}b_out"], (n, 1))
    return out


@pytest.mark.parametrize("variant", [{}, {"qkv_bias": True}, {"d_head": 5}, {"attn_scale": 1.0}])
def test_rows_are_those_of_a_plain_recomputation_from_the_weights(variant: dict[str, Any]) -> None:
    model = random_model(torch.float64, n_layers=1, d_mlp=11, **variant)
    tokens = random_tokens(model, pos=6)
    _, cache = model.run_with_cache(tokens)
    source = logit_attribution(model, cache, "source", metric="foil", foils=FOIL)
    neuron = logit_attribution(model, cache, "neuron", metric="foil", foils=FOIL)
    W_U, gain = model.W_U.detach().numpy(), model.ln_final.w.detach().numpy()
    for b in range(2):
        written = written_by_one_block(model, tokens[b].numpy())
        x = sum(written.values())
        for t in range(5):
            read = W_U[:, tokens[b, t + 1]] - W_U[:, FOIL]
            for label, part in written.items():
                c = part[t] - part[t].mean()
                expected = gain * c / np.sqrt(x[t].var() + model.config.ln_eps) @ read
                for parts in (source, neuron):
                    if label in parts.components:
                        assert abs(parts.row(label)[b, t] - expected) < 1e-12


@pytest.mark.parametrize("by", ["block", *REFINEMENTS])
@pytest.mark.parametrize("variant", ALL_VARIANTS, ids=variant_id)
def test_probability_rows_sum_to_log_p_plus_entropy(variant: dict[str, Any], by: Any) -> None:
    model = random_model(torch.float64, **variant)
    tokens = random_tokens(model)
    logits, cache = model.run_with_cache(tokens)
    log_p = logits.log_softmax(-1).detach()
    entropy = -(log_p.exp() * log_p).sum(-1)
    targets = torch.cat((tokens[:, 1:], log_p[:, -1:].argmax(-1)), dim=1)
    expected = log_p.gather(-1, targets[..., None])[..., 0] + entropy
    parts = logit_attribution(model, cache, by, metric="probability")
    np.testing.assert_allclose(parts.values.sum(0), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("by", "name"),
    [
        ("head", "attn.hook_z"), ("source", "attn.hook_v"), ("source", "attn.hook_pattern"),
        ("neuron", "mlp.hook_post"), ("neuron", "hook_attn_out"), ("source", "hook_mlp_out"),
        ("head", "hook_mlp_out"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("layer", [0, 1])
def test_one_wrong_number_is_incomplete(
    model: HookedGPT, cache: ActivationCache, by: Any, name: Any, layer: int
) -> None:
    name = f"blocks.{layer}.{name}"
    with pytest.raises(CompletenessError, match=r"\(batch, pos\) \(1, "):
        logit_attribution(model, with_tensor(cache, name, nudged(cache[name])), by)


@pytest.mark.parametrize("by", REFINEMENTS)
@pytest.mark.parametrize("name", ["hook_embed", "ln_final.hook_scale", "hook_logits"])
def test_one_wrong_number_outside_the_blocks_is_incomplete(
    model: HookedGPT, cache: ActivationCache, by: Any, name: str
) -> None:
    with pytest.raises(CompletenessError):
        logit_attribution(model, with_tensor(cache, name, nudged(cache[name])), by)


@pytest.mark.parametrize(
    ("by", "lacking"), [("head", "hook_z"), ("source", "hook_v"), ("neuron", "hook_post")]
)
def test_cache_without_what_a_refinement_needs_is_refused(
    model: HookedGPT, by: Any, lacking: str
) -> None:
    names = [name for name in model.hook_dict if not name.endswith((lacking, "hook_result"))]
    _, cache = model.run_with_cache(random_tokens(model), names_filter=names)
    with pytest.raises(CacheError, match=f"{lacking}.*not in this cache"):
        logit_attribution(model, cache, by)


MEMORY = """
import resource
import torch
from interp import GPTConfig, HookedGPT, logit_attribution
torch.set_num_threads(1)
cfg = GPTConfig(n_layers=6, n_heads=6, d_model=384, n_ctx=256, d_vocab=65)
model = HookedGPT(cfg).eval()
tokens = torch.randint(65, (8, 256), generator=torch.Generator().manual_seed(0))
with torch.no_grad():
    _, cache = model.run_with_cache(tokens)
before = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
parts = logit_attribution(model, cache, "neuron")
assert parts.values.shape == (2 + 6 * (1 + 1 + 1536 + 1) + 2, 8, 256)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before)
"""


def test_neurons_of_the_full_size_take_less_than_a_gigabyte() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1e9


# ---- what a query, key, value or neuron reads ----------------------------------------------------


def written_before(cfg: Any, by: Any, layer: Any, half: Any, n_pos: Any) -> Any:
    """The labels of what is written before an attention (half 0) or an MLP (half 1)."""
    listed = components(cfg, "head" if by == "source" else by)
    labels = []
    for c in listed:
        if c.depth < (layer, half):
            by_key = c.kind == "head" and by == "source"
            labels += [f"{c}.S{key}" for key in range(n_pos)] if by_key else [str(c)]
    return labels


def vectors(width: Any, n_batch: int = 2, n_pos: int = 9) -> Any:
    generator = torch.Generator().manual_seed(5)
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((width,), (n_batch, n_pos, width))
    ]


@pytest.mark.parametrize("by", ["block", *REFINEMENTS])
@pytest.mark.parametrize("letter", ["q", "k", "v"])
@pytest.mark.parametrize("variant", VARIANTS, ids=variant_id)
def test_rows_sum_to_what_a_head_reads(variant: dict[str, Any], letter: str, by: Any) -> None:
    model = random_model(torch.float64, **variant)
    _, cache = model.run_with_cache(random_tokens(model))
    for layer, vector in enumerate(vectors(model.config.d_head)):
        if layer == 0 and by != "block":
            continue  # nothing to refine yet
        parts = stream_attribution(model, cache, f"L{layer}.H3.{letter}", vector, by)
        expected = (cache[letter, layer][:, :, 3] * vector).sum(-1)
        np.testing.assert_allclose(parts.values.sum(0), expected, rtol=0, atol=1e-10)
        np.testing.assert_array_equal(parts.total, expected)
        bias = [f"L{layer}.b_{letter.upper()}"] if model.config.qkv_bias else []
        before = written_before(model.config, by, layer, 0, 9)
        assert list(parts.components) == [*before, f"L{layer}.ln1_bias", *bias]
        assert (parts.completeness_error <= parts.tolerance).all()


@pytest.mark.parametrize("by", ["block", *REFINEMENTS])
@pytest.mark.parametrize("variant", VARIANTS, ids=variant_id)
def test_rows_sum_to_what_a_neuron_reads(variant: dict[str, Any], by: Any) -> None:
    model = random_model(torch.float64, **variant)
    _, cache = model.run_with_cache(random_tokens(model))
    if model.config.attn_only:
        with pytest.raises(ConfigError, match=r"no component 'L1\.N5'"):
            stream_attribution(model, cache, "L1.N5", by=by)
        return
    for layer in range(2):
        parts = stream_attribution(model, cache, f"L{layer}.N5", by=by)
        expected = cache["pre", layer][..., 5].detach()
        np.testing.assert_allclose(parts.values.sum(0), expected, rtol=0, atol=1e-10)
        before = written_before(model.config, by, layer, 1, 9)
        assert list(parts.components) == [*before, f"L{layer}.ln2_bias", f"L{layer}.b_in"]


@pytest.mark.parametrize("by", ["block", *REFINEMENTS])
@pytest.mark.parametrize("variant", ALL_VARIANTS, ids=variant_id)
def test_rows_sum_to_the_logits_along_a_vector(variant: dict[str, Any], by: Any) -> None:
    model = random_model(torch.float64, **variant)
    logits, cache = model.run_with_cache(random_tokens(model))
    for vector in vectors(7):
        parts = stream_attribution(model, cache, "logits", vector, by)
        expected = (logits * vector).sum(-1).detach()
        np.testing.assert_allclose(parts.values.sum(0), expected, rtol=0, atol=1e-10)
        np.testing.assert_allclose(parts.total, expected, rtol=0, atol=1e-12)
    one, two = (
        stream_attribution(model, cache, "logits", torch.eye(7, dtype=torch.float64)[2], by),
        logit_attribution(
            model, cache, by, metric="raw", targets=torch.full((2, 9), 2)
        ),
    )  # fmt: skip
    assert one.components == two.components
    np.testing.assert_allclose(one.values, two.values, rtol=0, atol=1e-12)


def test_rows_into_a_head_are_the_frozen_layernorm_formula() -> None:
    model = random_model(torch.float64, qkv_bias=True)
    _, cache = model.run_with_cache(random_tokens(model))
    block, vector = model.blocks[1], vectors(8)[0]
    x = cache["resid_pre", 1]
    s = (x.var(-1, unbiased=False) + model.config.ln_eps).sqrt()[..., None]
    heads = stream_attribution(model, cache, "L1.H2.k", vector, "head")
    neurons = stream_attribution(model, cache, "L1.H2.k", vector, "neuron")
    head = cache["z", 0][:, :, 3] @ model.W_O[0, 3]
    neuron = cache["post", 0][..., 6, None] * model.blocks[0].mlp.W_out[6]
    for parts, label, part in (
        (heads, "embed", cache["embed"]), (heads, "L0.H3", head), (neurons, "L0.N6", neuron),
        (heads, "L0.b_out", model.blocks[0].mlp.b_out.expand_as(x)),
    ):  # fmt: skip
        read = block.ln1.w * (part - part.mean(-1, keepdim=True)) / s
        expected = (read @ model.W_K[1, 2] @ vector).detach()
        np.testing.assert_allclose(parts.row(label), expected, rtol=0, atol=1e-12)
    for label, one in (
        ("L1.ln1_bias", block.ln1.b @ model.W_K[1, 2] @ vector),
        ("L1.b_K", block.attn.b_K[2] @ vector),
    ):
        np.testing.assert_allclose(heads.row(label), one.item(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("by", ["block", *REFINEMENTS])
@pytest.mark.parametrize("variant", [{}, {"attn_scale": 1.0}, {"qkv_bias": True}], ids=variant_id)
def test_a_key_over_the_attention_scale_splits_the_score(variant: dict[str, Any], by: Any) -> None:
    model = random_model(torch.float64, **variant)
    _, cache = model.run_with_cache(random_tokens(model))
    for s in (0, 3):
        key = cache["k", 1][:, s : s + 1, 2] / model.config.attn_scale
        parts = stream_attribution(model, cache, "L1.H2.q", key.expand(2, 9, -1).clone(), by)
        scores = cache["attn_scores", 1][:, 2, s:, s]
        np.testing.assert_allclose(parts.values.sum(0)[:, s:], scores, rtol=0, atol=1e-12)
    query = cache["q", 1][:, 6:7, 2] / model.config.attn_scale
    parts = stream_attribution(model, cache, "L1.H2.k", query.expand(2, 9, -1).clone(), by)
    scores = cache["attn_scores", 1][:, 2, 6, :7]
    np.testing.assert_allclose(parts.values.sum(0)[:, :7], scores, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(7,), (9, 8), (1, 9, 8), (2, 8, 8), (2, 9, 7), (8, 1), ()])
def test_vector_of_the_wrong_shape_is_refused(
    model: HookedGPT, cache: ActivationCache, shape: Any
) -> None:
    with pytest.raises(ConfigError, match=r"vector has shape .*; expected \(8,\) or \(2, 9, 8\)"):
        unchecked(model, cache, "L1.H0.q", torch.zeros(shape, dtype=torch.float64))
    with pytest.raises(ConfigError, match=r"expected \(7,\) or \(2, 9, 7\)"):
        unchecked(model, cache, "logits", torch.zeros(5, dtype=torch.float64))


@pytest.mark.parametrize("into", ["L1.H0.q", "L0.H2.v", "logits"])
def test_missing_vector_is_refused(model: HookedGPT, cache: ActivationCache, into: str) -> None:
    with pytest.raises(ConfigError, match=f"{into} .*give the vector"):
        stream_attribution(model, cache, into)


def test_vector_for_a_neuron_is_refused(model: HookedGPT, cache: ActivationCache) -> None:
    with pytest.raises(ConfigError, match="give no vector"):
        stream_attribution(model, cache, "L1.N3", torch.zeros(32, dtype=torch.float64))


@pytest.mark.parametrize(
    ("into", "said"),
    [
        ("L1.H9.q", r"'L1\.H9'.*did you mean 'L1\.H"),
        ("L2.H0.q", r"'L2\.H0'.*did you mean 'L[01]\.H0'"),
        ("L01.H0.q", r"'L01\.H0'.*did you mean 'L[01]\.H0'"),
        ("L1.N128", r"no component 'L1\.N128'"),
        ("L1.H0", r"'L1\.H0' reads nothing; give L2\.H1\.q .*L1\.N17 or logits"),
        ("L0.mlp", "reads nothing"),
        ("embed", "reads nothing"),
        ("logit", "'logit'"),
    ],
)
def test_place_that_reads_nothing_is_refused(
    model: HookedGPT, cache: ActivationCache, into: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        stream_attribution(model, cache, into, torch.zeros(8, dtype=torch.float64))


def test_unknown_refinement_is_refused(model: HookedGPT, cache: ActivationCache) -> None:
    with pytest.raises(ConfigError, match="by = 'heads' is not one of 'block', 'head', 'source'"):
        unchecked(model, cache, "L0.N1", by="heads")


@pytest.mark.parametrize(
    ("into", "by", "name"),
    [
        ("L1.H0.q", "block", "blocks.1.attn.hook_q"), ("L1.H0.k", "head", "blocks.1.attn.hook_k"),
        ("L1.H0.v", "block", "blocks.1.ln1.hook_scale"), ("L1.H0.v", "head", "hook_embed"),
        ("L1.H0.q", "head", "blocks.0.attn.hook_z"), ("L1.H0.q", "source", "blocks.0.attn.hook_v"),
        ("L1.H0.q", "source", "blocks.0.attn.hook_pattern"),
        ("L1.H0.q", "neuron", "blocks.0.mlp.hook_post"),
        ("L1.N0", "block", "blocks.1.mlp.hook_pre"), ("L1.N0", "source", "blocks.1.attn.hook_v"),
        ("L1.N0", "head", "blocks.1.ln2.hook_scale"), ("logits", "block", "hook_logits"),
    ],
)  # fmt: skip
def test_one_wrong_number_before_a_place_is_incomplete(
    model: HookedGPT, cache: ActivationCache, into: Any, by: Any, name: Any
) -> None:
    width = {"L1.N0": None, "logits": 7}.get(into, 8)
    vector = None if width is None else torch.ones(width, dtype=torch.float64)
    stream_attribution(model, cache, into, vector, by)
    with pytest.raises(CompletenessError, match=r"\(batch, pos\) \(1, "):
        stream_attribution(
            model, with_tensor(cache, name, nudged(cache[name])), into, vector, by
        )  # fmt: skip


@torch.no_grad()
def test_what_is_written_later_is_not_read(model: HookedGPT, cache: ActivationCache) -> None:
    vector = torch.ones(8, dtype=torch.float64)
    before = stream_attribution(model, cache, "L1.H0.q", vector)
    for later in (model.blocks[1].attn.W_O, model.blocks[1].mlp.W_out, model.W_U):
        later.mul_(2.0)
        _, other = model.run_with_cache(cache.tokens)
        after = stream_attribution(model, other, "L1.H0.q", vector)
        np.testing.assert_array_equal(after.values, before.values)


# ---- components ----------------------------------------------------------------------------------


def labels(variant: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    cfg = random_model(**{"n_heads": 2, "d_mlp": 2} | variant).config
    return " ".join(map(str, components(cfg, *args, **kwargs)))


@pytest.mark.parametrize(
    ("variant", "by", "expected"),
    [
        ({"n_layers": 1}, "block", "embed pos_embed L0.attn L0.b_O L0.mlp L0.b_out ln_bias b_U"),
        (
            {},
            "head",
            "embed pos_embed L0.H0 L0.H1 L0.b_O L0.mlp L0.b_out "
            "L1.H0 L1.H1 L1.b_O L1.mlp L1.b_out ln_bias b_U",
        ),
        (
            {},
            "neuron",
            "embed pos_embed L0.attn L0.b_O L0.N0 L0.N1 L0.b_out "
            "L1.attn L1.b_O L1.N0 L1.N1 L1.b_out ln_bias b_U",
        ),
        ({"d_mlp": 0}, "neuron", "embed pos_embed L0.attn L0.b_O L1.attn L1.b_O ln_bias b_U"),
        ({"n_layers": 0}, "head", "embed pos_embed ln_bias b_U"),
        ({"n_layers": 0, "positional": False}, "block", "embed ln_bias b_U"),
        ({"n_layers": 0, "final_norm": False}, "block", "embed pos_embed b_U"),
        ({"n_layers": 0, "tied": True, "unembed_bias": False}, "block", "embed pos_embed ln_bias"),
    ],
)
def test_components_are_listed_in_the_order_in_which_they_are_written(
    variant: dict[str, Any], by: str, expected: str
) -> None:
    assert labels(variant, by) == expected


def test_components_without_constants() -> None:
    assert labels({}, constants=False) == "embed L0.attn L0.mlp L1.attn L1.mlp"
    assert labels({"n_layers": 1}, "head", constants=False) == "embed L0.H0 L0.H1 L0.mlp"


@pytest.mark.parametrize("variant", ALL_VARIANTS, ids=variant_id)
def test_components_are_those_of_the_attribution_and_found_by_their_labels(
    variant: dict[str, Any],
) -> None:
    model = random_model(**variant)
    _, cache = model.run_with_cache(random_tokens(model))
    for by in ("block", "head", "neuron"):
        found = components(model.config, by)
        assert tuple(map(str, found)) == logit_attribution(model, cache, by).components
        assert [component(model.config, str(c)) for c in found] == found
        depths = [c.depth for c in found]
        assert depths == sorted(depths)
        assert all(c.hook in model.hook_dict for c in found)


@pytest.mark.parametrize(
    ("label", "near"),
    [
        ("L0.mpl", "'L0.mlp'"), ("L0.H9", "'L0.H"), ("L2.attn", "'L1.attn'"), ("emebd", "'embed'"),
        ("L00.H1", "'L0.H1'"), ("L0.H01", "'L0.H1'"), ("L01.mlp", "'L1.mlp'"), ("l0.H1", "'L0.H1'"),
        ("L\u0660.H1", "'L0.H1'"), ("L0.H1 ", "'L0.H1'"), ("L0.H1.q", "'L0.H1'"),
        ("L-1.H1", "'L1.H1'"), ("L0.N999", ""), ("L0.N128", ""), ("L0.N01", ""), ("", ""),
    ],
)  # fmt: skip
def test_unknown_component_names_the_nearest(model: HookedGPT, label: str, near: str) -> None:
    with pytest.raises(ConfigError) as error:
        component(model.config, label)
    assert str(error.value).startswith(f"this model has no component {label!r}")
    assert near in str(error.value).split("did you mean")[-1]


@pytest.mark.parametrize(
    ("variant", "label"),
    [
        ({"d_mlp": 0}, "L0.mlp"), ({"d_mlp": 0}, "L0.N0"), ({"d_mlp": 0}, "L0.b_out"),
        ({"positional": False}, "pos_embed"), ({"final_norm": False}, "ln_bias"),
        ({"unembed_bias": False}, "b_U"), ({"n_layers": 0}, "L0.attn"),
    ],
)  # fmt: skip
def test_component_that_a_variant_lacks_is_refused(variant: dict[str, Any], label: str) -> None:
    with pytest.raises(ConfigError, match=f"no component '{label}'"):
        component(random_model(**variant).config, label)


def everything(cfg: Any) -> Any:
    return dict.fromkeys(c for by in ("block", "head", "neuron") for c in components(cfg, by))


@torch.no_grad()
@pytest.mark.parametrize("variant", ALL_VARIANTS, ids=variant_id)
def test_putting_a_value_back_changes_nothing(variant: dict[str, Any]) -> None:
    model = random_model(torch.float64, **{"d_mlp": 3} | variant)
    _, cache = model.run_with_cache(random_tokens(model))
    for c in everything(model.config):
        activation = cache[c.hook]
        original, value = activation.clone(), c.value(model, activation)
        assert_close(c.put(model, activation, value), original, str(c))
        if str(c) == "pos_embed" or c.kind not in ("b_O", "b_out", "ln_bias", "b_U"):
            other = torch.randn(value.shape, generator=torch.Generator(), dtype=value.dtype)
            assert_close(c.value(model, c.put(model, activation, other)), other, str(c))
            assert (value != 0).any()
        assert activation.equal(original)


@torch.no_grad()
@pytest.mark.parametrize("by", ["block", "head", "neuron"])
@pytest.mark.parametrize("variant", ALL_VARIANTS, ids=variant_id)
def test_what_is_written_sums_to_the_residual_stream(variant: dict[str, Any], by: Any) -> None:
    model = random_model(torch.float64, **{"d_mlp": 5} | variant)
    logits, cache = model.run_with_cache(random_tokens(model))
    parts = {
        c: c.written(model, c.value(model, cache[c.hook])) for c in components(model.config, by)
    }
    stream = sum(x for c, x in parts.items() if c.kind not in ("ln_bias", "b_U"))
    n = model.config.n_layers
    if n:
        assert_close(stream, cache["resid_post", n - 1])
    assert_close(model.unembed_residual(stream), logits)


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS, ids=variant_id)
def test_putting_zero_takes_away_what_was_written(variant: dict[str, Any]) -> None:
    model = random_model(torch.float64, **{"n_layers": 1, "n_heads": 2, "d_mlp": 2} | variant)
    tokens = random_tokens(model)
    _, cache = model.run_with_cache(tokens)
    for c in everything(model.config):
        place = {
            "embed": "blocks.0.hook_resid_pre", "pos_embed": "blocks.0.hook_resid_pre",
            "head": f"blocks.{c.layer}.hook_attn_out", "neuron": f"blocks.{c.layer}.hook_mlp_out",
        }.get(c.kind, c.hook)  # fmt: skip

        def zero(activation: Any, hook: HookPoint, c: Any = c) -> Any:
            value = c.value(model, activation)
            return c.put(model, activation, torch.zeros_like(value))

        with model.hooks([(c.hook, zero)]):
            _, without = model.run_with_cache(tokens)
        written = c.written(model, c.value(model, cache[c.hook]))
        assert_close(cache[place] - without[place], written, str(c))


# ---- readouts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("metric", MEASURES)
def test_readout_is_its_definition(metric: Any, dtype: torch.dtype) -> None:
    model = random_model(dtype)
    tokens = random_tokens(model)
    own = model(tokens).detach()
    value_of = make_metric(model, tokens, own, metric, **foils_of(metric))
    assert (value_of.name, value_of.n_pos) == (metric, 8)
    generator = torch.Generator().manual_seed(1)
    for many in ((), (3,), (2, 3)):
        noise = torch.randn((*many, 2, 8, 7), generator=generator, dtype=dtype)
        logits = own[:, :-1] + noise
        given = value_of(logits)
        assert given.dtype == dtype
        expected = torch.tensor(defined(metric, logits, own, tokens[:, 1:]), dtype=dtype)
        assert_close(given, expected, f"{metric} {many}")
    expected = torch.tensor(defined(metric, own, own, tokens[:, 1:]), dtype=dtype)
    assert_close(value_of(own[:, :-1]), expected)
    if metric in METRICS:
        assert_close((value_of.weights() * own[:, :-1]).sum(-1), expected)


def test_log_prob_and_loss_are_torchs(model: HookedGPT, cache: ActivationCache) -> None:
    tokens, logits = cache.tokens, cache["hook_logits"][:, :-1]
    loss = F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none")
    value_of = {
        s: make_metric(model, tokens, cache["hook_logits"], s) for s in ("log_prob", "loss")
    }
    assert_close(value_of["loss"](logits), loss)
    assert_close(value_of["log_prob"](logits + 1e3), -loss)  # also far from zero
    leaf = logits.clone().requires_grad_()
    given, expected = (
        torch.autograd.grad(x.sum(), leaf)[0]
        for x in (value_of["loss"](leaf), F.cross_entropy(leaf.mT, tokens[:, 1:], reduction="none"))
    )
    assert_close(given, expected)


def test_kl_is_torchs_and_zero_for_the_run_itself(model: HookedGPT, cache: ActivationCache) -> None:
    own = cache["hook_logits"][:, :-1]
    value_of = make_metric(model, cache.tokens, cache["hook_logits"], "kl")
    assert (value_of(own) == 0).all()
    other = own.flip(-1)
    log_p, log_own = other.log_softmax(-1), own.log_softmax(-1)
    kl = F.kl_div(log_p, log_own, reduction="none", log_target=True).sum(-1)
    assert_close(value_of(other), -kl)
    assert (value_of(other) < 0).all()


def test_function_is_given_logits_and_targets(model: HookedGPT, cache: ActivationCache) -> None:
    def doubled(logits: Tensor, targets: Any) -> Any:
        return 2 * logits.gather(-1, targets[..., None].expand(*logits.shape[:-1], 1))[..., 0]

    own, targets = cache["hook_logits"], torch.full((2, 4), 5)
    value_of = make_metric(model, cache.tokens, own, doubled, targets)
    assert (value_of.name, value_of.n_pos) == ("doubled", 4)
    assert_close(value_of(own[None, :, :4]), 2 * own[None, :, :4, 5])
    with pytest.raises(ConfigError, match="'doubled' is not linear in the logits"):
        value_of.weights()


@pytest.mark.parametrize(
    "wrong", [lambda logits, _: logits, lambda logits, _: logits.sum(), lambda x, _: x[0, ..., 0]]
)
def test_function_of_the_wrong_shape_is_refused(
    model: HookedGPT, cache: ActivationCache, wrong: Any
) -> None:
    value_of = make_metric(model, cache.tokens, cache["hook_logits"], wrong)
    said = r"<lambda> returned shape .* for logits of shape \(3, 2, 8, 7\); expected \(3, 2, 8\)"
    with pytest.raises(ConfigError, match=said):
        value_of(cache["hook_logits"][:, :-1].expand(3, 2, 8, 7))


@pytest.mark.parametrize("metric", ["log_prob", "loss", "kl"])
def test_what_is_not_linear_is_not_split(
    model: HookedGPT, cache: ActivationCache, metric: Any
) -> None:
    with pytest.raises(ConfigError, match=f"'{metric}' is not linear .* choose one of centered"):
        make_metric(model, cache.tokens, cache["hook_logits"], metric).weights()
    with pytest.raises(ConfigError, match=f"'{metric}' is not one of 'centered'"):
        inspect.unwrap(logit_attribution)(model, cache, metric=metric)


@pytest.mark.parametrize("metric", [*MEASURES, lambda logits, targets: logits[..., 0]])
@pytest.mark.parametrize("bad", [-1, 7])
def test_targets_outside_the_vocabulary_are_refused(
    model: HookedGPT, cache: ActivationCache, metric: Any, bad: int
) -> None:
    targets = torch.zeros(2, 4, dtype=torch.long)
    targets[1, 2] = bad
    with pytest.raises(TokenError, match=r"targets run from .* outside the vocabulary 0 … 6"):
        make_metric(
            model, cache.tokens, cache["hook_logits"], metric, targets, **foils_of(metric)
        )  # fmt: skip


def test_unknown_scalar_lists_the_known(model: HookedGPT, cache: ActivationCache) -> None:
    with pytest.raises(ConfigError, match=r"metric = 'nll' is not one of 'centered', .*'kl'"):
        make_metric(model, cache.tokens, cache["hook_logits"], "nll")


# ---- which earlier character ---------------------------------------------------------------------


def test_sources_are_told_with_their_tokens_and_add_up_over_heads(
    model: HookedGPT, cache: ActivationCache
) -> None:
    parts = logit_attribution(model, cache, by="source")
    frame = parts.to_frame()
    row = frame[(frame.component == "L1.H2.S3") & (frame.batch == 1) & (frame.pos == 5)].iloc[0]
    assert (row.source, row.source_token) == (3, int(cache.tokens[1, 3]))
    rest = frame[frame.component == "L0.mlp"]
    assert (rest.source == -1).all()
    assert (rest.source_token == -1).all()
    expected = frame[frame.source >= 0].groupby(["source", "batch", "pos"]).contribution.sum()
    np.testing.assert_allclose(parts.by_source().ravel(), expected.to_numpy(), atol=1e-12)
    with pytest.raises(ConfigError, match="by='source'"):
        logit_attribution(model, cache).by_source()
