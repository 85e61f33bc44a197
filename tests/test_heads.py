"""What heads look at: every score by hand, against closed forms, its nulls; cards; the command."""

# mypy: disable-error-code="arg-type, attr-defined, call-overload, no-untyped-call, union-attr"

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformer_lens
from conftest import VARIANTS, random_model, random_tokens, variant_id
from scipy import stats as scipy_stats
from torch import Tensor

import interp
from interp import CharTokenizer, ConfigError, GPTConfig, HookedGPT, Result, TokenError
from interp.analysis.heads.attention_targets import ROW_SCORES, key_masks
from interp.analysis.heads.cards import _in_words
from interp.analysis.heads.scores import head_scores
from interp.analysis.heads.significance import above, benjamini_hochberg
from interp.ground_truth import heads as truth

TEXT = "ROMEO:\nO, speak a\n\nJULIET:\nRomeo, o R"
CHARACTERS = "".join(sorted(set(TEXT)))


def plain(model: HookedGPT, tokens: Tensor, **options: Any) -> Any:
    return head_scores(model, tokens, untrained=0, permuted=False, **options)


def patterns_of(model: HookedGPT, tokens: Tensor) -> Any:
    _, cache = model.run_with_cache(tokens)
    return [cache["pattern", layer].numpy() for layer in range(len(model.blocks))]


def text_model(**options: Any) -> Any:
    cfg = GPTConfig(
        n_layers=2, n_heads=2, d_model=16, n_ctx=len(TEXT), d_vocab=len(CHARACTERS), **options
    )
    return HookedGPT(cfg, CharTokenizer(CHARACTERS), seed=1).double().eval()


# ---- kinds of keys ----------------------------------------------------------------------------


def kinds_of(text: Any, **options: Any) -> Any:
    tokenizer = CharTokenizer(CHARACTERS)
    names, masks = key_masks(
        torch.tensor([tokenizer.encode(text)]), tokenizer.characters, **options
    )
    return {name: masks[0, :, :, i].numpy() for i, name in enumerate(names)}


def test_every_kind_of_key_by_hand() -> None:
    """Each kind by its own plain rule, for every query and key of a text."""
    n = len(TEXT)
    found = kinds_of(TEXT, back=3)
    lines, start = np.zeros(n, bool), 0
    for line in TEXT.split("\n"):
        lines[start : start + len(line)] = line.endswith(":")
        start += len(line) + 1

    def last(test: Any, t: Any) -> Any:
        return max((s for s in range(t + 1) if test(TEXT[s])), default=None)

    def word_start(t: Any) -> Any:
        if not TEXT[t].isalpha():
            return None
        while t > 0 and TEXT[t - 1].isalpha():
            t -= 1
        return t

    rules = {
        "previous": lambda t, s: s == t - 1,
        "back-2": lambda t, s: s == t - 2,
        "back-3": lambda t, s: s == t - 3,
        "self": lambda t, s: s == t,
        "sink": lambda t, s: s == 0,
        "local-4": lambda t, s: t - s < 4,
        "duplicate": lambda t, s: s < t and TEXT[s] == TEXT[t],
        "induction": lambda t, s: s >= 1 and TEXT[s - 1] == TEXT[t],
        "space": lambda t, s: TEXT[s] == " ",
        "newline": lambda t, s: TEXT[s] == "\n",
        "punctuation": lambda t, s: TEXT[s] in ":,",
        "capital": lambda t, s: TEXT[s].isupper(),
        "vowel": lambda t, s: TEXT[s] in "aeiouAEIOU",
        "same-letter": lambda t, s: TEXT[s] != TEXT[t] and TEXT[s].lower() == TEXT[t].lower(),
        "last-space": lambda t, s: s == last(lambda c: c == " ", t),
        "last-newline": lambda t, s: s == last(lambda c: c == "\n", t),
        "word-start": lambda t, s: s == word_start(t),
        "speaker-name": lambda t, s: lines[s],
    }  # fmt: skip
    assert set(found) == set(rules)
    for name, rule in rules.items():
        expected = np.array([[s <= t and bool(rule(t, s)) for s in range(n)] for t in range(n)])
        np.testing.assert_array_equal(found[name], expected, err_msg=name)
        assert expected.any(), name


def test_kinds_that_a_vocabulary_lacks_are_absent_not_zero() -> None:
    tokens = torch.tensor([[0, 1, 2, 0, 1]])
    names, _ = key_masks(tokens, "abc")
    assert not {"newline", "last-newline", "speaker-name", "space", "capital"} & set(names)
    assert {"vowel", "word-start", "induction"} <= set(names)
    names, _ = key_masks(tokens, None)
    assert not {"vowel", "word-start"} & set(names)


# ---- scores -----------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", [{}, {"qkv_bias": True}, {"qk_norm": True}], ids=variant_id)
def test_scores_are_means_over_eligible_queries(variant: dict[str, Any]) -> None:
    model = random_model(torch.float64, **variant)
    tokens = random_tokens(model, 18, 7)  # more than one piece
    result = plain(model, tokens)
    names, masks = key_masks(tokens, model.tokenizer.characters)
    for layer, pattern in enumerate(patterns_of(model, tokens)):
        for name in set(names) & set(result.scores):
            mask = masks[..., names.index(name)].numpy()
            i = result.scores.index(name)
            for b in range(len(tokens)):
                count = mask[b].sum(-1)
                queries = [t for t in range(7) if 0 < count[t] < t + 1]
                if not queries:
                    assert np.isnan(result.values[i, :, :, b]).all()
                    continue
                mass = [(pattern[b, :, t] * mask[b, t]).sum(-1) for t in queries]
                np.testing.assert_allclose(
                    result.values[i, layer, :, b], np.mean(mass, 0), atol=1e-6
                )
                chance = np.mean([count[t] / (t + 1) for t in queries])
                np.testing.assert_allclose(result.uniform[i, layer, :, b], chance, atol=1e-6)


def test_row_scores_by_hand() -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model, 3, 6)
    result = plain(model, tokens)
    _, cache = model.run_with_cache(tokens)
    for layer in range(2):
        pattern = cache["pattern", layer].numpy()
        written = torch.einsum("bkhd,hdm->bhkm", cache["v", layer], model.W_O[layer]).norm(dim=-1)
        for b, h in np.ndindex(3, 4):
            rows = [pattern[b, h, t, : t + 1] for t in range(1, 6)]
            sizes = written[b, h].detach().numpy()
            entropy = [-(p * np.log(p)).sum() for p in rows]
            expected = {
                "sink-value": [p[0] * sizes[0] / (p * sizes[: len(p)]).sum() for p in rows],
                "confidence": [p.max() for p in rows],
                "entropy": [e / np.log(len(p)) for e, p in zip(entropy, rows, strict=True)],
                "span": np.exp(entropy),
                "distance": [(p * (len(p) - 1 - np.arange(len(p)))).sum() for p in rows],
            }
            for name in ROW_SCORES:
                got = result.values[result.scores.index(name), layer, h, b]
                assert got == pytest.approx(np.mean(expected[name]), abs=1e-6), name


def test_uniform_attention_scores_what_the_uniform_null_says() -> None:
    """Ground truth: no queries, so weights 1/(t+1)."""
    model = truth.uniform_head()
    tokens = torch.stack([torch.randperm(8) for _ in range(6)]).repeat(1, 2)
    result = plain(model, tokens)
    np.testing.assert_allclose(result.values, result.uniform, atol=1e-6)
    assert result.of("entropy")[0, 0] == pytest.approx(1)
    t = np.arange(1, 16)
    assert result.of("span")[0, 0] == pytest.approx((t + 1).mean(), rel=1e-6)
    assert result.of("distance")[0, 0] == pytest.approx((t / 2).mean())
    assert result.of("previous")[0, 0] == pytest.approx((1 / (t + 1)).mean())
    logits = model(tokens)
    for b, at in np.ndindex(tokens.shape):
        seen = torch.bincount(tokens[b, : at + 1], minlength=8)
        torch.testing.assert_close(
            logits[b, at], 10.0 * seen.double() / (at + 1), atol=1e-9, rtol=0
        )
    assert (result.p_values()[:, 0, 0][[result.scores.index("previous")]] > 0.01).all()


@pytest.mark.parametrize("n", [8, 64, 256])
def test_uniform_null_of_the_previous_token(n: int) -> None:
    known = {8: 0.245, 64: 0.0594, 256: 0.0201}
    cfg = GPTConfig(n_layers=1, n_heads=1, d_model=4, n_ctx=n, d_vocab=3)
    result = plain(HookedGPT(cfg), torch.arange(n)[None] % 3)
    assert float(result.uniform[0].mean()) == pytest.approx(known[n], abs=6e-4)


@pytest.mark.parametrize("k", [1, 3])
def test_a_k_back_head(k: int) -> None:
    """Ground truth: e^β/(e^β + t) at t − k for t ≥ k, 1/(e^β + t) elsewhere."""
    beta = 3.0
    model = truth.back_head(k, beta)
    tokens = torch.stack([torch.randperm(8) for _ in range(3)]).repeat(1, 2)
    result = plain(model, tokens)
    t = np.arange(k, 16)
    name = "previous" if k == 1 else f"back-{k}"
    assert result.of(name)[0, 0] == pytest.approx((math.e**beta / (math.e**beta + t)).mean())
    other = "back-2"
    t = np.arange(2, 16)
    by_offset = np.where(t >= k, 1 / (math.e**beta + t), 1 / (t + 1))
    assert result.of(other)[0, 0] == pytest.approx(by_offset.mean())
    assert result.of(name)[0, 1] == pytest.approx(
        float(result.uniform[result.scores.index(name)].mean())
    )


def test_a_duplicate_head() -> None:
    """Ground truth: m earlier copies have m e^β / ((m+1) e^β + t − m)."""
    beta = 2.0
    model = truth.duplicate_head(beta)
    tokens = torch.tensor([[0, 1, 0, 0, 2, 1, 0, 3, 3, 0]])
    result = plain(model, tokens)
    row, expected = tokens[0].tolist(), []
    for t, token in enumerate(row):
        m = row[:t].count(token)
        if m:
            expected.append(m * math.e**beta / ((m + 1) * math.e**beta + t - m))
    assert result.of("duplicate")[0, 0] == pytest.approx(np.mean(expected))


def test_an_induction_circuit() -> None:
    """Ground truth: patterns, logits, ½ at t = 8, and what is left without the first head."""
    model = truth.induction()
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
    tokens = order.repeat(2)[None]
    logits, cache = model.run_with_cache(tokens)
    first, second = cache["pattern", 0][0, 0], cache["pattern", 1][0, 0]
    previous = first[torch.arange(1, 16), torch.arange(15)]
    assert float(previous.min()) == pytest.approx(1 - 15 / (math.e**30 + 15), abs=1e-15)
    weight = second[torch.arange(8, 16), torch.arange(1, 9)]
    torch.testing.assert_close(weight[1:], torch.ones(7, dtype=torch.float64), atol=1e-11, rtol=0)
    assert float(weight[0]) == pytest.approx(0.5, abs=1e-12)
    nxt = logits[0, torch.arange(8, 15), tokens[0, 9:16]]
    expected = torch.tensor([5.0, *[10.0] * 6], dtype=torch.float64)
    torch.testing.assert_close(nxt, expected, atol=1e-9, rtol=0)
    parts = interp.logit_attribution(model, cache, "head", metric="raw")
    np.testing.assert_allclose(parts.row("L1.H0"), parts.total, atol=1e-9)
    for head in ("L0.H0", "L0.H1", "L1.H1"):
        np.testing.assert_array_equal(parts.row(head), 0)
    with interp.intervene(model, "zero L0.H0"):
        without = model(tokens)[0]
    for t in range(16):
        seen = torch.bincount(tokens[0, : t + 1], minlength=8)
        torch.testing.assert_close(without[t], 10.0 * seen.double() / (t + 1), atol=1e-9, rtol=0)
    result = plain(model, tokens)
    assert result.of("previous")[0, 0] == pytest.approx(1)
    assert result.of("induction")[1, 0] == pytest.approx((0.5 + 7) / 8)
    assert result.of("induction")[0, 0] < 0.1


def test_agrees_with_transformer_lens_where_the_definition_is_the_same() -> None:
    """Its "mul" measure divides by all queries, ours by the eligible ones, and for "previous" query
    0 counts with nothing: so its score times n / (n − 1) is ours. Position 0 of its induction and
    duplicate patterns is kept here; it refuses sequences that fill the context, so one less."""
    model = text_model()
    text = TEXT[:-1]
    found = plain(model, text)
    n = len(text)
    names, masks = key_masks(model.to_tokens(text), model.tokenizer.characters)
    for ours, theirs in (
        ("previous", "previous_token_head"), ("duplicate", "duplicate_token_head"),
        ("induction", "induction_head"),
    ):  # fmt: skip
        detected = transformer_lens.head_detector.detect_head(
            model, text, theirs, exclude_bos=False, exclude_current_token=False, error_measure="mul"
        )
        mask = masks[0, :, :, names.index(ours)].numpy()
        count = mask.sum(-1)
        eligible = (count > 0) & (count < np.arange(1, n + 1))
        i = found.scores.index(ours)
        # theirs also counts queries that can see nothing but such keys; add them back
        whole = ((count > 0) & ~eligible).sum()
        mine = (found.values[i, :, :, 0] * eligible.sum() + whole) / n
        np.testing.assert_allclose(mine, detected.numpy(), atol=1e-6, err_msg=ours)


def test_cache_and_mode_are_untouched() -> None:
    model = random_model().train()
    tokens = random_tokens(model)
    _, cache = model.run_with_cache(tokens)
    before = cache["pattern", 0].clone()
    head_scores(model, tokens, untrained=1)
    assert cache["pattern", 0].equal(before)
    assert model.training


# ---- nulls and tests --------------------------------------------------------------------------


def test_permuted_null_keeps_the_attention_and_moves_the_kinds() -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model, 4, 9)
    result = head_scores(model, tokens, untrained=0, seed=5)
    order = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(5)).argsort(1)
    names, masks = key_masks(tokens.gather(1, order), model.tokenizer.characters)
    mask = masks[..., names.index("duplicate")].numpy()
    pattern = patterns_of(model, tokens)[1]
    i = result.scores.index("duplicate")
    for b in range(4):
        queries = [t for t in range(9) if 0 < mask[b, t].sum() < t + 1]
        if queries:
            mass = np.mean([(pattern[b, :, t] * mask[b, t]).sum(-1) for t in queries], 0)
            np.testing.assert_allclose(result.permuted[i, 1, :, b], mass, atol=1e-6)
    assert np.isnan(result.permuted[result.scores.index("previous")]).all()


def test_untrained_null_is_that_of_fresh_models() -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model, 3, 8)
    result = head_scores(model, tokens, untrained=2, permuted=False, seed=7)
    fresh = HookedGPT(model.config, model.tokenizer, seed=9).double().eval()
    own = plain(fresh, tokens)
    i = result.scores.index("previous")
    assert result.untrained.shape[1:] == (2, 8)  # layer, 2 models × 4 heads
    np.testing.assert_allclose(result.untrained[i, :, 4:], own.of("previous"), atol=1e-6)


def test_p_values_are_the_largest_of_the_tests() -> None:
    model = random_model(torch.float64)
    result = head_scores(model, random_tokens(model, 12, 9), untrained=3)
    i = result.scores.index("duplicate")
    p = result.p_values()[i, 1, 2]
    use = result.usable(i)
    value = result.values[i, 1, 2, use].astype(float)
    tests = [
        scipy_stats.ttest_rel(value, result.uniform[i, 1, 2, use], alternative="greater").pvalue
    ]
    other = result.permuted[i, 1, 2, use]
    keep = np.isfinite(result.permuted[i]).all((0, 1))[use]
    tests.append(scipy_stats.ttest_rel(value[keep], other[keep], alternative="greater").pvalue)
    null = result.untrained[i, 1].astype(float)
    t = (value.mean() - null.mean()) / null.std(ddof=1) / np.sqrt(1 + 1 / len(null))
    tests.append(scipy_stats.t.sf(t, len(null) - 1))
    assert p == pytest.approx(max(tests), rel=1e-3)
    assert np.isnan(result.p_values()[result.scores.index("distance")]).all()


def test_a_score_that_untrained_heads_have_too_is_no_finding() -> None:
    model = random_model()
    scores = head_scores(model, random_tokens(model, 12, 9), untrained=2)
    i = scores.scores.index("previous")
    values, untrained = scores.values.copy(), scores.untrained.copy()
    values[i] = 0.9
    untrained[i] = np.resize([0.8, 1.0], untrained.shape[1:])
    assert dataclasses.replace(scores, values=values).p_values()[i].max() < 0.05
    both = dataclasses.replace(scores, values=values, untrained=untrained)
    np.testing.assert_allclose(both.p_values()[i], 0.5, atol=1e-3)


def test_p_values_on_some_sequences_are_those_of_these_alone() -> None:
    model = random_model()
    scores = head_scores(model, random_tokens(model, 12, 9), untrained=2)
    some = np.arange(12) % 3 == 0
    alone = dataclasses.replace(
        scores, values=scores.values[..., some], uniform=scores.uniform[..., some],
        permuted=scores.permuted[..., some], tokens=scores.tokens[some],
    )  # fmt: skip
    np.testing.assert_array_equal(scores.p_values(some), alone.p_values())
    assert not np.allclose(scores.p_values(some), scores.p_values(), equal_nan=True)


def test_differences_that_are_all_alike_leave_no_doubt() -> None:
    np.testing.assert_array_equal(above(np.array([[0.5] * 4, [0.0] * 4, [-0.1] * 4])), [0, 0.5, 1])


def test_p_of_differences_is_students() -> None:
    differences = np.random.default_rng(0).normal(0.3, 1, (2, 3, 9)).astype(np.float32)
    t = differences.mean(-1) / differences.std(-1, ddof=1) * 3
    np.testing.assert_allclose(above(differences), scipy_stats.t.sf(t, 8), rtol=1e-4)


def test_q_values_are_benjamini_and_hochbergs() -> None:
    p = np.array([[0.01, np.nan], [0.04, 0.03]])
    np.testing.assert_allclose(benjamini_hochberg(p), [[0.03, np.nan], [0.04, 0.04]])


# ---- table, disk, figure, card ----------------------------------------------------------------


def test_table_disk_and_figure(tmp_path: Path) -> None:
    model = text_model()
    texts = [TEXT[i : i + 30] for i in range(8)]
    result = head_scores(model, texts, untrained=2)
    frame = result.to_frame()
    promised = {"layer", "head", "score", "value", "low", "high", "null", "p_value", "q_value", "n"}
    assert promised <= set(frame.columns)
    assert len(frame) == 4 * len(result.scores)
    row = frame.query("layer == 1 and `head` == 0 and score == 'vowel'").iloc[0]
    i = result.scores.index("vowel")
    assert row["value"] == pytest.approx(result.values[i, 1, 0].mean(), rel=1e-5)
    assert row["null"] == pytest.approx(result.uniform[i, 1, 0].mean(), rel=1e-5)
    assert row["low"] <= row["value"] <= row["high"]
    result.save(tmp_path / "r.json")
    np.testing.assert_array_equal(Result.load(tmp_path / "r.json").values, result.values)
    (shown,) = result.figures()
    assert "n = 8 sequences, seed 0" in shown.caption
    mark = shown.mark
    assert mark.columns == ("L0.H0", "L0.H1", "L1.H0", "L1.H1")
    assert mark.column_breaks == (2,)
    assert not set(mark.rows) & set(ROW_SCORES)
    at = mark.rows.index("vowel"), 2
    share = (row["value"] - row["null"]) / (1 - row["null"])
    assert mark.values[at] == pytest.approx(share)
    for number, shown_share in zip(mark.numbers[at[0]], mark.values[at[0]], strict=True):
        assert bool(number) == (abs(shown_share) >= 0.1)


def test_a_heads_own_picture_has_its_scores_beside_all_nulls() -> None:
    model = text_model()
    result = head_scores(model, [TEXT[i : i + 30] for i in range(8)], untrained=2)
    mark = result.picture("L1.H0").mark
    assert not {"span", "distance"} & set(mark.names)  # no shares of attention
    row = result.to_frame().query("layer == 1 and `head` == 0 and score == 'vowel'").iloc[0]
    at = mark.names.index("vowel")
    of = ("value", "null", "null_permuted", "null_untrained")
    assert [one.values[at] for one in mark.series] == [row[name] for name in of]
    assert (mark.series[0].low[at], mark.series[0].high[at]) == (row["low"], row["high"])
    with pytest.raises(ConfigError, match=r"no figure 'L7\.H0'"):
        result.picture("L7.H0")


def test_the_summary_names_what_each_head_looks_at() -> None:
    model = truth.back_head(3)
    result = plain(model, torch.stack([torch.randperm(8) for _ in range(9)]).repeat(1, 2))
    lines = result.summary().splitlines()
    assert lines[1].split()[:3] == ["L0.H0", "back-3", f"{result.of('back-3')[0, 0]:.3f}"]
    assert "n = 9 sequences of 16, 0 untrained models, seed 0." in lines[0]


def test_patterns_are_drawn_with_the_masked_half_empty(tmp_path: Path) -> None:
    model = text_model()
    _, cache = model.run_with_cache(TEXT)
    found = interp.attention_patterns(model, cache)
    (shown,) = found.figures()
    assert [panel.title for panel in shown.mark.marks] == ["L0.H0", "L0.H1", "L1.H0", "L1.H1"]
    assert not shown.on_page
    own = found.picture("L1.H0").mark
    assert own.rows == own.columns == tuple(TEXT.replace(" ", "␣").replace("\n", "⏎"))
    hidden = np.triu(np.ones_like(own.values, dtype=bool), 1)  # type: ignore[type-var]
    assert np.isnan(own.values[hidden]).all()
    expected = cache["pattern", 1][0, 0].detach().numpy()
    np.testing.assert_array_equal(own.values[~hidden], expected[~hidden])  # type: ignore[misc]
    row = found.to_frame().query("layer == 1 and `head` == 0 and pos == 9 and key == 7").iloc[0]
    assert row["weight"] == expected[9, 7]
    assert (row["character"], row["key_character"]) == ("␣", "O")


def test_the_summary_of_patterns_has_the_largest_weights() -> None:
    model = truth.back_head(2)
    _, cache = model.run_with_cache(torch.tensor([[3, 1, 4, 0, 5, 2]]))
    line = interp.attention_patterns(model, cache).summary().splitlines()[1]
    assert line.split()[:2] == ["L0.H0", "1.000"]
    assert "query 3 (0), key 1 (1)" in line


def test_card_tells_where_a_head_looks_and_what_it_writes(tmp_path: Path) -> None:
    model = truth.induction()
    tokens = torch.stack(
        [torch.randperm(8, generator=torch.Generator().manual_seed(i)) for i in range(12)]
    ).repeat(1, 2)
    scores = head_scores(model, tokens, untrained=2)
    card = interp.head_card(model, "L1.H0", scores, interp.label_heads(model, scores))
    np.testing.assert_allclose(card.example_weight, 1, atol=1e-9)
    where = zip(card.example_sequence, card.example_pos, card.example_back, strict=True)
    for i, (b, pos, back) in enumerate(where):
        assert tokens[b, pos - back - 1] == tokens[b, pos]
        assert card.example_key[i] == f"{tokens[b, pos - back]} "
        assert card.example_text[i].split()[-1] == str(int(tokens[b, pos]))
    np.testing.assert_array_equal(card.write_raised_ids[:, 0], card.write_token_ids)
    by = card.write_raised_by[:, 0] / 1e12  # gains of two LayerNorms of eps 10¹², scales left out
    np.testing.assert_allclose(by, 10 * 7 / 8)  # less the mean over 8 tokens
    assert card.copying == pytest.approx(1)
    assert card.labels == ("back-7", "induction")  # one period for all
    assert card.name == "head-card-L1.H0"
    assert str(card).startswith("L1.H0: back-7, induction\n")
    assert _in_words(np.array([1, 0]), np.array([0.04, -0.0125]), str) == "1 +0.040  0 -0.013"
    card.save(tmp_path / "c.json")
    again = Result.load(tmp_path / "c.json")
    assert str(again) == str(card)
    assert again.evidence().equals(card.evidence())
    assert again.provenance.model == scores.provenance.model
    (shown,) = card.figures()
    frame = card.to_frame().set_index("score").loc[list(shown.mark.names)]
    np.testing.assert_array_equal(shown.mark.series[0].values, frame["value"])
    np.testing.assert_array_equal(shown.mark.series[1].values, frame["null"])
    assert interp.head_card(model, "L1.H0", scores).labels == ()
    with pytest.raises(ConfigError, match="not a head"):
        interp.head_card(model, "embed", scores)


@pytest.mark.parametrize("variant", VARIANTS, ids=variant_id)
def test_every_variant_has_scores(variant: dict[str, Any]) -> None:
    model = random_model(**variant)
    result = head_scores(model, random_tokens(model, 3, 8), untrained=1)
    assert np.isfinite(result.of("previous")).all()


# ---- bad input --------------------------------------------------------------------------------


def test_what_cannot_be_scored_is_refused() -> None:
    model = random_model()
    with pytest.raises(TokenError, match="1 token; every score needs"):
        head_scores(model, "a")
    with pytest.raises(ConfigError, match="without blocks"):
        head_scores(random_model(n_layers=0), "abc")
    with pytest.raises(ConfigError, match="back = 0"):
        head_scores(model, "abc", back=0)
    with pytest.raises(ConfigError, match="no score 'newline' here; there are previous"):
        plain(model, "abc").of("newline")


def test_scores_that_short_sequences_cannot_have_are_absent() -> None:
    result = plain(random_model(), "abc")
    assert "previous" in result.scores
    assert not {"back-3", "duplicate", "induction"} & set(result.scores)
