"""Shapley values against the definition: an average over all orders of a model in plain torch."""

# mypy: disable-error-code="arg-type, attr-defined, call-overload, index, operator, union-attr"

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import VARIANTS, VOCABULARY, name_of, random_model, random_tokens, variant_id
from helpers import metric_of
from torch import Tensor, einsum

from interp import (
    CacheError,
    CompletenessError,
    ConfigError,
    GPTConfig,
    HookedGPT,
    InterpError,
    ReferenceSet,
    Result,
    TokenError,
    logit_attribution,
    shapley_values,
)
from interp.analysis.causal import shapley_games

ALL_VARIANTS = [*VARIANTS, {"n_layers": 0}, {"dropout": 0.2}]
BLOCKS = ["embed", "pos_embed", "L0.attn", "L0.mlp", "L1.attn", "L1.mlp"]
FINER = ["embed", "L0.H1", "L0.b_O", "L1.N3", "L1.b_out"]
ACT = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh")}
FOIL = 3


def squared(logits: Tensor, targets: Any) -> Any:
    """Squared probability of the target: a function of the user's, linear in nothing."""
    at = targets[..., None].expand(*logits.shape[:-1], 1)
    return logits.softmax(-1).gather(-1, at)[..., 0] ** 2


def ask(metric: Any, logits: Tensor, targets: Any, base: Any) -> Any:
    """The metric at each position, by its definition."""
    return metric_of(metric, logits, base, targets, FOIL)


def plain_run(model: HookedGPT, tokens: Tensor, replaced: Any = None) -> Any:
    """A GPT in plain torch: its final stream, and what each component wrote, [batch, pos, d_model].

    A component in `replaced` writes what stands there instead.
    """
    cfg, written = model.config, {}

    def write(name: Any, value: Any) -> Any:
        written[name] = (replaced or {}).get(name, value).expand(*tokens.shape, cfg.d_model)
        return written[name]

    def norm(x: Tensor, ln: Any) -> Any:
        return F.layer_norm(x, (cfg.d_model,), ln.w, ln.b, cfg.ln_eps)

    n_pos = tokens.shape[1]
    x = write("embed", model.W_E[tokens])
    if cfg.positional:
        x = x + write("pos_embed", model.W_pos[:n_pos])
    future = torch.ones(n_pos, n_pos, dtype=torch.bool).triu(1)
    for i, block in enumerate(model.blocks):
        attn, read = block.attn, norm(x, block.ln1)
        q, k, v = (einsum("bpm,hmd->bhpd", read, getattr(attn, f"W_{c}")) for c in "QKV")
        if cfg.qkv_bias:
            q, k, v = (y + b[:, None] for y, b in zip((q, k, v), (attn.b_Q, attn.b_K, attn.b_V),
                                                      strict=True))  # fmt: skip
        scores = (q @ k.mT / cfg.attn_scale).masked_fill(future, -torch.inf)
        heads = einsum("bhpd,hdm->bphm", scores.softmax(-1) @ v, attn.W_O)
        heads = [write(f"L{i}.H{h}", heads[:, :, h]) for h in range(cfg.n_heads)]  # type: ignore[assignment]
        x = x + write(f"L{i}.attn", sum(heads)) + write(f"L{i}.b_O", attn.b_O)
        if block.mlp is not None:
            post = ACT[cfg.act_fn](norm(x, block.ln2) @ block.mlp.W_in + block.mlp.b_in)
            neurons = [
                write(f"L{i}.N{n}", post[..., n, None] * block.mlp.W_out[n])
                for n in range(cfg.d_mlp)
            ]
            x = x + write(f"L{i}.mlp", sum(neurons)) + write(f"L{i}.b_out", block.mlp.b_out)
    return x, written


def unembed(model: HookedGPT, x: Tensor) -> Any:
    if model.config.final_norm:
        x = F.layer_norm(x, x.shape[-1:], model.ln_final.w, model.ln_final.b, model.config.ln_eps)
    return x @ model.W_U + (0 if model.b_U is None else model.b_U)


def game(
    model: HookedGPT,
    tokens: Tensor,
    players: Any,
    metric: str = "log_prob",
    reference: Any = None,
    rerun: bool = False,
) -> Any:
    """v(the players who are there), [batch, pos]."""
    x, written = plain_run(model, tokens)
    base, targets = unembed(model, x)[:, :-1], tokens[:, 1:]
    instead = {name: torch.zeros_like(written[name]) for name in players}
    if reference is not None:
        theirs = plain_run(model, reference)[1]
        instead = {name: theirs[name].mean(0, keepdim=True)[:, : tokens.shape[1]]
                   for name in players}  # fmt: skip
    known = {}

    def v(there: Any) -> Any:
        there = frozenset(there)
        if there not in known:
            gone = {name: instead[name] for name in players if name not in there}
            if rerun:
                stream = plain_run(model, tokens, gone)[0]
            else:
                stream = x + sum(instead[name] - written[name] for name in gone)
            known[there] = ask(metric, unembed(model, stream)[:, :-1], targets, base)
        return known[there]

    return v


def over_all_orders(players: Any, v: Any) -> Any:
    """Each player's marginal contribution, averaged over all orders of arrival."""
    total = dict.fromkeys(players, 0.0)
    for order in itertools.permutations(players):
        for k, name in enumerate(order):
            total[name] = total[name] + v(order[: k + 1]) - v(order[:k])
    return torch.stack([total[name] for name in players]) / math.factorial(len(players))  # type: ignore[misc]


def run(model: HookedGPT, tokens: Tensor, players: Any = None, **kwargs: Any) -> Any:
    return shapley_values(model, model.run_with_cache(tokens)[1], players, **kwargs)


def small(seed: int = 0, **kwargs: Any) -> HookedGPT:
    return random_model(torch.float64, seed, **{"d_model": 12, "n_heads": 2, "d_mlp": 8} | kwargs)


# ---- every set -----------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("rerun", [False, True])
@pytest.mark.parametrize("baseline", ["zero", "mean"])
@pytest.mark.parametrize(
    "metric", ["log_prob", "loss", "centered", "foil", "probability", "kl", squared], ids=name_of
)
def test_average_over_all_orders(rerun: bool, baseline: str, metric: Any) -> None:
    model = small()
    tokens, others = random_tokens(model, 2, 5), random_tokens(model, 3, 6, seed=1)
    reference = None if baseline == "zero" else others
    foil = {"foils": FOIL} if metric == "foil" else {}
    for players in ([BLOCKS[1], *FINER[1:4]],) if rerun else (BLOCKS, FINER):
        v = game(model, tokens, players, metric, reference, rerun)
        expected = over_all_orders(players, v)
        given = run(model, tokens, players, metric=metric, rerun=rerun, reference=reference, **foil)
        np.testing.assert_allclose(given.values, expected, rtol=0, atol=1e-10)
        np.testing.assert_allclose(given.base, v([]), rtol=0, atol=1e-10)
        np.testing.assert_allclose(given.total, v(players), rtol=0, atol=1e-10)
        assert (given.standard_error == 0).all()
        assert given.rerun == rerun
        assert given.baseline == ("zero" if baseline == "zero" else "mean of 3 sequences")


@torch.no_grad()
@pytest.mark.parametrize("rerun", [False, True])
@pytest.mark.parametrize("variant", ALL_VARIANTS, ids=variant_id)
def test_average_over_all_orders_in_every_variant(variant: dict[str, Any], rerun: bool) -> None:
    model = small(**{"n_layers": 1} | variant)
    tokens = random_tokens(model, 2, 5)
    given = run(model, tokens, rerun=rerun)
    players = [p for p in BLOCKS if p in plain_run(model, tokens)[1]]
    assert given.components == tuple(players)
    expected = over_all_orders(players, game(model, tokens, players, rerun=rerun))
    np.testing.assert_allclose(given.values, expected, rtol=0, atol=1e-10)


@torch.no_grad()
def test_biases_behind_the_stream_can_be_taken_away_in_a_rerun() -> None:
    model = small()
    tokens = random_tokens(model, 2, 5)
    given = run(model, tokens, ["ln_bias", "b_U"], rerun=True, metric="raw")
    x = plain_run(model, tokens)[0]
    at = tokens[:, 1:]
    np.testing.assert_allclose(given.values[0], (model.ln_final.b @ model.W_U)[at], atol=1e-12)
    np.testing.assert_allclose(given.values[1], model.b_U[at], atol=1e-12)
    raw = unembed(model, x)[:, :-1].gather(-1, at[..., None])[..., 0]
    np.testing.assert_allclose(given.total, raw, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "rerun"),
    [(torch.float32, False), (torch.float64, False), (torch.float32, True)],
    ids=name_of,
)
@pytest.mark.parametrize("variant", ALL_VARIANTS, ids=variant_id)
def test_values_sum_to_total_minus_base(
    variant: dict[str, Any], dtype: torch.dtype, rerun: bool
) -> None:
    model = random_model(dtype, **({"n_layers": 1} if rerun else {}) | variant)
    tokens = random_tokens(model)
    logits = model(tokens).detach()[:, :-1]
    given = run(model, tokens, rerun=rerun, metric="kl" if rerun else "log_prob")
    missed = np.abs(given.values.sum(0) - (given.total - given.base))
    assert (missed <= given.tolerance).all()
    assert (given.efficiency_error <= given.tolerance).all()
    assert (given.tolerance < (1e-2 if dtype == torch.float32 else 1e-9)).all()
    expected = ask("kl" if rerun else "log_prob", logits, tokens[:, 1:], logits)
    np.testing.assert_allclose(given.total, expected, atol=1e-5)


@pytest.mark.parametrize("rerun", [False, True])
def test_float32_agrees_with_float64(rerun: bool) -> None:
    tokens = random_tokens(random_model())
    wide = random_model(torch.float64, n_layers=1 if rerun else 2)
    single = random_model(n_layers=1 if rerun else 2)
    single.load_state_dict(wide.state_dict())
    values = [run(model, tokens, rerun=rerun).values for model in (single, wide)]
    assert values[0].dtype == np.float32
    np.testing.assert_allclose(*values, rtol=0, atol=2e-4)


@pytest.mark.parametrize("rerun", [False, True])
def test_identical_components_get_equal_values(rerun: bool) -> None:
    model = small()
    attn = model.blocks[1].attn
    with torch.no_grad():
        for weight in (attn.W_Q, attn.W_K, attn.W_V, attn.W_O):
            weight[1] = weight[0]
    given = run(model, random_tokens(model), ["L1.H0", "embed", "L1.H1", "L1.mlp"], rerun=rerun)
    np.testing.assert_allclose(given.values[0], given.values[2], rtol=0, atol=1e-12)
    assert np.abs(given.values[0] - given.values[1]).max() > 1e-2


@pytest.mark.parametrize("rerun", [False, True])
def test_what_changes_nothing_gets_nothing(rerun: bool) -> None:
    model = small(n_layers=1)
    with torch.no_grad():
        model.blocks[0].attn.W_O.zero_()
    tokens = random_tokens(model)
    given = run(model, tokens, rerun=rerun)
    np.testing.assert_allclose(given.values[given.components.index("L0.attn")], 0, atol=1e-12)
    given = run(model, tokens, rerun=rerun, reference=random_tokens(model, 3, 9, seed=1))
    np.testing.assert_allclose(given.values[given.components.index("pos_embed")], 0, atol=1e-12)
    assert np.abs(given.values[0]).max() > 1e-2


def test_without_a_norm_a_linear_scalar_is_its_attribution() -> None:
    model = small(final_norm=False)
    tokens = random_tokens(model)
    given = run(model, tokens, metric="centered")
    parts = logit_attribution(model, model.run_with_cache(tokens)[1], metric="centered")
    for value, name in zip(given.values, given.components, strict=True):
        np.testing.assert_allclose(value, parts.row(name)[:, :-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("rerun", [False, True])
def test_one_player_gets_everything(rerun: bool) -> None:
    model = small()
    given = run(model, random_tokens(model), ["L1.mlp"], rerun=rerun)
    np.testing.assert_allclose(given.values[0], given.total - given.base, rtol=0, atol=1e-12)
    again = run(model, random_tokens(model), ["L1.mlp"], rerun=rerun, permutations=3)
    np.testing.assert_allclose(again.values, given.values, rtol=0, atol=1e-12)
    np.testing.assert_allclose(again.standard_error, 0, atol=1e-12)


def test_two_embeddings_are_the_only_players_without_blocks() -> None:
    model = small(n_layers=0, positional=False)
    given = run(model, random_tokens(model))
    assert given.components == ("embed",)
    np.testing.assert_allclose(given.values[0], given.total - given.base, rtol=0, atol=1e-12)


@pytest.mark.parametrize("metric", ["log_prob", "centered", "foil", "probability", "kl", squared])
@pytest.mark.parametrize("permutations", [0, 5])
def test_positions_in_pieces_are_positions_at_once(
    monkeypatch: pytest.MonkeyPatch, metric: Any, permutations: int
) -> None:
    model = small()
    tokens = random_tokens(model, 3, 9)
    given = {"metric": metric, "permutations": permutations}
    given |= {"foils": tokens[:, :-1]} if metric == "foil" else {}
    whole = run(model, tokens, **given)
    for numbers in (1, 64 * 7 * 5):
        monkeypatch.setattr(shapley_games, "NUMBERS_AT_ONCE", numbers)
        for ahead in (1, 3):
            monkeypatch.setattr(shapley_games, "SCALES_AHEAD", ahead)
            pieces = run(model, tokens, **given)
            np.testing.assert_allclose(pieces.values, whole.values, rtol=0, atol=1e-12)
            np.testing.assert_allclose(pieces.base, whole.base, rtol=0, atol=1e-12)


def test_targets_can_be_given_for_some_positions() -> None:
    model = small()
    tokens = random_tokens(model)
    targets = torch.full((2, 3), 4)
    few = run(model, tokens, targets=targets, reference="abcabcabc")
    changed = tokens.clone()
    changed[:, 1:4] = 4
    assert few.values.shape == (6, 2, 3)
    assert (few.targets == 4).all()
    again = run(model, tokens, targets=torch.full((2, 9), 4), reference="abcabcabc")
    np.testing.assert_allclose(few.values, again.values[..., :3], rtol=0, atol=1e-12)


def test_a_reference_set_is_its_tokens() -> None:
    model = small()
    tokens, others = random_tokens(model), random_tokens(model, 4, 12, seed=1)
    one = run(model, tokens, reference=others)
    two = run(model, tokens, reference=ReferenceSet(model, others))
    np.testing.assert_array_equal(one.values, two.values)


# ---- random orders -------------------------------------------------------------------------------


@pytest.mark.parametrize("rerun", [False, True])
def test_random_orders_come_near_all_orders(rerun: bool) -> None:
    model = small(n_layers=1)
    tokens = random_tokens(model, 1, 5)
    exact = run(model, tokens, rerun=rerun)
    n = 12 if rerun else 40
    near = run(model, tokens, rerun=rerun, permutations=n, seed=1)
    assert (near.standard_error > 0).all()
    assert (np.abs(near.values - exact.values) <= 6 * near.standard_error).all()
    np.testing.assert_allclose(near.values.sum(0), near.total - near.base, rtol=0, atol=1e-12)
    np.testing.assert_allclose(near.base, exact.base, rtol=0, atol=1e-12)
    again = run(model, tokens, rerun=rerun, permutations=n, seed=1)
    np.testing.assert_array_equal(near.values, again.values)
    assert near.provenance.seed == 1
    assert exact.provenance.seed is None
    assert near.permutations == n


def test_standard_error_is_the_spread_of_the_estimates() -> None:
    model = small(n_layers=1, d_mlp=4)
    _, cache = model.run_with_cache(random_tokens(model, 1, 4))
    exact = shapley_values(model, cache).values
    runs = [shapley_values(model, cache, permutations=30, seed=seed) for seed in range(60)]
    z = np.stack([(one.values - exact) / one.standard_error for one in runs])
    assert abs(z.mean()) < 0.15
    assert 0.85 < z.std() < 1.3  # Student's t with 29 degrees of freedom: 1.04
    spread = np.stack([one.values for one in runs]).std(0, ddof=1)
    error = np.sqrt(np.mean([one.standard_error**2 for one in runs], axis=0))
    assert (np.abs(error / spread - 1) < 0.4).all()


def test_an_order_and_its_reverse_settle_two_players() -> None:
    model = small()
    tokens = random_tokens(model)
    exact = run(model, tokens, ["embed", "L1.mlp"])
    near = run(model, tokens, ["embed", "L1.mlp"], permutations=2)
    np.testing.assert_allclose(near.values, exact.values, rtol=0, atol=1e-12)
    np.testing.assert_allclose(near.standard_error, 0, atol=1e-12)


def test_many_players_need_random_orders() -> None:
    model = small(n_layers=7, final_norm=False)
    tokens = random_tokens(model, 1, 3)
    _, cache = model.run_with_cache(tokens)
    with pytest.raises(ConfigError, match=r"16 players have 2\^16 sets; give permutations"):
        shapley_values(model, cache, permutations=0)
    given = shapley_values(model, cache, metric="centered", permutations=4)
    parts = logit_attribution(model, cache, metric="centered", targets=tokens[:, 1:])
    for value, name in zip(given.values, given.components, strict=True):
        np.testing.assert_allclose(value, parts.row(name), rtol=0, atol=1e-10)
    given = shapley_values(model, cache)
    assert given.permutations == 200
    assert (given.efficiency_error <= given.tolerance).all()


def test_fourteen_players_are_played_out() -> None:
    model = small(n_layers=6)
    given = run(model, random_tokens(model, 1, 2))
    assert given.permutations == 0
    near = run(model, random_tokens(model, 1, 2), permutations=20)
    assert (np.abs(near.values - given.values) <= 6 * near.standard_error).all()


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("players", "said"),
    [
        ([], "must be a list of different components' labels"),
        ("embed", "must be a list of different components' labels"),
        (["embed", "L0.mlp", "embed"], "must be a list of different components' labels"),
        (["L0.mpl"], r"no component 'L0\.mpl'.*'L0\.mlp'"),
        (["L2.attn"], "no component"),
        (["L0.H2"], "no component"),
        (["ln_bias"], "after the final LayerNorm; they cannot play"),
        (["embed", "b_U"], "after the final LayerNorm; they cannot play"),
    ],
)
def test_wrong_players_are_refused(players: Any, said: str) -> None:
    model = small()
    with pytest.raises(ConfigError, match=said):
        run(model, random_tokens(model), players)


@pytest.mark.parametrize("players", [["L0.attn", "L0.H0"], ["L1.N3", "embed", "L1.mlp"]])
def test_a_component_and_its_own_part_are_refused(players: Any) -> None:
    model = small()
    with pytest.raises(ConfigError):  # the part would be taken away twice
        run(model, random_tokens(model), players)


@pytest.mark.parametrize("permutations", [-1, 1])
def test_too_few_orders_are_refused(permutations: int) -> None:
    model = small()
    with pytest.raises(ConfigError, match="permutations >= 2"):
        run(model, random_tokens(model), permutations=permutations)


def test_what_the_cache_cannot_answer_is_refused() -> None:
    model, tokens = small(), random_tokens(small())
    _, cache = model.run_with_cache(tokens)
    with pytest.raises(CacheError, match="another model"):
        shapley_values(small(), cache)
    with pytest.raises(TokenError, match="no next token"):
        run(model, tokens[:, :1])
    with pytest.raises(ConfigError, match="is not one of"):
        shapley_values(model, cache, metric="logprob")
    with pytest.raises(TokenError, match="3 positions, but 8"):
        shapley_values(model, cache, reference="abc")
    with pytest.raises(ConfigError, match="expected"):
        shapley_values(model, cache, metric=lambda logits, targets: logits)


def test_what_hooks_added_is_always_there_and_a_rerun_without_them_is_refused() -> None:
    model = small()
    with model.hooks([("blocks.0.hook_resid_post", lambda x, hook: 2 * x)]):
        logits, cache = model.run_with_cache(random_tokens(model))
        shapley_values(model, cache, ["embed", "L1.mlp"], rerun=True)
    given = shapley_values(model, cache)
    targets = cache.tokens[:, 1:, None]
    expected = logits.detach()[:, :-1].log_softmax(-1).gather(-1, targets)[..., 0]
    np.testing.assert_allclose(given.values.sum(0) + given.base, expected, rtol=0, atol=1e-12)
    with pytest.raises(CompletenessError):
        shapley_values(model, cache, ["embed", "L1.mlp"], rerun=True)


def test_half_precision_has_no_tolerance() -> None:
    model = random_model(torch.bfloat16)
    _, cache = model.run_with_cache(random_tokens(model))
    with pytest.raises(ConfigError, match="bfloat16"):
        shapley_values(model, cache)


def test_weights_that_are_not_finite_are_refused() -> None:
    model = small()
    with torch.no_grad():
        model.blocks[0].mlp.W_out[0, 0] = torch.nan
    with pytest.raises(InterpError):
        run(model, random_tokens(model))


# ---- the result ----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"rerun": True}, {"permutations": 4}])
def test_progress_ends_with_all_done(options: Any) -> None:
    model = small(n_layers=1)
    seen = []
    run(model, random_tokens(model, 2, 4), progress=lambda *step: seen.append(step), **options)
    assert seen
    assert seen == sorted(seen)
    assert all(done <= total for done, total in seen)
    assert seen[-1] == ((4, 4) if "permutations" in options else (6, 6))


def test_goes_to_disk_and_to_a_table(tmp_path: Path) -> None:
    model = small()
    given = run(model, random_tokens(model), permutations=3)
    given.save(tmp_path / "values.json")
    again = Result.load(tmp_path / "values.json")
    assert type(again) is type(given)
    np.testing.assert_array_equal(again.values, given.values)
    np.testing.assert_array_equal(again.standard_error, given.standard_error)
    assert again.components == given.components
    assert again.provenance == given.provenance
    frame = given.to_frame()
    assert list(frame.columns) == [
        "component", "batch", "pos", "target", "target_char", "value", "standard_error",
    ]  # fmt: skip
    assert len(frame) == given.values.size
    row = frame[(frame.component == "L0.mlp") & (frame.batch == 1) & (frame.pos == 2)]
    assert row.value.item() == given.values[3, 1, 2]
    assert row.target.item() == given.targets[1, 2]
    assert row.target_char.item() == VOCABULARY[given.targets[1, 2]]


def test_bars_are_the_means_over_positions_and_a_component_is_drawn_over_the_passage() -> None:
    model = small()
    given = run(model, random_tokens(model), permutations=3)
    (shown,) = given.figures()
    assert shown.mark.names == given.components
    np.testing.assert_allclose(shown.mark.values, given.values.mean((1, 2)))
    assert "3 random orders, each also backwards" in shown.caption
    mark = given.picture("L0.mlp").mark
    np.testing.assert_array_equal(mark.series[0].values, given.values[3, 0])
    assert [text for _, text in mark.ticks] == [VOCABULARY[t] for t in given.targets[0]]
    first, *rows, last = given.summary().splitlines()
    assert [row.split()[0] for row in rows] == list(given.components)
    assert float(last.split()[1]) == pytest.approx(given.values.mean((1, 2)).sum(), abs=1e-4)
    n = given.values[0].size
    assert first.startswith(f"Shapley values of log_prob (nats), means over {n} positions")


def test_a_rerun_with_random_dropout_is_refused() -> None:
    model = small(dropout=0.5).train()
    _, cache = model.eval().run_with_cache(random_tokens(model))
    with pytest.raises(ConfigError, match="training mode"):
        shapley_values(model.train(), cache, rerun=True)


@pytest.mark.parametrize("rerun", [False, True])
def test_nothing_is_edited(rerun: bool) -> None:
    model = small()
    weights = {name: p.clone() for name, p in model.named_parameters()}
    _, cache = model.run_with_cache(random_tokens(model))
    before = {name: value.clone() for name, value in cache.cache_dict.items()}
    state = torch.get_rng_state()
    shapley_values(model, cache, rerun=rerun, permutations=2)
    assert all(cache[name].equal(value) for name, value in before.items())
    assert all(p.equal(weights[name]) for name, p in model.named_parameters())
    assert torch.get_rng_state().equal(state)
    assert not model.is_edited


def test_a_model_without_a_tokenizer() -> None:
    cfg = GPTConfig(n_layers=1, n_heads=2, d_model=8, n_ctx=4, d_vocab=5)
    model = HookedGPT(cfg).eval()
    given = run(model, torch.tensor([[0, 1, 2]]))
    assert given.values.shape == (4, 1, 2)
