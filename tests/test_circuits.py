"""Circuits from the weights and paths from runs, against plain computations and known answers."""

# mypy: disable-error-code="attr-defined, call-overload, index, operator, union-attr"

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import VARIANTS, random_model, random_tokens, variant_id

import interp
from interp import ConfigError, HookedGPT, HookError, Result, TokenError
from interp.analysis.circuits.composition import composition_scores
from interp.analysis.circuits.paths import path_effects
from interp.analysis.circuits.score_sources import score_sources
from interp.analysis.circuits.weights import copying_scores, ov_circuit, qk_circuit
from interp.gpt.layers import LayerNorm
from interp.ground_truth import heads as truth


def repeats_twice(n: int, seed: int = 0) -> Any:
    """Each a permutation of the tokens, twice."""
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randperm(8, generator=generator) for _ in range(n)]).repeat(1, 2)


# ---- the weights ------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS, ids=variant_id)
def test_circuits_are_the_products_of_the_weights(variant: dict[str, Any]) -> None:
    model = random_model(torch.float64, **variant)
    block, cfg = model.blocks[1], model.config
    centre = torch.eye(cfg.d_model, dtype=torch.float64) - 1 / cfg.d_model
    read = model.W_E @ centre @ block.ln1.w.diag()
    qk = read @ block.attn.W_Q[2] @ block.attn.W_K[2].T @ read.T / cfg.attn_scale
    torch.testing.assert_close(qk_circuit(model, 1, 2).AB, qk)
    last = (
        centre @ model.ln_final.w.diag()
        if isinstance(model.ln_final, LayerNorm)
        else torch.eye(cfg.d_model, dtype=torch.float64)
    )
    ov = read @ block.attn.W_V[2] @ block.attn.W_O[2] @ last @ model.W_U
    torch.testing.assert_close(ov_circuit(model, 1, 2).AB, ov)
    assert ov_circuit(model, 1, 2).A.shape == (cfg.d_vocab, cfg.d_head)
    values = np.linalg.eigvals(ov.detach().numpy())
    values = values[np.argsort(-np.abs(values))][: cfg.d_head]
    copying = copying_scores(model).copying[1, 2]
    assert copying == pytest.approx(values.real.sum() / np.abs(values).sum(), abs=1e-9)


def test_own_logit_and_rank_by_hand() -> None:
    model = random_model(torch.float64)
    found = copying_scores(model)
    ov = ov_circuit(model, 0, 3).AB.detach().numpy()
    own = np.diag(ov) - ov.mean(1)
    rank = [(row > row[i]).sum() / (len(row) - 1) for i, row in enumerate(ov)]
    assert found.own_logit[0, 3] == pytest.approx(own.mean())
    assert found.own_rank[0, 3] == pytest.approx(np.mean(rank))
    frame = found.to_frame()
    assert list(frame.columns) == ["layer", "head", "copying", "own_logit", "own_rank"]


def test_a_copying_head_copies_and_a_gain_scales_the_qk_circuit() -> None:
    model = truth.induction()
    found = copying_scores(model)
    assert found.copying[1, 0] == pytest.approx(1)
    assert found.own_rank[1, 0] == 0
    learned = random_model(torch.float64, learned_scale=True)
    with torch.no_grad():
        before = qk_circuit(learned, 0, 1).AB
        learned.blocks[0].attn.gain[1] *= 3
    torch.testing.assert_close(qk_circuit(learned, 0, 1).AB, 3 * before)


def test_composition_scores_by_hand_and_their_null() -> None:
    model = random_model(torch.float64)
    table = composition_scores(model, draws=300, seed=1).to_frame()
    assert len(table) == 4 * 4 * 3
    block = model.blocks[1]
    centre = torch.eye(32, dtype=torch.float64) - 1 / 32
    gain = centre @ block.ln1.w.diag()
    W_OV = model.W_V[0, 1] @ model.W_O[0, 1]
    Q, K, V = (gain @ w for w in (model.W_Q[1, 2], model.W_K[1, 2], model.W_V[1, 2]))
    readers = {"Q": Q @ K.T, "K": K @ Q.T, "V": V @ model.W_O[1, 2]}
    for letter, M in readers.items():
        row = table.query(
            f"sender == 'L0.H1' and receiver == 'L1.H2' and letter == '{letter}'"
        ).iloc[0]
        score = (W_OV @ M).norm() / W_OV.norm() / M.norm()
        assert row["score"] == pytest.approx(float(score.detach()))
    assert table["null"].between(0.1, 0.3).all()  # near 1/√32 = 0.177
    assert (table["p_value"] < 0.05).mean() < 0.35  # weights with a common bias, yet random ones


def test_composition_of_turned_weights_follows_its_null() -> None:
    """Weights whose directions are random: p is small no more often than it says."""
    model = HookedGPT(interp.GPTConfig(n_layers=2, n_heads=4, d_model=32, n_ctx=4, d_vocab=5))
    table = composition_scores(model, draws=200).to_frame()
    assert (table["p_value"] < 0.05).mean() < 0.2


def test_composition_null_is_drawn_pair_by_pair_from_one_stream() -> None:
    """An independent computation with the same draws: readers, then letters, then senders."""
    model = random_model(torch.float64)
    found = composition_scores(model, draws=3, seed=5)
    assert found.letters[:5] == ("Q", "Q", "Q", "Q", "K")
    assert found.senders[:5] == ("L0.H0", "L0.H1", "L0.H2", "L0.H3", "L0.H0")
    assert found.receivers[:13] == ("L1.H0",) * 12 + ("L1.H1",)
    rng = np.random.default_rng(5)
    scale = (torch.eye(32, dtype=torch.float64) - 1 / 32) @ model.blocks[1].ln1.w.diag()
    M = (scale @ model.W_Q[1, 0] @ (scale @ model.W_K[1, 0]).T).detach().numpy()
    r = np.linalg.svd(M)[1][:8]
    for sender in range(2):
        W_OV = (model.W_V[0, sender] @ model.W_O[0, sender]).detach().numpy()
        s = np.linalg.svd(W_OV)[1][:8]
        null = []
        for _ in range(3):
            turn = np.linalg.qr(rng.standard_normal((32, 8)))[0][:8]
            null.append(np.linalg.norm(np.diag(s) @ turn @ np.diag(r)))
        null = np.array(null) / np.linalg.norm(s) / np.linalg.norm(r)
        assert found.null[sender] == pytest.approx(null.mean(), rel=1e-9)
        assert found.null_std[sender] == pytest.approx(null.std(ddof=1), rel=1e-9)


def test_composition_scores_to_disk_figure_and_provenance(tmp_path: Path) -> None:
    model = random_model(n_layers=3)
    found = composition_scores(model, draws=5, seed=2)
    found.save(tmp_path / "c.json")
    again = Result.load(tmp_path / "c.json")
    assert again.to_frame().equals(found.to_frame())
    assert again.provenance.seed == 2
    (shown,) = found.figures()
    assert [panel.title for panel in shown.mark.marks] == ["Q", "K", "V"]
    row = (
        found.to_frame()
        .query("sender == 'L1.H2' and receiver == 'L2.H3' and letter == 'K'")
        .iloc[0]
    )
    keys = shown.mark.marks[1]
    at = keys.rows.index("L1.H2"), keys.columns.index("L2.H3")
    assert keys.values[at] == pytest.approx(row["score"] - row["null"])
    assert np.isnan(keys.values[at[0], keys.columns.index("L1.H0")])  # it does not come later
    assert keys.low == -keys.high == -max(np.nanmax(np.abs(p.values)) for p in shown.mark.marks)


def test_one_layer_has_nothing_to_compose() -> None:
    found = composition_scores(random_model(n_layers=1), draws=5)
    assert found.to_frame().empty
    assert found.figures() == []


def test_copying_scores_are_drawn_as_they_are() -> None:
    found = copying_scores(random_model())
    (shown,) = found.figures()
    copying, rank = shown.mark.marks
    np.testing.assert_array_equal(copying.values, found.copying)
    np.testing.assert_array_equal(rank.values, found.own_rank)
    assert copying.numbers[1][2] == f"{found.copying[1, 2]:.2f}"


# ---- positions or tokens ----------------------------------------------------------------------


def test_a_head_of_positions_and_one_of_tokens() -> None:
    """Ground truth: shuffled tokens move the first by 0, shuffled positions the second by 0."""
    tokens = repeats_twice(12)
    table = score_sources(truth.back_head(1), tokens).to_frame()
    places, idle = table.iloc[0], table.iloc[1]
    assert places["tokens_moved"] == pytest.approx(0, abs=1e-12)
    assert places["positions_moved"] > 0.7
    assert places["offset_share"] > 0.9  # rows of different lengths have different means
    assert places["token_share"] < 0.2
    content = score_sources(truth.duplicate_head(), tokens).to_frame().iloc[0]
    assert content["positions_moved"] == pytest.approx(0, abs=1e-12)
    assert content["tokens_moved"] > 0.2
    assert content["token_share"] == pytest.approx(1, abs=0.2)
    assert (idle[["offset_share", "token_share", "tokens_moved", "positions_moved"]] == 0).all()


def test_divergence_of_disjoint_attention_is_one_bit() -> None:
    """Two-token sequences whose order is turned: the head looks at other keys altogether."""
    model = truth.back_head(1)
    with torch.no_grad():  # look at the token 0, wherever it is
        attn = model.blocks[0].attn
        attn.W_Q.zero_()
        attn.W_K.zero_()
        for i in range(8):
            attn.W_Q[0, :, 0] += 40 * attn.attn_scale * model.W_E[i]
        attn.W_K[0, :, 0] = model.W_E[0]
    tokens = torch.tensor([[0, 1]] * 40)
    moved = score_sources(model, tokens).tokens_moved[0, 0]
    order = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(0)).argsort(1)
    assert moved == pytest.approx(float((order[:, 0] == 1).double().mean()), abs=1e-9)


def test_a_model_without_positions_says_nan() -> None:
    table = score_sources(random_model(positional=False), "abcab").to_frame()
    assert table["positions_moved"].isna().all()
    assert (table["tokens_moved"] >= 0).all()


def test_score_sources_to_disk_and_figure(tmp_path: Path) -> None:
    model = random_model()
    found = score_sources(model, random_tokens(model, 3, 7), seed=4)
    found.save(tmp_path / "s.json")
    assert Result.load(tmp_path / "s.json").to_frame().equals(found.to_frame())
    assert (found.to_frame()["n"] == 3).all()
    (shown,) = found.figures()
    assert shown.mark.names[5] == "L1.H1"
    assert shown.mark.series[2].values[5] == found.tokens_moved[1, 1]
    assert "n = 3 sequences, seed 4" in shown.caption


# ---- paths ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "letter"),
    [(truth.induction(), "k"), (truth.induction(route="q"), "q"), (truth.two_hops(), "v")],
    ids=["k", "q", "v"],
)
def test_the_path_map_names_the_right_letter(model: Any, letter: str) -> None:
    """Ground truth: one way from L0.H0 to the second layer; all other paths carry exactly 0."""
    tokens = repeats_twice(10)
    if letter == "v":  # predicts the token two back: give it such text
        tokens = repeats_twice(10)[:, :2].repeat(1, 8)
    where = torch.zeros_like(tokens, dtype=torch.bool)
    where[:, 8:15] = True
    found = path_effects(model, tokens, where=where)
    for sender in ("L0.H0", "L0.H1"):
        for other in "qkv":
            effect = found.of(sender, f"L1.{other}")
            if (sender, other) == ("L0.H0", letter):
                assert abs(effect) > 0.1
            else:
                assert effect == pytest.approx(0, abs=1e-9), (sender, other)


def test_two_hops_are_one_of_two_back() -> None:
    """Ground truth: the product of the two patterns is that of t − 2, and so are the logits."""
    model = truth.two_hops()
    tokens = repeats_twice(3)
    logits, cache = model.run_with_cache(tokens)
    virtual = cache["pattern", 1][:, 0] @ cache["pattern", 0][:, 0]
    for t in range(2, 16):
        assert float(virtual[:, t, t - 2].min()) == pytest.approx(1, abs=1e-10)
        expected = 10 * torch.nn.functional.one_hot(tokens[:, t - 2], 8).double()
        torch.testing.assert_close(logits[:, t], expected, atol=1e-8, rtol=0)


def test_a_bigram_model_is_its_table() -> None:
    """Ground truth: no blocks, logits the table's rows, loss its negative log-likelihood."""
    generator = torch.Generator().manual_seed(0)
    log_p = torch.randn(6, 6, generator=generator, dtype=torch.float64).log_softmax(-1)
    model = truth.bigram(log_p)
    tokens = torch.randint(6, (4, 10), generator=generator)
    logits, cache = model.run_with_cache(tokens)
    torch.testing.assert_close(logits, log_p[tokens], atol=1e-9, rtol=0)
    loss = -log_p[tokens[:, :-1], tokens[:, 1:]].mean()
    assert float(model(tokens, "loss")) == pytest.approx(float(loss), abs=1e-9)
    parts = interp.logit_attribution(model, cache, "block", metric="raw")
    np.testing.assert_allclose(parts.row("embed"), parts.total, atol=1e-9)
    assert set(parts.components) <= {"embed", "ln_bias"}


@pytest.mark.parametrize("variant", [{}, {"d_mlp": 0}, {"qkv_bias": True}], ids=variant_id)
def test_path_effects_are_those_of_the_intervention(variant: dict[str, Any]) -> None:
    model = random_model(torch.float64, **variant)
    tokens, reference = random_tokens(model, 3, 7), random_tokens(model, 6, 7, seed=5)
    found = path_effects(
        model, tokens, reference=reference, receivers=["L1.q", "L1.H2.v", "L1.mlp", "logits"]
        if "d_mlp" not in variant else ["L1.q", "L1.H2.v", "logits"],
    )  # fmt: skip
    clean = model(tokens, "loss", loss_per_token=True).mean(1)
    for receiver in found.receivers:
        with interp.intervene(model, f"mean L0.H3 into {receiver}", reference=reference):
            cut = model(tokens, "loss", loss_per_token=True).mean(1)
        s, r = found.senders.index("L0.H3"), found.receivers.index(receiver)
        np.testing.assert_allclose(found.values[s, r], (cut - clean).detach(), atol=1e-12)


def test_means_are_over_the_other_sequences_and_only_counted_positions_count() -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model, 3, 7)
    where = torch.zeros_like(tokens, dtype=torch.bool)
    where[:, 4] = True
    found = path_effects(model, tokens, senders=["L0.H1"], receivers=["L1.k"], where=where)
    for b in range(3):
        others = tokens[[i for i in range(3) if i != b]]
        with interp.intervene(model, "mean L0.H1 into L1.k", reference=others):
            cut = model(tokens[b : b + 1], "loss", loss_per_token=True)[0, 4]
        clean = model(tokens[b : b + 1], "loss", loss_per_token=True)[0, 4]
        assert found.values[0, 0, b] == pytest.approx(float((cut - clean).detach()), abs=1e-12)


def test_path_effects_to_table_disk_figure_and_words(tmp_path: Path) -> None:
    model = random_model(n_layers=3)
    found = path_effects(model, random_tokens(model, 6, 7))
    frame = found.to_frame()
    assert len(frame) == 8 * 6 - 4 * 3  # layer 1's heads are not read by layer 1
    assert (frame["low"] <= frame["effect"]).all()
    found.save(tmp_path / "p.json")
    np.testing.assert_array_equal(Result.load(tmp_path / "p.json").values, found.values)
    (shown,) = found.figures()
    assert "n = 6 sequences, seed 0" in shown.caption
    assert shown.mark.rows == found.senders
    assert shown.mark.columns == found.receivers
    np.testing.assert_allclose(shown.mark.values, found.values.mean(-1))
    assert shown.mark.high == pytest.approx(np.nanmax(np.abs(found.values.mean(-1))))
    at = found.senders.index("L1.H0"), found.receivers.index("L1.q")  # read before it is written
    assert shown.mark.numbers[at[0]][at[1]] == ""
    largest = frame.loc[frame["effect"].abs().idxmax()]
    first = found.summary().splitlines()[1]
    assert first.split()[:3] == [largest["sender"], "→", largest["receiver"]]
    assert f"{largest['effect']:+.4f} [{largest['low']:+.4f}, {largest['high']:+.4f}]" in first


def test_what_makes_no_path_is_refused() -> None:
    model = random_model()
    tokens = random_tokens(model)
    with pytest.raises(ConfigError, match="one layer of them"):
        path_effects(random_model(n_layers=1), "abcab")
    with pytest.raises(ConfigError, match=r"L0\.mlp is not one"):
        path_effects(model, tokens, senders=["L0.mlp"])
    with pytest.raises(TokenError, match="no others to take means over"):
        path_effects(model, tokens[:1])
    with pytest.raises(TokenError, match="where has shape"):
        path_effects(model, tokens, where=torch.ones(1, 2, dtype=torch.bool))
    with pytest.raises(TokenError, match="without a position"):
        path_effects(model, tokens, where=torch.zeros_like(tokens, dtype=torch.bool))
    with model.hooks([("hook_embed", lambda x, hook: x)]), pytest.raises(HookError, match="twice"):
        path_effects(model, tokens)
    for wrong in (qk_circuit, ov_circuit):
        with pytest.raises(ConfigError):
            wrong(model, 0, 9)
    with pytest.raises(ConfigError, match="no bilinear form"):
        qk_circuit(random_model(qk_norm=True), 0, 0)
    with pytest.raises(TokenError, match="two tokens"):
        score_sources(model, "a")
