"""The self-test of a model: sound models pass every check, and every check can fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import VARIANTS, name_of, random_model, random_tokens, variant_id
from torch import Tensor

from interp import (
    ActivationCache,
    CompletenessError,
    HookedGPT,
    ModelChecks,
    Result,
    TokenError,
    check_model,
    logit_attribution,
)
from interp.analysis import gauges, self_test as checks
from interp.gpt.layers import MLP, Attention, PastKeys
from interp.stream.resume import run_from

PARITY = [
    "weights are finite numbers",
    "with and without a cache",
    "run on from the middle",
    "token by token and all at once",
    "one sequence and many",
    "later tokens change nothing earlier",
    "float32 and float64",
]
W_U = "a vector added to every column of W_U"
B_OUT = "a constant added to all of b_out"
QK, V = "queries and keys in another basis", "values in another basis"
HEADS, FOLD = "heads in another order", "final gain and bias folded into W_U"
GAUGE = [W_U, B_OUT, QK, V, HEADS, FOLD]
ONE_BY_ONE, MIDDLE, CACHED, ALONE, CAUSAL, WIDE = (
    PARITY[3], PARITY[2], PARITY[1], PARITY[4], PARITY[5], PARITY[6],
)  # fmt: skip

VARIANTS_LACK = [
    *((variant, set()) for variant in VARIANTS if not {"final_norm", "tied", "d_mlp"} & {*variant}),
    ({"final_norm": False}, {B_OUT, FOLD}),
    ({"tied": True, "unembed_bias": False}, {W_U, FOLD}),
    ({"unembed_bias": False}, {FOLD}),
    ({"d_mlp": 0}, {B_OUT}),
    ({"n_layers": 0}, {ONE_BY_ONE, B_OUT, QK, V, HEADS}),
    ({"dropout": 0.2}, set()),
    ({"n_layers": 3, "qkv_bias": True}, set()),
]


def check(model: HookedGPT, batch: int = 3, pos: int = 7, **kwargs: Any) -> Any:
    return check_model(model, random_tokens(model, batch, pos), **kwargs)


def with_outcome(given: Any, outcome: Any) -> Any:
    return {name for name, o in zip(given.names, given.outcomes, strict=True) if o == outcome}


# ---- sound models --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "lacks", "dtype"),
    [*((*one, torch.float32) for one in VARIANTS_LACK), ({}, set(), torch.float64)],
    ids=name_of,
)
def test_sound_models_pass(variant: dict[str, Any], lacks: Any, dtype: torch.dtype) -> None:
    given = check(random_model(dtype, **variant))
    assert given.passed, given.to_frame()
    assert with_outcome(given, "does not apply") == lacks
    assert with_outcome(given, "passed") == {*PARITY, *GAUGE} - lacks
    assert given.names == (*PARITY, *GAUGE)
    assert given.kinds == ("parity",) * 7 + ("gauge",) * 6
    for name, error, note in zip(given.names, given.errors, given.notes, strict=True):
        assert np.isnan(error) == bool(note) == (name in lacks)


def test_every_variant_is_tried() -> None:
    assert [variant_id(v) for v in VARIANTS] == [
        variant_id(v) for v in VARIANTS if v in [variant for variant, _ in VARIANTS_LACK]
    ]


def test_half_precision_is_held_to_half_precision() -> None:
    given = check(random_model(torch.bfloat16))
    assert given.passed, given.to_frame()


def test_text_of_two_characters_is_enough() -> None:
    assert check_model(random_model(), "ab").passed
    assert check_model(random_model(), ["ab", "ca"]).passed
    assert check(random_model(), pos=16).passed


def test_one_token_is_refused() -> None:
    with pytest.raises(TokenError, match="at least two tokens"):
        check_model(random_model(), "a")
    with pytest.raises(TokenError):
        check_model(random_model(), "z!")


def test_a_seed_is_a_choice_of_transformations() -> None:
    model = random_model()
    one, same, other = (check(model, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.errors, same.errors)
    assert not np.array_equal(one.errors, other.errors)
    assert other.passed
    assert other.provenance.seed == 1


@pytest.mark.parametrize("training", [False, True])
def test_the_model_is_not_touched(training: bool) -> None:
    model = random_model(dropout=0.2).train(training)
    weights = {name: p.clone() for name, p in model.named_parameters()}
    versions = {name: p._version for name, p in model.named_parameters()}
    calls = []
    model.add_hook("blocks.0.hook_resid_pre", lambda x, hook: calls.append(hook.name))
    state = torch.get_rng_state()
    given = check(model)
    assert given.passed
    assert torch.get_rng_state().equal(state)
    assert model.training is training
    assert all(module.training is training for module in model.modules())
    assert calls == []
    assert len(model.hook_dict["blocks.0.hook_resid_pre"].fwd_hooks) == 1
    assert sum(point.edited for point in model.hook_dict.values()) == 1
    assert all(p.equal(weights[name]) for name, p in model.named_parameters())
    assert {name: p._version for name, p in model.named_parameters()} == versions
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    model.reset_hooks()


# ---- every check can fail ------------------------------------------------------------------------


def sees_ahead(attn: Any, x: Tensor, project: Any) -> Any:
    return project(attn, x + 1e-3 * x.mean(1, keepdim=True))


def sees_neighbours(attn: Any, x: Tensor, project: Any) -> Any:
    return project(attn, x * (1 + 1e-2 * len(x)))


def sees_precision(attn: Any, x: Tensor, project: Any) -> Any:
    return project(attn, x * (1.1 if x.dtype == torch.float32 else 1.0))


def sees_query_weights(attn: Any, x: Tensor, project: Any) -> Any:
    q, k, v = project(attn, x)
    return q * attn.W_Q.norm(), k, v


def sees_value_weights(attn: Any, x: Tensor, project: Any) -> Any:
    q, k, v = project(attn, x)
    return q, k, v * attn.W_V.norm()


def sees_head_number(attn: Any, x: Tensor, project: Any) -> Any:
    q, k, v = project(attn, x)
    return q, k, v * torch.arange(1, v.shape[2] + 1, dtype=v.dtype)[:, None]


@pytest.mark.parametrize(
    ("broken", "fails"),
    [
        (sees_ahead, {CAUSAL, ONE_BY_ONE}),
        (sees_neighbours, {ALONE}),
        (sees_precision, {WIDE}),
        (sees_query_weights, {QK}),
        (sees_value_weights, {V}),
        (sees_head_number, {HEADS}),
    ],
)
def test_attention_that_sees_what_it_must_not(
    monkeypatch: pytest.MonkeyPatch, broken: Any, fails: Any
) -> None:
    project = Attention.project
    monkeypatch.setattr(Attention, "project", lambda self, x: broken(self, x, project))
    given = check(random_model())
    assert with_outcome(given, "failed") == fails
    assert not given.passed


def test_written_out_attention_that_differs_from_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = Attention.scores
    monkeypatch.setattr(Attention, "scores", lambda self, *args: 1.1 * scores(self, *args))
    assert with_outcome(check(random_model()), "failed") == {CACHED, MIDDLE}


def test_masks_that_differ_between_queries_with_and_without_a_past(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extend = PastKeys.extend

    def confused(self: Any, k: Any, v: Any) -> Any:
        k, v = extend(self, k, v)
        return k.roll(1, 1), v

    monkeypatch.setattr(PastKeys, "extend", confused)
    assert with_outcome(check(random_model()), "failed") == {ONE_BY_ONE}


def test_a_run_from_the_middle_that_lands_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        checks, "run_from", lambda model, x, depth: run_from(model, x + 0.01, (0, 1))
    )
    assert with_outcome(check(random_model()), "failed") == {MIDDLE}


def test_neurons_that_see_a_constant_of_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    pre = MLP.pre
    monkeypatch.setattr(MLP, "pre", lambda self, x: pre(self, x) + self.b_out.mean())
    assert with_outcome(check(random_model()), "failed") == {B_OUT}


def test_an_attribution_of_raw_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        gauges,
        "logit_attribution",
        lambda *args, **options: logit_attribution(*args, **options, metric="raw"),
    )
    assert with_outcome(check(random_model()), "failed") == {W_U}


def test_an_attribution_that_leaves_out_the_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_gain(model: HookedGPT, cache: ActivationCache, by: Any, **options: Any) -> Any:
        parts = logit_attribution(model, cache, by, **options)
        gain = model.ln_final.w
        assert isinstance(gain, Tensor)
        return replace(parts, values=parts.values / float(gain.mean()))

    monkeypatch.setattr(gauges, "logit_attribution", without_gain)
    assert with_outcome(check(random_model()), "failed") == {FOLD}


def test_an_attribution_that_refuses_is_a_check_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise CompletenessError("the parts miss the model's own logits")

    monkeypatch.setattr(gauges, "logit_attribution", refuse)
    assert with_outcome(check(random_model()), "failed") == set(GAUGE)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_weights_that_are_not_finite(bad: Any) -> None:
    model = random_model()
    mlp = model.blocks[0].mlp
    assert mlp is not None
    with torch.no_grad():
        mlp.W_in[0, 0] = bad
    given = check(model)
    failed = with_outcome(given, "failed")
    assert PARITY[0] in failed
    assert given.errors[0] == 1
    assert failed >= {CACHED, WIDE, QK}


def test_a_weight_that_is_not_finite_where_no_token_looks() -> None:
    model = random_model()
    with torch.no_grad():
        model.pos_embed.W_pos[-1, 0] = torch.nan
    assert with_outcome(check(model), "failed") == {PARITY[0]}


# ---- the result ----------------------------------------------------------------------------------


def test_goes_to_disk_and_to_a_table(tmp_path: Path) -> None:
    given = check(random_model(d_mlp=0))
    given.save(tmp_path / "checks.json")
    again = Result.load(tmp_path / "checks.json")
    assert isinstance(again, ModelChecks)
    np.testing.assert_array_equal(again.errors, given.errors)
    assert again.outcomes == given.outcomes
    frame = given.to_frame()
    assert list(frame.columns) == ["kind", "check", "outcome", "error", "tolerance", "note"]
    assert len(frame) == 13
    lacking = frame[frame.outcome == "does not apply"]
    assert list(lacking.check) == [B_OUT]
    assert "no b_out" in lacking.note.item()
    assert (frame[frame.outcome == "passed"].error <= frame.tolerance[frame.error.notna()]).all()


def test_not_a_number_without_a_reason_is_a_failure() -> None:
    given = check(random_model())
    errors = given.errors.copy()
    errors[2] = np.nan
    broken = replace(given, errors=errors)
    assert with_outcome(broken, "failed") == {MIDDLE}
    assert not broken.passed
