"""Count models against dictionaries, and the one-head model's logits against plain sums."""

# mypy: disable-error-code="arg-type, no-any-return"

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from conftest import assert_close
from hypothesis import given, settings, strategies as st
from torch import Tensor

from interp import (
    CharTokenizer,
    CompletenessError,
    ConfigError,
    LadderConfig,
    TextError,
    TokenError,
    build_model,
    ngram_losses,
    single_head_attribution,
)

ORDERS = (1, 2, 3, 4, 5)
SMOOTHINGS = ("add", "kneser-ney")


# ---- count models by dictionaries ------------------------------------------------------------


class Counts:
    """The definition, one character at a time: dictionaries of tuples."""

    def __init__(self, text: list[int], d_vocab: int) -> None:
        self.text, self.d_vocab = text, d_vocab

    def grams(self, n: int) -> list[tuple[int, ...]]:
        return [tuple(self.text[i : i + n]) for i in range(len(self.text) - n + 1)]

    def add(self, context: tuple[int, ...], y: int, constant: float) -> float:
        grams = Counter(self.grams(len(context) + 1))
        total = sum(count for gram, count in grams.items() if gram[:-1] == context)
        return (grams[*context, y] + constant) / (total + constant * self.d_vocab)

    def kneser_ney(self, context: tuple[int, ...], y: int, order: int) -> float:
        n = len(context) + 1
        counts: dict[tuple[int, ...], int] = Counter(self.grams(n))
        if n < order:
            before = defaultdict(set)
            for gram in self.grams(n + 1):
                before[gram[1:]].add(gram[0])
            counts = {gram: len(kinds) for gram, kinds in before.items()}
        shorter = self.kneser_ney(context[1:], y, order) if n > 1 else 1 / self.d_vocab
        after = {gram[-1]: count for gram, count in counts.items() if gram[:-1] == context}
        if not after:
            return shorter
        ones, twos = (sum(1 for c in counts.values() if c == many) for many in (1, 2))
        D = ones / (ones + 2 * twos) if ones and twos else 0.5
        total = sum(after.values())
        own = max(after.get(y, 0) - D, 0) / total
        return own + D * len(after) / total * shorter

    def loss(self, asked: list[int], order: int, smoothing: str, constant: float) -> float:
        parts = []
        for i in range(order - 1, len(asked)):
            context = tuple(asked[i - order + 1 : i])
            p = (
                self.add(context, asked[i], constant)
                if smoothing == "add"
                else self.kneser_ney(context, asked[i], order)
            )
            parts.append(-math.log(p))
        return sum(parts) / len(parts)


@given(data=st.data(), smoothing=st.sampled_from(SMOOTHINGS), d_vocab=st.integers(1, 4))
@settings(max_examples=60)
def test_losses_are_those_of_dictionaries(
    data: st.DataObject, smoothing: Any, d_vocab: int
) -> None:
    ids = st.integers(0, d_vocab - 1)
    seen = data.draw(st.lists(ids, min_size=5, max_size=40))
    asked = data.draw(st.lists(ids, min_size=5, max_size=12))
    constant = data.draw(st.sampled_from([0.01, 0.5, 3.0]))
    given_ = ngram_losses(seen, asked, d_vocab, smoothing=smoothing, constant=constant)
    assert tuple(given_.orders) == ORDERS
    assert tuple(given_.n) == tuple(len(asked) - order + 1 for order in ORDERS)
    counts = Counts(seen, d_vocab)
    expected = [counts.loss(asked, order, smoothing, constant) for order in ORDERS]
    np.testing.assert_allclose(given_.losses, expected, atol=1e-12, rtol=1e-12)


@given(data=st.data(), smoothing=st.sampled_from(SMOOTHINGS), order=st.sampled_from(ORDERS))
@settings(max_examples=60)
def test_probabilities_of_all_next_characters_sum_to_one(
    data: st.DataObject, smoothing: Any, order: int
) -> None:
    """A validation text of `order` characters asks for one probability, exp(−loss)."""
    d_vocab = data.draw(st.integers(1, 5))
    ids = st.integers(0, d_vocab - 1)
    seen = data.draw(st.lists(ids, min_size=order, max_size=60))
    context = data.draw(st.lists(ids, min_size=order - 1, max_size=order - 1))
    p = []
    for y in range(d_vocab):
        losses = ngram_losses(
            seen, [*context, y], d_vocab, orders=(order,), smoothing=smoothing, constant=0.1
        )
        assert losses.n.tolist() == [1]
        p.append(math.exp(-losses.losses[0]))
    assert sum(p) == pytest.approx(1.0, abs=1e-12)
    assert min(p) > 0


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_context_never_seen_is_uniform_or_what_shorter_contexts_say(smoothing: Any) -> None:
    seen = [0, 1, 0, 1, 0, 1, 2, 2, 3]  # 3 is last, so nothing follows it
    losses = ngram_losses(seen, [3, 0], 4, orders=(2,), smoothing=smoothing).losses[0]
    if smoothing == "add":
        assert losses == pytest.approx(math.log(4), abs=1e-12)
    else:
        counts = Counts(seen, 4)
        assert losses == pytest.approx(-math.log(counts.kneser_ney((), 0, 2)), abs=1e-12)


def test_kneser_ney_counts_contexts_and_not_occurrences_below_its_order() -> None:
    """Characters 1 (after 0 alone, often) and 2 (after many, seldom): contexts make 2 likelier."""
    seen = [0, 1] * 30 + [3, 2, 4, 2, 5, 2, 0, 2]
    p = {y: math.exp(-ngram_losses(seen, [2, y], 7, orders=(2,), smoothing="kneser-ney").losses[0])
         for y in (1, 2)}  # fmt: skip
    unigram = {y: math.exp(-ngram_losses(seen, [y], 7, orders=(1,)).losses[0]) for y in (1, 2)}
    assert unigram[1] > unigram[2]
    assert p[2] > p[1]


def test_unigram_is_the_cross_entropy_of_frequencies() -> None:
    rng = np.random.default_rng(0)
    seen, asked = rng.integers(0, 9, 500) // 2, rng.integers(0, 5, 200)
    constant = 0.3
    p = (np.bincount(seen, minlength=5) + constant) / (len(seen) + 5 * constant)
    share = np.bincount(asked, minlength=5) / len(asked)
    losses = ngram_losses(seen, asked, 5, orders=(1,), constant=constant)
    assert losses.losses[0] == pytest.approx(-(share * np.log(p)).sum(), abs=1e-13)
    own = ngram_losses(seen, seen, 5, orders=(1,), constant=1e-9).losses[0]
    p = np.bincount(seen) / len(seen)
    assert own == pytest.approx(-(p * np.log(p)).sum(), abs=1e-7)  # the entropy of the text


def test_uniform_is_the_loss_without_any_knowledge() -> None:
    losses = ngram_losses([0, 1], [2, 3, 2], 65, orders=(1,), constant=1e12)
    assert losses.uniform == pytest.approx(math.log(65), abs=1e-15)
    assert losses.losses[0] == pytest.approx(losses.uniform, abs=1e-9)


def markov_text(P: np.ndarray, n: int, seed: int) -> np.ndarray:
    draws, edges = np.random.default_rng(seed).random(n), P.cumsum(1)
    text = [0]
    for u in draws:
        text.append(int(np.searchsorted(edges[text[-1]], u)))
    return np.minimum(np.array(text), len(P) - 1)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_losses_on_a_markov_chain_approach_its_entropy(smoothing: Any) -> None:
    """One character of context is all there is: from order 2 on the loss is the entropy rate."""
    P = np.array([[0.8, 0.15, 0.05], [0.1, 0.1, 0.8], [0.5, 0.3, 0.2]])
    stationary = np.linalg.matrix_power(P, 200)[0]
    rate = -(stationary[:, None] * P * np.log(P)).sum()
    alone = -(stationary * np.log(stationary)).sum()
    seen, asked = markov_text(P, 60_000, 0), markov_text(P, 30_000, 1)
    losses = ngram_losses(seen, asked, 3, smoothing=smoothing).losses
    assert losses[0] == pytest.approx(alone, abs=0.02)
    np.testing.assert_allclose(losses[1:], rate, atol=0.015, rtol=0)
    assert max(losses[1:]) - min(losses[1:]) < 0.005
    assert alone > rate + 0.15


def test_more_text_comes_closer_to_the_entropy() -> None:
    P = np.array([[0.8, 0.15, 0.05], [0.1, 0.1, 0.8], [0.5, 0.3, 0.2]])
    asked, losses = markov_text(P, 20_000, 1), []
    for n in (30, 300, 30_000):
        losses.append(ngram_losses(markov_text(P, n, 0), asked, 3, orders=(2,)).losses[0])
    assert losses[0] > losses[1] > losses[2]


@given(seed=st.integers(0, 10**6))
@settings(max_examples=20)
def test_text_that_determines_its_next_character_has_a_loss_near_zero(seed: int) -> None:
    """A cycle of different characters: order 1 is uniform, every longer context knows."""
    cycle = np.random.default_rng(seed).permutation(6)
    text = np.tile(cycle, 50)
    losses = ngram_losses(text, text, 6, constant=1e-6).losses
    assert losses[0] == pytest.approx(math.log(6), abs=1e-6)
    assert max(losses[1:]) < 1e-5


def test_texts_may_be_lists_arrays_or_tensors_and_orders_any_choice() -> None:
    seen, asked = [0, 1, 2, 1, 0, 2], [1, 2, 0, 0]
    whole = ngram_losses(seen, asked, 3, orders=(1, 2, 3, 4))
    for kind in (np.array, torch.tensor, tuple):
        again = ngram_losses(kind(seen), kind(asked), 3, orders=(1, 2, 3, 4))
        assert again.to_document() == whole.to_document()
    some = ngram_losses(seen, asked, 3, orders=(3, 1))
    assert some.losses.tolist() == [whole.losses[2], whole.losses[0]]
    assert (some.orders.tolist(), some.n.tolist()) == ([3, 1], [2, 4])


def test_record_goes_to_a_table_and_names_its_smoothing() -> None:
    losses = ngram_losses([0, 1] * 9, [0, 1] * 9, 2, orders=(1, 2), constant=0.5)
    frame = losses.to_frame()
    assert list(frame) == ["order", "loss", "n"]
    assert frame["loss"].tolist() == list(losses.losses)
    assert frame["n"].tolist() == [18, 17]
    assert (losses.smoothing, losses.constant) == ("add", 0.5)
    smooth = ngram_losses([0, 1] * 9, [0, 1] * 9, 2, smoothing="kneser-ney")
    assert (smooth.smoothing, smooth.constant) == ("kneser-ney", 0.0)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"orders": (0, 1)}, ConfigError, "must lie between 1 and 5"),
        ({"orders": (6,)}, ConfigError, "must lie between 1 and 5"),
        ({"orders": ()}, ConfigError, "must lie between 1 and 5"),
        ({"constant": 0.0}, ConfigError, "constant = 0.0 must be positive"),
        ({"constant": -1.0}, ConfigError, "must be positive"),
        ({"constant": float("nan")}, ConfigError, "must be positive"),
        ({"train": [0, 1]}, TextError, "the training text has 2 characters, fewer than the order"),
        ({"validation": []}, TextError, "the validation text has 0 characters"),
        ({"train": [0, 3] * 9}, TextError, "training text has ids from 0 to 3, outside 0 … 2"),
        ({"validation": [-1, 2] * 9}, TextError, "ids from -1 to 2, outside 0 … 2"),
        ({"d_vocab": 0}, TextError, "outside 0"),
        ({"d_vocab": 2**13}, ConfigError, "8192 characters to the power 5 do not fit a number"),
    ],
    ids=range(12),
)
def test_mistakes_are_refused(changes: dict[str, Any], error: Any, said: str) -> None:
    arguments = {"train": [0, 1, 2] * 9, "validation": [0, 1, 2] * 3, "d_vocab": 3} | changes
    with pytest.raises(error, match=said):
        ngram_losses(**arguments)


def test_unknown_smoothing_is_refused() -> None:
    smoothing: Any = "kneser"
    with pytest.raises(Exception, match="kneser"):  # by the type checker here, else ConfigError
        ngram_losses([0, 1], [0, 1], 2, orders=(1,), smoothing=smoothing)


# ---- the one-head model's logits -------------------------------------------------------------

VOCAB, WIDTH, N_CTX = 7, 6, 8


def one_head(dtype: torch.dtype = torch.float64, seed: int = 0, **changes: Any) -> Any:
    cfg = LadderConfig(rung="head", d_vocab=VOCAB, d_model=WIDTH, n_ctx=N_CTX, **changes)
    return build_model(cfg, CharTokenizer("abcdefg"), seed=seed).to(dtype).eval()


def tokens(batch: int = 3, pos: int = N_CTX, seed: int = 0) -> Tensor:
    return torch.randint(VOCAB, (batch, pos), generator=torch.Generator().manual_seed(seed))


def readers(model: Any, idx: Tensor, targets: Tensor, metric: str) -> Tensor:
    """The metric at each position, as a direction in the logits."""
    baseline = {
        "raw": torch.zeros(VOCAB, dtype=torch.float64),
        "centered": torch.full((VOCAB,), 1 / VOCAB, dtype=torch.float64),
        "probability": model(idx)[:, : targets.shape[1]].softmax(-1),
    }[metric]
    return torch.eye(VOCAB, dtype=torch.float64)[targets] - baseline


@pytest.mark.parametrize("metric", ["centered", "probability", "raw"])
@torch.no_grad()
def test_rows_are_what_each_source_position_gave(metric: Any) -> None:
    """P[t, s] · (x_s W_V) W_U along the metric's direction, one number at a time; and b_U."""
    model, idx = one_head(), tokens()
    parts = single_head_attribution(model, idx, metric=metric)
    T = N_CTX - 1
    direction = readers(model, idx, idx[:, 1:], metric)
    x = model.token_embedding_table.weight[idx] + model.position_embedding_table.weight
    head = model.attention_head
    expected = torch.zeros(T + 1, 3, T, dtype=torch.float64)
    for b in range(3):
        for t in range(T):
            q = head.query.weight @ x[b, t]
            scores = torch.stack([q @ (head.key.weight @ x[b, s]) for s in range(t + 1)])
            p = (scores / math.sqrt(WIDTH)).softmax(-1)
            for s in range(t + 1):
                logits = model.LM_head.weight @ (p[s] * (head.value.weight @ x[b, s]))
                expected[s, b, t] = direction[b, t] @ logits
            expected[T, b, t] = direction[b, t] @ model.LM_head.bias
    assert_close(torch.tensor(parts.values), expected)
    assert parts.components == (*(f"S{s}" for s in range(T)), "b_U")
    assert (parts.by, parts.metric) == ("source", metric)


@pytest.mark.parametrize("metric", ["centered", "probability", "raw"])
@given(seed=st.integers(0, 10**6), batch=st.integers(1, 3), pos=st.integers(1, N_CTX))
@settings(max_examples=15)
def test_rows_sum_to_the_models_logits(metric: Any, seed: int, batch: int, pos: int) -> None:
    model, idx = one_head(seed=seed), tokens(batch, pos, seed)
    targets = tokens(batch, pos, seed + 1)
    parts = single_head_attribution(model, idx, metric=metric, targets=targets)
    assert len(parts.components) == pos + 1  # exactly: one a source, and b_U
    assert parts.values.shape == (pos + 1, batch, pos)
    with torch.no_grad():
        total = (readers(model, idx, targets, metric) * model(idx)).sum(-1).numpy()
    np.testing.assert_allclose(parts.values.sum(0), total, atol=1e-12, rtol=0)
    np.testing.assert_allclose(parts.total, total, atol=1e-12, rtol=0)
    assert (parts.completeness_error <= 1e-12).all()
    np.testing.assert_array_equal(parts.targets, targets)


def test_later_keys_give_exactly_zero_and_there_is_no_row_for_the_embedding() -> None:
    parts = single_head_attribution(one_head(), tokens())
    for s in range(N_CTX - 1):
        row = parts.row(f"S{s}")
        assert (row[:, :s] == 0.0).all()
        assert (row[:, s:] != 0.0).all()
    with pytest.raises(ConfigError, match="no component 'embed' here"):
        parts.row("embed")
    assert not {"embed", "pos_embed"} & set(parts.components)


def test_float32_rows_sum_within_their_own_tolerance() -> None:
    parts = single_head_attribution(one_head(torch.float32), tokens())
    assert (parts.completeness_error <= parts.tolerance).all()
    assert parts.tolerance.max() < 1e-3


def test_characters_and_the_table_come_with_the_rows() -> None:
    parts = single_head_attribution(one_head(), tokens())
    assert parts.characters == tuple("abcdefg")
    frame = parts.to_frame()
    assert set(frame) >= {"batch", "pos", "target", "component", "contribution"}
    assert len(frame) == parts.values.size
    sums = frame.groupby(["batch", "pos"])["contribution"].sum()
    np.testing.assert_allclose(sums, parts.total.ravel(), atol=1e-12, rtol=0)


def test_dropout_in_training_mode_is_refused_and_none_is_not() -> None:
    model = one_head(dropout=0.5).train()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        with pytest.raises(CompletenessError, match="the parts miss the model's own logits"):
            single_head_attribution(model, tokens())
    single_head_attribution(model.eval(), tokens())
    single_head_attribution(one_head().train(), tokens())  # nothing to drop


@pytest.mark.parametrize(
    "name", ["bigram", "averages", "dense", "positions", "average", "heads", "block", "stack"]
)
def test_other_rungs_are_refused(name: Any) -> None:
    model: Any = build_model(LadderConfig(rung=name, d_vocab=VOCAB, d_model=8, n_ctx=N_CTX))
    with pytest.raises(ConfigError, match=f"is of the rung 'head', not of '{name}'"):
        single_head_attribution(model, tokens())


def test_wrong_tokens_targets_scalars_and_dtypes_are_refused() -> None:
    model = one_head()
    for wrong in (tokens() + VOCAB, tokens() - VOCAB):
        with pytest.raises(TokenError, match="ids 0 … 6"):
            single_head_attribution(model, wrong)
    with pytest.raises(TokenError, match="holds 8 positions, but 9 were given"):
        single_head_attribution(model, tokens(pos=N_CTX + 1))
    with pytest.raises(TokenError, match="outside the vocabulary"):
        single_head_attribution(model, tokens(), targets=tokens() + 1)
    with pytest.raises(TokenError, match="no next token to explain; give targets"):
        single_head_attribution(model, tokens(pos=1))
    with pytest.raises(ConfigError, match="metric = 'foil' is not one of 'centered', 'prob"):
        single_head_attribution(model, tokens(), metric="foil")
    with pytest.raises(ConfigError, match="no tolerance is stated"):
        single_head_attribution(model.to(torch.bfloat16), tokens())
