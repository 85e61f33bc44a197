# mypy: disable-error-code="call-overload, union-attr"
from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from conftest import assert_close

from interp import attention_patterns, component_effects, logit_attribution, shapley_values
from interp.gpt.config import GPTConfig
from interp.gpt.layers import LayerNorm
from interp.ground_truth.effects import (
    NEUTRAL_EPS,
    and_gate,
    backup,
    constant_block,
    feature,
    neutralise,
    norm_repair,
    silent_sink,
    writer_eraser,
)
from interp.stream.components import components

WITHIN = 1e-9
CASES = {
    **{f"constant {v}": (constant_block, (v,)) for v in (2.0, -3.0, 0.25)},
    **{f"sink {beta}": (silent_sink, (beta,)) for beta in (30.0, 0.0, 3.0, -2.0)},
    **{f"writer {v}": (writer_eraser, (v,)) for v in (2.0, -3.0, 0.25)},
    **{f"backup {v}": (backup, (v,)) for v in (2.0, -3.0, 0.3)},
    **{f"and {v}": (and_gate, (v,)) for v in (2.0, -3.0, 0.25)},
    **{
        f"norm {a} {c} {eps}": (norm_repair, (a, c, eps))
        for a, c, eps in [(1.5, 2, 1e-5), (0.5, -4, 1e-5), (-2, 1, 1e-5), (1, 3, 0.1), (3, 0.1, 1)]
    },
}


@pytest.fixture(params=CASES, scope="module")
def truth(request: pytest.FixtureRequest) -> Any:
    make, options = CASES[request.param]
    return make(*options)


def last_targets(truth: Any) -> Any:
    return torch.zeros_like(truth.tokens)


def effects_of(truth: Any, by: Any, tokens: Any = None) -> Any:
    tokens = truth.tokens if tokens is None else tokens
    return component_effects(
        truth.model, tokens, ablate="zero", by=by, metric="raw",
        targets=torch.zeros_like(tokens), positions=[tokens.shape[1] - 1],
    )  # fmt: skip


def shapley(truth: Any, players: Any, rerun: Any) -> Any:
    _, cache = truth.model.run_with_cache(truth.tokens)
    values = shapley_values(
        truth.model, cache, players, metric="raw", targets=last_targets(truth), rerun=rerun
    )
    return dict(zip(players, values.values[:, 0, -1], strict=True))


def assert_shares(given: Any, expected: Any) -> None:
    for name, value in given.items():
        assert abs(value - expected.get(name, 0.0)) < WITHIN, (name, value)


# ---- effects -------------------------------------------------------------------------------------


def test_logit_is_the_one_stated(truth: Any) -> None:
    logits = truth.model(truth.tokens)
    assert truth.target == 0
    assert abs(float(logits[0, -1, 0]) - truth.logit) < WITHIN
    assert truth.model.dtype == torch.float64
    assert not truth.model.training


@pytest.mark.parametrize("by", ["block", "head"])
def test_effects_are_the_exact_ones(truth: Any, by: Any) -> None:
    found = effects_of(truth, by)
    assert set(found.components) == {str(c) for c in components(truth.model.config, by)}
    for i, name in enumerate(found.components):
        exact = truth.effects.get(name)
        for kind in ("direct", "total", "layer_norm_part", "downstream_part"):
            value = float(getattr(found, kind)[i, 0])
            expected = getattr(exact, kind) if exact is not None else 0.0
            assert abs(value - expected) < WITHIN, (name, kind, value)
        one_out = 0.0 if exact is None else exact.direct - exact.layer_norm_part
        assert abs(float(found.direct_renormalised[i, 0]) - one_out) < WITHIN, name


def test_stated_parts_add_up_and_name_components(truth: Any) -> None:
    known = {str(c) for by in ("block", "head") for c in components(truth.model.config, by)}
    assert set(truth.effects) <= known
    for effect in truth.effects.values():
        parts = effect.total + effect.layer_norm_part + effect.downstream_part
        assert abs(effect.direct - parts) < 1e-12


def test_attribution_is_the_direct_effect(truth: Any) -> None:
    _, cache = truth.model.run_with_cache(truth.tokens)
    for by in ("block", "head"):
        rows = logit_attribution(truth.model, cache, by, metric="raw", targets=last_targets(truth))
        for name in rows.components:
            exact = truth.effects.get(name)
            expected = 0.0 if exact is None else exact.direct
            assert abs(float(rows.row(name)[0, -1]) - expected) < WITHIN, name


@pytest.mark.parametrize("v", [2.0, -3.0, 0.25])
def test_closed_forms(v: float) -> None:
    """The answers written out here, not read from the module."""

    def table(truth: Any, *names: Any) -> Any:
        found = effects_of(truth, "head")
        rows = [found.components.index(name) for name in names]
        kinds = ("direct", "total", "layer_norm_part", "downstream_part")
        return np.array([getattr(found, kind)[rows, 0] for kind in kinds]).T

    for truth, names, expected in [
        (constant_block(v), ["L1.b_out"], [[v, v, 0, 0]]),
        (writer_eraser(v), ["L0.mlp", "L1.mlp"], [[v, 0, 0, v], [-v, -v, 0, 0]]),
        (backup(v), ["L0.mlp", "L1.mlp"], [[v, 0, 0, v], [0, 0, 0, 0]]),
        (
            and_gate(v), ["L0.H0", "L0.H1", "L0.mlp"],
            [[0, v, 0, -v], [0, v, 0, -v], [v, v, 0, 0]],
        ),
    ]:  # fmt: skip
        np.testing.assert_allclose(table(truth, *names), expected, rtol=0, atol=WITHIN)


@pytest.mark.parametrize(
    ("a", "c"), [(1.5, 2.0), (0.2, 5.0), (-1.0, 3.0), (4.0, -0.5), (1.0, 0.01), (1e-3, 1.0)]
)
@pytest.mark.parametrize("eps", [1e-5, 1e-2, 1.0])
def test_norm_repair_closed_form(a: float, c: float, eps: float) -> None:
    truth = norm_repair(a, c, eps)
    with_both, alone = a / math.sqrt((a**2 + c**2) / 16 + eps), a / math.sqrt(a**2 / 16 + eps)
    found = effects_of(truth, "block")
    mlp, embed = (found.components.index(name) for name in ("L0.mlp", "embed"))
    logits = truth.model(truth.tokens)
    assert abs(float(logits[0, -1, 0]) - with_both) < WITHIN
    assert abs(found.direct[mlp, 0]) < WITHIN
    assert abs(found.total[mlp, 0] - (with_both - alone)) < WITHIN
    assert abs(found.layer_norm_part[mlp, 0] - (alone - with_both)) < WITHIN
    np.testing.assert_allclose(
        [found.direct[embed, 0], found.total[embed, 0]], with_both, rtol=0, atol=WITHIN
    )
    assert (np.abs(found.downstream_part) < WITHIN).all()


def test_effects_are_the_same_in_every_sequence() -> None:
    tokens = torch.tensor([[2, 3, 2, 3], [3, 3, 2, 2], [0, 2, 0, 3]])
    for make in (constant_block, writer_eraser, backup, and_gate, norm_repair, silent_sink):
        found = effects_of(make(), "block", tokens)
        for values in (found.direct, found.total, found.direct_renormalised):
            np.testing.assert_allclose(values, values[:, :1].repeat(3, 1), rtol=0, atol=WITHIN)
        frame = found.to_frame()
        assert not frame.signs_disagree.any()
        exact = [make().effects.get(name) for name in found.components]
        np.testing.assert_allclose(
            frame[["total_low", "total_high"]],
            [[0.0 if e is None else e.total] * 2 for e in exact],
            rtol=0, atol=WITHIN,
        )  # fmt: skip


# ---- Shapley values ------------------------------------------------------------------------------


@pytest.mark.parametrize("v", [2.0, -3.0, 0.25])
def test_shapley_values_with_the_model_run_again(v: float) -> None:
    for truth, expected in [
        (constant_block(v), {"L1.b_out": v, "embed": 0, "L0.mlp": 0}),
        (writer_eraser(v), {"L0.mlp": v / 2, "L1.mlp": -v / 2}),
        (backup(v), {"L0.mlp": v / 2, "L1.mlp": v / 2}),
        (and_gate(v), {"L0.H0": v / 2, "L0.H1": v / 2}),
        (and_gate(v), {"L0.H0": v / 3, "L0.H1": v / 3, "L0.mlp": v / 3}),
        (and_gate(v), dict.fromkeys(("embed", "L0.H0", "L0.H1", "L0.mlp"), v / 4)),
    ]:
        assert_shares(shapley(truth, list(expected), rerun=True), expected)
    truth = and_gate(v)
    assert_shares(shapley(truth, list(truth.shapley), rerun=True), truth.shapley)


@pytest.mark.parametrize("v", [2.0, -3.0])
def test_shapley_values_through_the_final_norm_are_direct_effects_where_it_is_neutral(
    v: float,
) -> None:
    for make in (constant_block, writer_eraser, backup, and_gate):
        truth = make(v)
        inner = components(truth.model.config, "head")[:-2]  # without ln_bias and b_U
        players = [str(c) for c in inner]
        expected = {name: effect.direct for name, effect in truth.effects.items()}
        if make is backup:
            expected["L1.mlp"] = 0.0
        assert_shares(shapley(truth, players, rerun=False), expected)


@pytest.mark.parametrize("rerun", [False, True])
def test_shapley_values_of_a_silent_head_are_nothing(rerun: bool) -> None:
    for value in shapley(silent_sink(), ["embed", "L0.H0", "L0.mlp"], rerun).values():
        assert value == 0


@pytest.mark.parametrize("rerun", [False, True])
@pytest.mark.parametrize(("a", "c"), [(1.5, 2.0), (-1.0, 3.0), (2.0, -0.5)])
def test_shapley_values_of_norm_repair(a: float, c: float, rerun: bool) -> None:
    """v(∅) = v(mlp) = 0, v(embed) = alone, v(both) = both; in either game."""
    both, alone = a / math.sqrt((a**2 + c**2) / 16 + 1e-5), a / math.sqrt(a**2 / 16 + 1e-5)
    expected = {"embed": (alone + both) / 2, "L0.mlp": (both - alone) / 2}
    assert_shares(shapley(norm_repair(a, c), ["embed", "L0.mlp"], rerun), expected)


@pytest.mark.parametrize("sublayer", ["attn", "mlp"])
def test_order_of_the_players_does_not_matter(sublayer: str) -> None:
    """Also where two of them share a hook point."""
    truth = norm_repair()
    constant = f"L0.{'b_O' if sublayer == 'attn' else 'b_out'}"
    with torch.no_grad():
        truth.model.blocks[0].attn.b_O.copy_(feature(0) / 2)
        truth.model.blocks[0].mlp.b_out.copy_(feature(0) - feature(2))
    players = ["embed", f"L0.{sublayer}", constant]
    expected = shapley(truth, players, rerun=False)
    for order in itertools.permutations(players):
        given = shapley(truth, list(order), rerun=True)
        assert_shares(given, expected)  # the MLP reads nothing: both games are the same


# ---- the devices ---------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [30.0, 3.0, 0.0, -2.0])
def test_sink_weight_is_its_closed_form(beta: float) -> None:
    truth = silent_sink(beta)
    _, cache = truth.model.run_with_cache(truth.tokens)
    pattern = attention_patterns(truth.model, cache).patterns[0, 0]
    for t in range(4):
        at_first = math.exp(beta) / (math.exp(beta) + t)
        others = 1 / (math.exp(beta) + t)
        assert abs(pattern[t, 0] - at_first) < WITHIN
        np.testing.assert_allclose(pattern[t, 1 : t + 1], others, rtol=0, atol=WITHIN)
        assert (pattern[t, t + 1 :] == 0).all()
    assert (cache["result", 0] == 0).all()
    assert (cache["attn_out", 0] == 0).all()


def test_sink_is_silent_exactly() -> None:
    found = effects_of(silent_sink(), "head")
    head = found.components.index("L0.H0")
    for values in (found.direct, found.direct_renormalised, found.total):
        assert values[head, 0] == 0
    assert silent_sink().effects == {}


def test_sink_would_speak_of_the_token_it_reads() -> None:
    truth = silent_sink()
    tokens = torch.tensor([[1, 3, 2, 3]])
    assert abs(float(truth.model(tokens)[0, -1, 0]) - 1) < WITHIN


@pytest.mark.parametrize("size", [1.0, 100.0])
def test_neutral_layer_norm_subtracts_the_mean(size: float) -> None:
    cfg = GPTConfig(n_layers=1, n_heads=1, d_model=16, n_ctx=8, d_vocab=4, ln_eps=NEUTRAL_EPS)
    norm = LayerNorm(cfg).to(torch.float64)
    norm.b.data.zero_()
    neutralise(norm)
    x = size * torch.randn(50, 16, generator=torch.Generator().manual_seed(0)).double() + 3
    centred = x - x.mean(-1, keepdim=True)
    bound = centred.square().mean(-1, keepdim=True) / (2 * NEUTRAL_EPS) + 1e-13
    with torch.no_grad():
        error = (norm(x) - centred).abs()
    assert (error <= bound * centred.abs().amax(-1, keepdim=True)).all()
    norm.eps = 4.0
    neutralise(norm)
    assert_close(norm.w.data, torch.full((16,), 2.0, dtype=torch.float64))


def test_features_are_orthonormal_with_mean_zero() -> None:
    features = torch.stack([feature(i) for i in range(8)])
    assert_close(features @ features.T, torch.eye(8, dtype=torch.float64))
    assert (features.mean(-1) == 0).all()
    assert feature(1, n=3).shape == (6,)
