# mypy: disable-error-code="arg-type, index, operator, union-attr"
from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import VARIANTS, name_of, random_model, random_tokens, variant_id
from helpers import metric_of
from scipy import stats as scipy_stats
from torch import Tensor

from interp import (
    ComponentEffects,
    ConfigError,
    HookedGPT,
    ReferenceSet,
    Result,
    TokenError,
    component_effects,
    intervene,
    logit_attribution,
)
from interp.ground_truth.effects import feature, silent_sink, writer_eraser
from interp.results.intervals import bootstrap_weights, correlations, mean_interval
from interp.stream.components import components

SMALL = {"d_model": 16, "n_heads": 2, "d_mlp": 20}
ALL_VARIANTS = [*VARIANTS, {"n_layers": 0}, {"n_layers": 1}, {"qkv_bias": True}]
ATOL = 1e-11
RUNS = {}  # type: ignore[var-annotated]  # what several tests or metrics share
unchecked = inspect.unwrap(component_effects)


def surprise(logits: Tensor, targets: Any) -> Any:
    """A metric of the user's: the squared gap to the largest logit."""
    at_target = logits.gather(-1, targets[..., None].expand(*logits.shape[:-1], 1))[..., 0]
    return -((logits.amax(-1) - at_target) ** 2)


METRICS = ["centered", "foil", "probability", "raw", "log_prob", "loss", "kl", surprise]


@pytest.fixture(scope="module")
def model() -> HookedGPT:
    return random_model(torch.float64, **SMALL)


@pytest.fixture
def tokens(model: HookedGPT) -> Tensor:
    return random_tokens(model, batch=3, pos=7)


def value_of(metric: Any, logits: Tensor, clean: Tensor, targets: Any, foil: int = 3) -> Any:
    """The definition."""
    return metric_of(metric, logits, clean, targets, foil)


def effect(metric: Any, clean: Tensor, changed: Any, targets: Any, positions: Any = None) -> Any:
    """One number a sequence."""
    n = targets.shape[1]
    clean, changed = clean[:, :n], changed[:, :n]
    difference = value_of(metric, clean, clean, targets) - value_of(metric, changed, clean, targets)
    at = list(range(n)) if positions is None else list(positions)
    return difference[:, at].mean(1).numpy()


@torch.no_grad()
def three_runs(model: HookedGPT, tokens: Tensor, label: Any, kind: Any, **options: Any) -> Any:
    """Logits with the final scale and all else held, with the scale recomputed, and run on.

    Only whole runs with hooks, of one component at a time.
    """
    last = len(model.blocks) - 1
    with intervene(model, f"{kind} {label}", **options):
        total = model(tokens)
    if label in ("ln_bias", "b_U"):
        return total, total, total
    scale = None
    if model.config.final_norm:
        name = "ln_final.hook_scale"
        key = (model, name, tuple(tokens.flatten().tolist()), len(tokens))
        if key not in RUNS:
            RUNS[key] = model.run_with_cache(tokens, names_filter=[name])[1][name]
        scale = RUNS[key]
    if last < 0:
        name = "embed" if label == "embed" else "pos_embed"
        one_out, into = total, []
        frozen_context = intervene(model, f"{kind} {name}", **options)
    else:
        with intervene(model, f"{kind} {label} into logits", **options):
            one_out = model(tokens)
        frozen_context = intervene(model, f"{kind} {label} into logits", **options)
    into = [("ln_final.hook_scale", lambda x, hook: scale)] if scale is not None else []
    with frozen_context, model.hooks(into):
        frozen = model(tokens)
    return frozen, one_out, total


def assert_effects(
    found: Any,
    model: HookedGPT,
    tokens: Tensor,
    kind: Any,
    asked: Any,
    options_of: Any = None,
    positions: Any = None,
) -> None:
    """Every number of a result against runs of one component at a time.

    `options_of`: the interventions' options for each sequence alone; by default for all at once.
    """
    metric, targets = asked
    clean = model(tokens).detach()
    for i, label in enumerate(found.components):
        key = (model, kind, tuple(tokens.flatten().tolist()), label, options_of)
        runs = None if isinstance(options_of, dict) else RUNS.get(key)
        if runs is None:
            pieces = (
                [(tokens[s : s + 1], options_of(s)) for s in range(len(tokens))]
                if callable(options_of)
                else [(tokens, options_of or {})]
            )
            each = [three_runs(model, t, label, kind, **options) for t, options in pieces]
            runs = [torch.cat(logits) for logits in zip(*each, strict=True)]
            if not isinstance(options_of, dict):
                RUNS[key] = runs
        names = ("direct", "direct_renormalised", "total")
        for name, logits in zip(names, runs, strict=True):
            expected = effect(metric, clean, logits, targets, positions)
            np.testing.assert_allclose(
                getattr(found, name)[i], expected, rtol=0, atol=ATOL, err_msg=f"{label} {name}"
            )


# ---- against one run a component -----------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS, ids=name_of)
def test_zero_ablation_is_one_run_a_component(
    model: HookedGPT, tokens: Tensor, metric: Any
) -> None:
    foils = 3 if metric == "foil" else None
    for by in ("block", "head"):
        found = component_effects(model, tokens, ablate="zero", by=by, metric=metric, foils=foils)
        assert found.components == tuple(str(c) for c in components(model.config, by))
        assert_effects(found, model, tokens, "zero", (metric, tokens[:, 1:]))
        assert found.metric == (metric if isinstance(metric, str) else "surprise")
        assert (found.ablate, found.reference, found.draws) == ("zero", "none", 0)


@pytest.mark.parametrize("variant", ALL_VARIANTS, ids=variant_id)
def test_every_variant(variant: dict[str, Any]) -> None:
    model = random_model(torch.float64, **(SMALL | variant))
    tokens = random_tokens(model, batch=2, pos=5)
    reference = ReferenceSet(model, random_tokens(model, 4, seed=8))
    zero = component_effects(model, tokens, ablate="zero")
    assert_effects(zero, model, tokens, "zero", ("centered", tokens[:, 1:]))
    assert zero.rerun_error < 1e-11
    some = ["embed", "L0.attn", "L0.H1"] if model.config.n_layers else ["embed"]
    mean = component_effects(model, tokens, chosen=some, reference=reference, metric="log_prob")
    asked, options = ("log_prob", tokens[:, 1:]), {"reference": reference}
    assert_effects(mean, model, tokens, "mean", asked, options)


def test_mean_is_that_of_the_other_sequences(model: HookedGPT) -> None:
    tokens = random_tokens(model, batch=4, pos=6)

    def others(s: Any) -> Any:
        return {"reference": torch.cat((tokens[:s], tokens[s + 1 :]))}

    for metric in ("centered", "kl", surprise):
        found = component_effects(model, tokens, metric=metric)
        assert_effects(found, model, tokens, "mean", (metric, tokens[:, 1:]), others)
    assert found.components == ("embed", "L0.H0", "L0.H1", "L0.mlp", "L1.H0", "L1.H1", "L1.mlp")
    assert found.reference == "for each sequence, the other 3"


def test_mean_of_a_given_reference_set(model: HookedGPT, tokens: Tensor) -> None:
    reference = random_tokens(model, batch=20, pos=9, seed=4)
    found = component_effects(model, tokens, reference=reference, metric="loss")
    assert_effects(found, model, tokens, "mean", ("loss", tokens[:, 1:]), {"reference": reference})
    assert found.reference == "20 sequences"
    ready = component_effects(
        model, tokens, reference=ReferenceSet(model, reference), metric="loss"
    )
    np.testing.assert_array_equal(ready.total, found.total)


@pytest.mark.parametrize("given", [False, True])
def test_resample_is_the_mean_over_its_draws(model: HookedGPT, given: bool) -> None:
    tokens = random_tokens(model, batch=4, pos=6)
    reference = ReferenceSet(model, random_tokens(model, 5, 8, seed=4) if given else tokens)
    own = None if given else torch.eye(4, dtype=torch.bool)
    found = component_effects(
        model, tokens, ablate="resample", reference=reference if given else None, draws=9, seed=20,
        chosen=["L0.H1", "L0.N3"], metric="log_prob",
    )  # fmt: skip
    assert found.draws == 9
    rows = [reference.draw(4, 20 + i, own) for i in range(9)]
    assert len({tuple(row.tolist()) for row in rows}) > 3
    clean, targets = model(tokens).detach(), tokens[:, 1:]
    for i, label in enumerate(found.components):
        expected = np.mean(
            [
                [
                    effect("log_prob", clean, logits, targets)
                    for logits in three_runs(
                        model, tokens, label, "resample", reference=reference, rows=row
                    )
                ]
                for row in rows
            ],
            axis=0,
        )
        given_values = [getattr(found, n)[i] for n in ("direct", "direct_renormalised", "total")]
        np.testing.assert_allclose(given_values, expected, rtol=0, atol=ATOL)


def test_seed_decides_the_draws(model: HookedGPT) -> None:
    tokens = random_tokens(model, batch=5)
    one, again, other = (
        component_effects(model, tokens, ablate="resample", by="block", seed=seed)
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one.total, again.total)
    assert not np.array_equal(one.total, other.total)
    assert one.draws == 8


# ---- what must hold ------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["centered", "foil", "probability", "raw"])
def test_direct_effect_of_zero_is_the_row_of_the_attribution(
    model: HookedGPT, tokens: Tensor, metric: Any
) -> None:
    foils = 3 if metric == "foil" else None
    _, cache = model.run_with_cache(tokens)
    for by in ("block", "head"):
        rows = logit_attribution(model, cache, by, metric=metric, foils=foils)
        for positions in (None, [1, 4]):
            found = component_effects(
                model, tokens, ablate="zero", by=by, metric=metric, foils=foils,
                positions=positions,
            )  # fmt: skip
            at = range(6) if positions is None else positions
            for i, label in enumerate(found.components):
                expected = rows.row(label)[:, list(at)].mean(1)
                np.testing.assert_allclose(found.direct[i], expected, rtol=0, atol=ATOL)


@pytest.mark.parametrize("ablate", ["zero", "mean", "resample"])
@pytest.mark.parametrize("variant", [{}, {"d_mlp": 0}], ids=variant_id)
def test_parts_sum_and_the_last_sublayer_has_nothing_downstream(
    ablate: Any, variant: dict[str, Any]
) -> None:
    model = random_model(torch.float64, **(SMALL | variant))
    tokens = random_tokens(model, batch=4)
    for by in ("block", "head"):
        found = component_effects(model, tokens, ablate=ablate, by=by, metric="log_prob")
        parts = found.total + found.layer_norm_part + found.downstream_part
        np.testing.assert_allclose(parts, found.direct, rtol=0, atol=1e-12)
        deepest = max(c.depth for c in components(model.config, by) if c.layer < 2)
        last = [
            c.depth >= deepest for c in components(model.config, by) if str(c) in found.components
        ]
        np.testing.assert_allclose(
            found.total[last], found.direct_renormalised[last], rtol=0, atol=1e-12
        )
        np.testing.assert_allclose(found.downstream_part[last], 0, rtol=0, atol=1e-12)
        early = np.array(last) == False  # noqa: E712
        moved = np.abs(found.downstream_part[early]).max(1)
        assert (moved > 1e-6).all()


def test_model_without_a_final_norm_has_no_layer_norm_part() -> None:
    model = random_model(torch.float64, **SMALL, final_norm=False)
    found = component_effects(model, random_tokens(model), ablate="zero")
    np.testing.assert_allclose(found.layer_norm_part, 0, rtol=0, atol=1e-12)


def test_heads_replaced_by_their_means_have_the_direct_effects_of_their_block(
    model: HookedGPT, tokens: Tensor
) -> None:
    heads, blocks = (component_effects(model, tokens, by=by) for by in ("head", "block"))
    for layer in (0, 1):
        rows = [heads.components.index(f"L{layer}.H{h}") for h in range(2)]
        np.testing.assert_allclose(
            heads.direct[rows].sum(0), blocks.direct[blocks.components.index(f"L{layer}.attn")],
            rtol=0, atol=ATOL,
        )  # fmt: skip


def test_bias_behind_the_stream_has_one_effect(model: HookedGPT, tokens: Tensor) -> None:
    found = component_effects(model, tokens, ablate="zero", chosen=["b_U", "ln_bias"])
    targets = tokens[:, 1:]
    for label, bias in (("ln_bias", model.ln_final.b @ model.W_U), ("b_U", model.b_U)):
        expected = (bias[targets] - bias.mean()).mean(1).detach()
        for values in (found.direct, found.direct_renormalised, found.total):
            np.testing.assert_allclose(
                values[found.components.index(label)], expected, rtol=0, atol=ATOL
            )


def test_effect_is_large_where_the_model_needs_the_component() -> None:
    model = random_model(torch.float64, **SMALL)
    tokens = random_tokens(model)
    found = component_effects(model, tokens, ablate="zero", metric="kl", chosen=["embed", "b_U"])
    assert (found.total > 0).all()
    again = component_effects(model, tokens, ablate="zero", metric="loss", chosen=["embed"])
    other = component_effects(model, tokens, ablate="zero", metric="log_prob", chosen=["embed"])
    np.testing.assert_allclose(again.total, -other.total, rtol=0, atol=1e-12)


# ---- which ---------------------------------------------------------------------------------------


def test_chosen_components(model: HookedGPT, tokens: Tensor) -> None:
    chosen = ["L1.N3", "b_U", "L0.b_O", "L0.H1", "L0.N7", "embed", "L0.attn", "L1.N3", "L0.mlp"]
    found = component_effects(model, tokens, ablate="zero", chosen=chosen)
    assert set(found.components) == set(chosen)
    assert len(found.components) == len(set(chosen))
    assert found.components[0] == "embed"
    assert found.components[-2:] == ("L1.N3", "b_U")
    assert found.layers.tolist() == sorted(found.layers.tolist())
    assert_effects(found, model, tokens, "zero", ("centered", tokens[:, 1:]))
    given = component_effects(model, tokens, chosen=["L0.N7", "L1.H0", "pos_embed"])

    def others(s: Any) -> Any:
        return {"reference": torch.cat((tokens[:s], tokens[s + 1 :]))}

    assert_effects(given, model, tokens, "mean", ("centered", tokens[:, 1:]), others)
    position = given.components.index("pos_embed")
    np.testing.assert_allclose(given.total[position], 0, atol=ATOL)


def test_positions_are_averaged_over(model: HookedGPT, tokens: Tensor) -> None:
    found = component_effects(model, tokens, ablate="zero", positions=[4, 1, 1], metric="raw")
    assert found.positions.tolist() == [1, 4]
    assert_effects(found, model, tokens, "zero", ("raw", tokens[:, 1:]), None, [1, 4])


def test_targets_decide_the_positions(model: HookedGPT, tokens: Tensor) -> None:
    targets = tokens.flip(1)[:, :4]
    found = component_effects(model, tokens, ablate="zero", targets=targets)
    assert found.positions.tolist() == [0, 1, 2, 3]
    assert_effects(found, model, tokens, "zero", ("centered", targets))
    whole = component_effects(model, tokens, ablate="zero", targets=tokens)
    assert found.positions.tolist() == whole.positions.tolist()[:4]
    assert whole.positions[-1] == 6


@pytest.mark.parametrize("ablate", ["zero", "mean", "resample"])
def test_pieces_do_not_matter(model: HookedGPT, ablate: Any) -> None:
    """More sequences than run at a time: each has the effects that it has alone."""
    tokens = random_tokens(model, batch=37, pos=6)
    reference = ReferenceSet(model, random_tokens(model, batch=18, pos=6, seed=8))
    options = {} if ablate == "zero" else {"reference": reference}
    seen = []
    found = component_effects(
        model, tokens, ablate=ablate, by="block", **options,
        progress=lambda done, of: seen.append((done, of)),
    )  # fmt: skip
    assert found.total.shape == (len(found.components), 37)
    assert seen == [(16, 37), (32, 37), (37, 37)]
    if ablate == "resample":
        rows = [reference.draw(37, i) for i in range(8)]
        clean = model(tokens).detach()
        each = [
            three_runs(model, tokens, "L0.mlp", "resample", reference=reference, rows=row)[2]
            for row in rows
        ]
        expected = np.mean([effect("centered", clean, x, tokens[:, 1:]) for x in each], axis=0)
        given = found.total[found.components.index("L0.mlp")]
        np.testing.assert_allclose(given, expected, rtol=0, atol=ATOL)
        return
    for piece in (slice(0, 1), slice(15, 18), slice(36, 37)):
        part = component_effects(model, tokens[piece], ablate=ablate, by="block", **options)
        for name in ("direct", "direct_renormalised", "total"):
            np.testing.assert_allclose(
                getattr(part, name), getattr(found, name)[:, piece], rtol=0, atol=ATOL
            )


def test_foils_and_targets_of_many_sequences(model: HookedGPT) -> None:
    tokens, foils = random_tokens(model, 18, 6), random_tokens(model, 18, 5, seed=3)
    found = component_effects(
        model, tokens, ablate="zero", by="block", metric="foil", foils=foils,
        targets=foils.flip(1),
    )  # fmt: skip
    for s in (0, 15, 16, 17):
        one = component_effects(
            model, tokens[s : s + 1], ablate="zero", by="block", metric="foil",
            foils=foils[s : s + 1], targets=foils.flip(1)[s : s + 1],
        )  # fmt: skip
        np.testing.assert_allclose(one.total[:, 0], found.total[:, s], rtol=0, atol=ATOL)


def test_sequences_as_text(model: HookedGPT) -> None:
    texts = ["abcabc", "gfedcb"]
    found = component_effects(model, texts, ablate="zero")
    given = component_effects(model, model.to_tokens(texts), ablate="zero")
    np.testing.assert_array_equal(found.total, given.total)
    one = component_effects(model, "abcabc", ablate="zero", metric="foil", foils="a")
    same = component_effects(model, "abcabc", ablate="zero", metric="foil", foils=0)
    np.testing.assert_array_equal(one.total, same.total)


def test_single_precision_is_near() -> None:
    double, single = (random_model(dtype, **SMALL) for dtype in (torch.float64, torch.float32))
    single.load_state_dict(double.state_dict())
    tokens = random_tokens(double)
    one, other = (component_effects(m, tokens) for m in (double, single))
    assert other.total.dtype == np.float32
    np.testing.assert_allclose(other.total, one.total, rtol=0, atol=1e-4)


# ---- the reference set ---------------------------------------------------------------------------


@pytest.mark.parametrize("ablate", ["mean", "resample"])
def test_sequences_shared_with_the_reference_set_are_warned_of(
    model: HookedGPT, ablate: Any
) -> None:
    tokens = random_tokens(model, batch=4)
    reference = torch.cat((tokens[1:3], random_tokens(model, 3, seed=6)))
    with pytest.warns(UserWarning, match="2 of 4 sequences are also in the reference set"):
        found = component_effects(model, tokens, ablate=ablate, by="block", reference=reference)
    assert found.overlap == 2
    with pytest.warns(UserWarning, match="1 of 3 sequences") as caught:
        found = component_effects(model, tokens[[0, 1, 1]], ablate=ablate, by="block")
    assert found.overlap == 1
    assert len(caught) == 1
    clean = component_effects(model, tokens, ablate=ablate, by="block")
    assert clean.overlap == 0


def test_zero_needs_no_reference_set(model: HookedGPT, tokens: Tensor) -> None:
    found = component_effects(model, tokens[:1], ablate="zero", reference=tokens)
    assert (found.overlap, found.reference) == (0, "none")


@pytest.mark.parametrize("ablate", ["mean", "resample"])
def test_one_sequence_needs_a_reference_set(model: HookedGPT, tokens: Tensor, ablate: Any) -> None:
    with pytest.raises(TokenError, match="reference set"):
        component_effects(model, tokens[:1], ablate=ablate)
    component_effects(model, tokens[:1], ablate=ablate, reference=tokens[1:], by="block")


# ---- the result ----------------------------------------------------------------------------------


def test_frame(model: HookedGPT, tokens: Tensor) -> None:
    found = component_effects(model, tokens, ablate="zero", seed=5)
    frame = found.to_frame()
    kinds = ("direct", "total", "layer_norm_part", "downstream_part")
    columns = [f"{kind}{end}" for kind in kinds for end in ("", "_low", "_high")]
    assert list(frame.columns) == ["component", "layer", *columns, "n", "signs_disagree"]
    assert (frame.n == 3).all()
    for kind in kinds:
        values = getattr(found, kind)
        for end, expected in zip(("", "_low", "_high"), mean_interval(values, seed=5), strict=True):
            np.testing.assert_array_equal(frame[kind + end], expected)
        reach = scipy_stats.t.ppf(0.975, 2) * scipy_stats.sem(values, axis=1)
        low, high = values.mean(1) - reach, values.mean(1) + reach
        np.testing.assert_allclose(frame[f"{kind}_low"], low, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(frame[f"{kind}_high"], high, rtol=1e-9, atol=1e-12)
    one = component_effects(model, tokens[:1], ablate="zero").to_frame()
    assert one.direct_low.isna().all()
    assert not one.signs_disagree.any()


def test_signs_disagree() -> None:
    """Block 0 writes; block 1 reads that and takes away twice as much. It differs by sequence."""
    model = writer_eraser().model
    with torch.no_grad():
        model.W_E.copy_(torch.arange(4.0, dtype=torch.float64)[:, None] * feature(4) / 10)
        model.blocks[0].mlp.W_in[:, 0] = feature(4)
        model.blocks[1].mlp.W_out[0] *= 2
    tokens = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 1], [0, 3, 3, 0], [2, 2, 1, 1], [3, 1, 0, 2],
                           [1, 1, 2, 1]])  # fmt: skip
    found = component_effects(
        model, tokens, ablate="zero", by="block", metric="raw", targets=torch.zeros_like(tokens)
    )
    wrote = 2 * (1 + tokens.double() / 10).mean(1).numpy()
    row = found.components.index("L0.mlp")
    np.testing.assert_allclose(found.direct[row], wrote, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.total[row], -wrote, rtol=0, atol=1e-9)
    frame = found.to_frame()
    assert frame.component[frame.signs_disagree].tolist() == ["L0.mlp"]
    assert frame.total_low[row] < frame.total_high[row] < 0 < frame.direct_low[row]
    turned = dataclasses.replace(found, direct=-found.direct, total=-found.total)
    assert turned.to_frame().component[frame.signs_disagree].tolist() == ["L0.mlp"]
    unsure = np.array([3.0, -2.0, 1.0, -3.0, 2.0, -1.5]) * np.ones_like(found.total)
    for other in ({"total": found.direct}, {"total": unsure}, {"direct": unsure}):
        assert not dataclasses.replace(found, **other).to_frame().signs_disagree.any()


def test_agreement_is_scipys() -> None:
    model = random_model(torch.float64, n_heads=4, d_model=16)
    found = component_effects(model, random_tokens(model, 6), ablate="zero", seed=3)
    frame = found.agreement()
    assert frame.layer.tolist() == ["0", "1", "2", "all"]
    assert frame.n.tolist() == [7, 7, 2, 18]
    weights = bootstrap_weights(6, seed=3)
    for _, row in frame.iterrows():
        which = found.layers == int(row.layer) if row.layer != "all" else np.full(18, True)
        x, y = found.direct[which], found.total[which]
        if row.n < 3:
            assert np.isnan([row.pearson, row.spearman, row.slope, row.pearson_low]).all()
            continue
        means = x.mean(1), y.mean(1)
        np.testing.assert_allclose(row.pearson, scipy_stats.pearsonr(*means).statistic)
        np.testing.assert_allclose(row.spearman, scipy_stats.spearmanr(*means).statistic)
        np.testing.assert_allclose(row.slope, scipy_stats.linregress(*means).slope)
        drawn = correlations((weights @ x.T), (weights @ y.T))
        for i, name in enumerate(("pearson", "spearman", "slope")):
            low, high = np.quantile(drawn[i], (0.025, 0.975))
            np.testing.assert_allclose([row[f"{name}_low"], row[f"{name}_high"]], [low, high])
            assert low <= high


def test_agreement_where_nothing_has_an_effect() -> None:
    truth = silent_sink()
    tokens = truth.tokens.repeat(3, 1)
    found = component_effects(
        truth.model, tokens, ablate="zero", metric="raw", targets=torch.zeros_like(tokens)
    )
    frame = found.agreement()
    assert (
        frame[["pearson", "spearman", "slope", "pearson_low", "slope_high"]].isna().all(axis=None)
    )


# ---- what it shows -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown(model: HookedGPT) -> Any:
    return component_effects(model, random_tokens(model, 8), ablate="zero", metric="log_prob")


def test_dots_are_the_means_and_their_intervals_in_the_table(shown: Any) -> None:
    first, second = shown.figures()
    table = shown.to_frame()
    assert first.mark.names == shown.components
    for one, name in zip(first.mark.series, ("direct", "total"), strict=True):
        assert one.name == name
        np.testing.assert_array_equal(one.values, table[name])
        np.testing.assert_array_equal(one.low, table[f"{name}_low"])
        np.testing.assert_array_equal(one.high, table[f"{name}_high"])
    assert first.mark.label == "effect on log_prob (nats)"
    assert "n = 8 sequences" in first.caption
    assert second.name == f"{first.name}-by-layer"
    agreement = shown.agreement().set_index("layer")
    for layer, panel in enumerate(second.mark.marks):
        some = table[table.layer == layer]
        assert panel.names == tuple(some.component)
        np.testing.assert_array_equal(panel.x, some.direct)
        np.testing.assert_array_equal(panel.y_high, some.total_high)
        assert [panel.names[i] for i in panel.ringed] == list(some.component[some.signs_disagree])
        assert f"rank correlation {agreement.loc[str(layer), 'spearman']:.2f}" in panel.title


def test_effects_of_very_different_sizes_have_a_symmetric_logarithmic_axis(shown: Any) -> None:
    sizes = np.full_like(shown.total, 0.01)
    sizes[0] = 40.0
    mark = dataclasses.replace(shown, direct=sizes, total=sizes).figures()[0].mark
    assert (mark.scale, mark.linear_within) == ("symlog", 0.01)


def test_without_blocks_there_is_no_figure_by_layer() -> None:
    model = random_model(torch.float64, n_layers=0)
    found = component_effects(model, random_tokens(model, 3), ablate="mean")
    assert len(found.figures()) == 1


def test_summary_has_a_line_for_each_part_and_layer(shown: Any) -> None:
    parts, agreement = shown.summary().split("agreement of direct and total")
    head, _, *rows = parts.splitlines()
    assert head.startswith(
        "effect on log_prob of replacing each part (zero; reference: none); n = 8"
    )
    assert [row.split()[0] for row in rows] == list(shown.components)
    totals = [float(row.split("[")[1].split("]")[1].split()[0]) for row in rows]
    np.testing.assert_allclose(totals, shown.total.mean(1), atol=1e-4)
    assert len(agreement.splitlines()) == 1 + 2 + 1
    one = dataclasses.replace(shown, **{name: getattr(shown, name)[:, :1] for name in
                                        ("direct", "direct_renormalised", "total")})  # fmt: skip
    assert "[unknown]" in one.summary()
    assert "nan" not in one.finding().text


def test_finding_is_the_part_that_costs_most(shown: Any) -> None:
    finding = shown.finding()
    table = shown.to_frame().set_index("component").drop(index=["embed", "pos_embed"])
    most = table.total.abs().idxmax()
    assert f"removing {most} costs most: {table.total[most]:.2f} nats [" in finding.text
    assert finding.select == (f"head={most}" if ".H" in most else "")
    hidden = ((shown.to_frame().total > 2 * shown.to_frame().direct.clip(lower=0))
              & (shown.to_frame().total_low > 0)).sum()  # fmt: skip
    assert f"{hidden} of {len(shown.components)} parts matter more" in finding.text
    assert finding.rank == 1


@pytest.mark.parametrize("batch", [3, 18])
def test_result_round_trips_through_a_file(model: HookedGPT, tmp_path: Path, batch: int) -> None:
    tokens = random_tokens(model, batch)
    for ablate in ("zero", "resample"):
        found = component_effects(model, tokens, ablate=ablate, by="block", metric="kl", seed=4)
        found.save(tmp_path / "effects.json")
        again = Result.load(tmp_path / "effects.json")
        assert type(again) is ComponentEffects
        for field in dataclasses.fields(found):
            one, other = getattr(found, field.name), getattr(again, field.name)
            if isinstance(one, np.ndarray):
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other)
            else:
                assert one == other
        assert again.to_frame().equals(found.to_frame())
        assert again.agreement().equals(found.agreement())


# ---- leaving all as it was -----------------------------------------------------------------------


@pytest.mark.parametrize("ablate", ["zero", "mean", "resample"])
def test_nothing_is_left_changed(model: HookedGPT, ablate: Any) -> None:
    tokens = random_tokens(model, batch=3)
    weights = {name: p.clone() for name, p in model.named_parameters()}
    kept, state = tokens.clone(), torch.random.get_rng_state()
    component_effects(model, tokens, ablate=ablate, metric="kl", by="block")
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(tokens, kept)
    assert not model.training
    assert not model.is_edited
    assert all(p.equal(weights[name]) for name, p in model.named_parameters())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert torch.is_grad_enabled()


def test_training_mode_is_refused_where_dropout_is_random(tokens: Tensor) -> None:
    model = random_model(torch.float64, **SMALL, dropout=0.1).train()
    with pytest.raises(ConfigError, match="training mode"):
        component_effects(model, tokens, ablate="zero")
    assert model.training
    model = random_model(torch.float64, **SMALL).train()
    component_effects(model, tokens, ablate="zero", by="block")
    assert model.training


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"ablate": "nothing"}, ConfigError, "ablate = 'nothing' is not one of 'zero'"),
        ({"by": "neuron"}, ConfigError, "by = 'neuron' is not one of"),
        ({"metric": "logprob"}, ConfigError, "metric = 'logprob' is not one of"),
        ({"metric": "foil"}, ConfigError, "give foils together"),
        ({"foils": 2}, ConfigError, "give foils together"),
        ({"metric": "foil", "foils": 7}, TokenError, "outside the vocabulary"),
        ({"metric": "foil", "foils": "z"}, TokenError, "z"),
        ({"metric": lambda logits, targets: logits.detach().mean()}, ConfigError, "returned shape"),
        ({"ablate": "resample", "draws": 7}, ConfigError, "draws = 7 is too few"),
        ({"chosen": []}, ConfigError, "at least one"),
        ({"chosen": "L0.H1"}, ConfigError, "must be a list"),
        ({"chosen": ["L0.H1", "L0.H2"]}, ConfigError, r"no component 'L0\.H2'"),
        ({"chosen": ["L0.mpl"]}, ConfigError, r"'L0\.mlp'"),
        ({"positions": []}, TokenError, "one or more of 0 … 5"),
        ({"positions": [6]}, TokenError, "one or more of 0 … 5"),
        ({"positions": [-1]}, TokenError, "one or more of 0 … 5"),
        ({"targets": torch.zeros(2, 6, dtype=torch.long)}, TokenError, "targets have shape"),
        ({"targets": torch.zeros(3, 8, dtype=torch.long)}, TokenError, "targets have shape"),
        ({"targets": torch.full((3, 6), 7)}, TokenError, "outside the vocabulary"),
        ({"targets": torch.zeros(3, 6)}, TokenError, "integer"),
        ({"reference": ""}, TokenError, "reference set is empty"),
        ({"reference": "abc"}, TokenError, "3 positions, but 7"),
        ({"reference": "abc", "ablate": "resample"}, TokenError, "3 positions, but 7"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_one_line(
    model: HookedGPT, tokens: Tensor, options: Any, kind: Any, said: str
) -> None:
    with torch.no_grad(), pytest.raises(kind, match=said) as caught:
        unchecked(model, tokens, **options)
    assert "\n" not in str(caught.value)
    assert not model.is_edited


@pytest.mark.parametrize("what", ["targets", "foils"])
@pytest.mark.parametrize(("batch", "given"), [(16, 20), (17, 16), (17, 18), (32, 33)])
def test_as_many_targets_as_sequences(model: HookedGPT, what: str, batch: int, given: int) -> None:
    tokens, wrong = random_tokens(model, batch, 5), random_tokens(model, given, 4)
    options = {what: wrong} | ({"metric": "foil"} if what == "foils" else {})
    with torch.no_grad(), pytest.raises(TokenError, match=f"{what} have shape"):
        unchecked(model, tokens, ablate="zero", by="block", **options)


def test_one_token_has_no_next(model: HookedGPT) -> None:
    with pytest.raises(TokenError, match="no next token"):
        component_effects(model, "a", ablate="zero")
    found = component_effects(model, "a", ablate="zero", targets=torch.tensor([[2]]))
    assert found.positions.tolist() == [0]
