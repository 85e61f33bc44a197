"""What heads look at, against what chance would give.

A score is the attention that a query gives to the keys of one kind (see
`interp.analysis.heads.attention_targets`), averaged over the queries that have such a key and one
that is none (the eligible ones):

    previous, back-2 …      the key one, two … positions back
    self, sink, local-4     the query's own position; position 0; the last four
    duplicate               earlier copies of the query's token
    induction               the keys that follow an earlier copy (Olsson et al. 2022)
    space, newline, punctuation, capital, vowel        keys that are such a character
    same-letter             the query's letter in the other case
    last-space, last-newline    the nearest one behind
    word-start              the first letter of the word that the query is in
    speaker-name            a character of a line that ends in a colon

and, of the whole row: sink-value (the share of position 0 in Σ weight · ‖value W_O‖, after
Kobayashi et al. 2020), confidence (its largest weight), entropy (over ln of the visible keys), span
(e to its entropy, in nats), distance (mean positions back).

Three nulls stand beside each score. *Uniform*: attention that is equal over the visible keys, in
closed form, on the same queries. *Untrained*: the heads of one layer in models of the same shape
that were never trained. *Permuted*: the same attention, its kinds of keys taken from the tokens in
random order, which keeps what a head does by position alone; scores about positions have none. (To
run the model on such tokens is no null: a head that looks for spaces finds them in any order.)
Sequences are the unit. The p-value is the largest of the tests against each null, so it is small
only where all are left behind; q-values control the false discovery rate over all heads and scores
(Benjamini and Hochberg).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from scipy import stats as scipy_stats
from torch import Tensor

from interp.analysis.heads.attention_targets import BACK, ROW_SCORES, is_positional, key_masks
from interp.errors import ConfigError, TokenError
from interp.gpt.model import HookedGPT, Input
from interp.results import intervals
from interp.results.provenance import Provenance
from interp.results.result import Result, to_numpy

PIECE = 16  # sequences run at a time
UNTRAINED = 20  # models
UNTRAINED_SEQUENCES = 32
LOWER = ("entropy", "span")  # less than chance is what counts
UNDIRECTED = ("distance",)  # neither
Progress = Callable[[int, int], None]


# ---- scores -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Scores:
    """Per sequence: values, uniform, permuted [score layer head sequence]; queries [score]."""

    names: list[str]
    values: np.ndarray
    uniform: np.ndarray
    permuted: np.ndarray
    queries: np.ndarray


@torch.no_grad()
def _score(
    model: HookedGPT,
    tokens: Int[Tensor, "batch pos"],
    back: int,
    permuted: Tensor | None = None,
    done: Callable[[int], None] | None = None,
) -> _Scores:
    """Every score of every head and sequence; NaN where a sequence has no eligible query.

    `permuted`: the tokens in another order, for the kinds of keys of that null.
    """
    characters = None if model.tokenizer is None else model.tokenizer.characters
    layers = range(len(model.blocks))
    hooks = [f"blocks.{layer}.attn.hook_{what}" for layer in layers for what in ("pattern", "v")]
    names: list[str] = []
    values: list[np.ndarray] = []
    uniform: list[np.ndarray] = []
    chance: list[np.ndarray] = []
    queries: list[list[int]] = []
    orders = [None] * len(tokens) if permuted is None else permuted.split(PIECE)
    for piece, other in zip(tokens.split(PIECE), orders, strict=False):
        names, masks = key_masks(piece, characters, back)
        wanted, weights, expected, count = _on_eligible(masks, model.dtype)
        if other is not None:
            others, others_weights, _, _ = _on_eligible(
                key_masks(other, characters, back)[1], model.dtype
            )
        _, cache = model.run_with_cache(piece, names_filter=hooks, return_type=None)
        found = []
        for layer in layers:
            pattern = cache["pattern", layer]  # [batch head pos key]
            sizes = _value_sizes(model, layer, cache["v", layer])
            of_rows, rows_chance = _row_scores(pattern, sizes)
            of_kinds = _masses(pattern, wanted, weights)
            by_order = torch.full_like(of_kinds, torch.nan)
            if other is not None:
                by_order = _masses(pattern, others, others_weights)
            found.append(
                (
                    torch.cat((of_kinds, of_rows)),
                    torch.cat((expected[:, None].expand_as(of_kinds), rows_chance)),
                    torch.cat((by_order, torch.full_like(of_rows, torch.nan))),
                )
            )
        for kept, parts in zip((values, uniform, chance), zip(*found, strict=True), strict=True):
            kept.append(to_numpy(torch.stack(parts, 1)))
        queries.append([*count.tolist(), *[len(piece) * (piece.shape[1] - 1)] * len(ROW_SCORES)])
        if done is not None:
            done(len(piece))
    every = (np.concatenate(parts, -1) for parts in (values, uniform, chance))
    own, flat, shuffled = every
    return _Scores(
        names=[*names, *ROW_SCORES], values=own, uniform=flat, permuted=shuffled,
        queries=np.sum(queries, 0),
    )  # fmt: skip


def _on_eligible(
    masks: Bool[Tensor, "batch pos key kind"], dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The masks as numbers; each query's share of its sequence's mean, [batch pos kind], NaN where
    there is no eligible one; uniform attention's mean [kind batch]; eligible queries [kind]."""
    n = torch.arange(1, masks.shape[1] + 1, device=masks.device)[:, None]
    count = masks.sum(2)  # [batch pos kind]
    eligible = (count > 0) & (count < n)
    weights = eligible.to(dtype) / eligible.sum(1, keepdim=True)
    expected = ((count / n).to(dtype) * weights).sum(1).T
    return masks.to(dtype), weights, expected, eligible.sum((0, 1))


def _masses(
    pattern: Float[Tensor, "batch head pos key"],
    wanted: Float[Tensor, "batch pos key kind"],
    weights: Float[Tensor, "batch pos kind"],
) -> Float[Tensor, "kind head batch"]:
    """The attention to each kind of key, averaged over the eligible queries."""
    mass = torch.einsum("bhqk,bqkm->bhqm", pattern, wanted)
    return torch.einsum("bhqm,bqm->mhb", mass, weights)


def _value_sizes(
    model: HookedGPT, layer: int, v: Float[Tensor, "batch key head d_head"]
) -> Float[Tensor, "batch head key"]:
    """The length of what each key would write: ‖v W_O‖."""
    W_O = model.blocks[layer].attn.W_O
    gram = W_O @ W_O.transpose(1, 2)  # [head d_head d_head]
    return torch.einsum("bkhd,hde,bkhe->bhk", v, gram, v).clamp(min=0).sqrt()


def _row_scores(
    pattern: Float[Tensor, "batch head pos key"], sizes: Float[Tensor, "batch head key"]
) -> tuple[Float[Tensor, "row head batch"], Float[Tensor, "row head batch"]]:
    """Means over rows t ≥ 1 of `ROW_SCORES`, and what uniform attention gives."""
    n_pos = pattern.shape[2]
    rows = pattern[:, :, 1:]
    at = torch.arange(n_pos, device=pattern.device)
    n = (at[1:] + 1).to(pattern.dtype)
    weighted = rows[..., 0] * sizes[:, :, None, 0]
    total = torch.einsum("bhqk,bhk->bhq", rows, sizes)
    entropy = torch.special.entr(rows).sum(-1)
    distance = at[1:] - torch.einsum("bhqk,k->bhq", rows, at.to(rows.dtype))
    each = [
        torch.where(total > 0, weighted / total, 0.0), rows.amax(-1), entropy / n.log(),
        entropy.exp(), distance,
    ]  # fmt: skip
    visible = sizes.cumsum(-1)[:, :, 1:]
    share = torch.where(visible > 0, sizes[:, :, :1] / visible, 0.0).mean(2).T  # [head batch]
    flat = [(1 / n).mean(), torch.ones((), dtype=n.dtype, device=n.device), n.mean(),
            at[1:].to(n.dtype).mean() / 2]  # fmt: skip
    chance = torch.stack([share, *(value.expand_as(share) for value in flat)])
    return torch.stack([value.mean(-1).T for value in each]), chance


@dataclass(frozen=True, kw_only=True)
class HeadScores(Result):
    """Scores of every head, one number a sequence, beside what chance gives.

    `values`, `uniform` and `permuted` [score, layer, head, sequence], `untrained` [score, layer,
    null], each null a head of an untrained model. NaN: the sequence has no eligible query, or the
    score has no such null.
    """

    AXES: ClassVar = {
        "values": ("score", "layer", "head", "sequence"),
        "permuted": ("score", "layer", "head", "sequence"),
        "uniform": ("score", "layer", "head", "sequence"),
        "untrained": ("score", "layer", "null"),
        "queries": ("score",),
        "tokens": ("sequence", "pos"),
    }
    NAMES: ClassVar = {"scores": "score"}
    scores: tuple[str, ...]
    values: np.ndarray
    uniform: np.ndarray
    permuted: np.ndarray
    untrained: np.ndarray
    queries: np.ndarray
    tokens: np.ndarray

    def of(self, score: str) -> Float[np.ndarray, "layer head"]:
        """Returns a score's mean over sequences.

        Raises:
            ConfigError: it was not measured on this model and text.
        """
        if score not in self.scores:
            raise ConfigError(f"no score {score!r} here; there are {', '.join(self.scores)}")
        i = self.scores.index(score)
        mean: np.ndarray = self.values[i][..., self.usable(i)].mean(-1, dtype=np.float64)
        return mean

    def usable(self, score: int) -> np.ndarray:
        """Returns which sequences have an eligible query of this score."""
        finite: np.ndarray = np.isfinite(self.values[score, 0, 0])
        return finite

    def p_values(
        self, sequences: np.ndarray | None = None
    ) -> Float[np.ndarray, "score layer head"]:
        """Returns the p-values on some of the sequences (by default all); NaN: not tested."""
        out = np.full(self.values.shape[:3], np.nan)
        chosen = np.ones(self.values.shape[-1], bool) if sequences is None else sequences
        for i, name in enumerate(self.scores):
            use = self.usable(i) & chosen
            if name in UNDIRECTED or use.sum() < 2:
                continue
            sign = -1.0 if name in LOWER else 1.0
            values = sign * self.values[i][..., use]
            tests = [_above(values - sign * self.uniform[i][..., use])]
            if not is_positional(name):
                both = np.isfinite(self.permuted[i]).all((0, 1))[use]
                if both.sum() >= 2:
                    tests.append(_above((values - sign * self.permuted[i][..., use])[..., both]))
            if self.untrained.shape[-1] > 1:
                tests.append(_outlying(values.mean(-1), sign * self.untrained[i]))
            out[i] = np.max(tests, axis=0)
        return out

    def to_frame(self) -> pd.DataFrame:
        """Returns layer, head, score, value, low, high (95 %, over sequences), null (uniform),
        null_permuted, null_untrained (mean), p_value, q_value, n (sequences), queries.
        """
        return self._frame.copy()

    @cached_property
    def _frame(self) -> pd.DataFrame:
        p = self.p_values()
        q = benjamini_hochberg(p)
        tables = []
        layers, heads = self.values.shape[1:3]
        index = pd.MultiIndex.from_product([range(layers), range(heads)], names=["layer", "head"])
        for i, name in enumerate(self.scores):
            use = self.usable(i)
            mean, low, high = intervals.mean_interval(
                self.values[i][..., use], seed=self.provenance.seed or 0
            )
            permuted = np.full(mean.shape, np.nan)
            if not is_positional(name):
                finite = np.isfinite(self.permuted[i]).all((0, 1))
                permuted = self.permuted[i][..., finite].mean(-1) if finite.any() else permuted
            untrained = np.full((layers, 1), np.nan)
            if self.untrained.shape[-1]:
                untrained = self.untrained[i].mean(-1, keepdims=True)
            columns = {
                "value": mean, "low": low, "high": high,
                "null": self.uniform[i][..., use].mean(-1),
                "null_permuted": permuted,
                "null_untrained": np.broadcast_to(untrained, mean.shape),
                "p_value": p[i], "q_value": q[i],
            }  # fmt: skip
            frame = pd.DataFrame({k: v.ravel() for k, v in columns.items()}, index=index)
            frame = frame.reset_index()
            frame.insert(2, "score", name)
            frame["n"], frame["queries"] = int(use.sum()), int(self.queries[i])
            tables.append(frame)
        return pd.concat(tables, ignore_index=True)


def head_scores(
    model: HookedGPT,
    tokens: Input,
    *,
    back: int = BACK,
    untrained: int = UNTRAINED,
    permuted: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> HeadScores:
    """Returns what every head looks at, beside what chance gives. Changes no cache.

    A score that these sequences or this vocabulary cannot have (no newline, too short) is absent.

    Args:
        model: the model, with at least one block.
        tokens: sequences of at least two tokens; five or more for intervals worth the name.
        back: up to how many positions back the k-back scores go.
        untrained: how many untrained models of the same shape to compare with, on the first 32
            sequences; 0 leaves that null out.
        permuted: whether to measure that null.
        seed: of the permutations, of the untrained models (seed + 1, …) and of the intervals.
        progress: called with (sequences done, of how many).

    Raises:
        ConfigError: no blocks; `back` or `untrained` out of range.
        TokenError: sequences of one token.

    Example:
        >>> import interp
        >>> model = interp.HookedGPT.from_pretrained("models/shakespeare-char")
        >>> found = interp.head_scores(model, ["First Citizen:\\nBefore"] * 2, untrained=0)
        >>> found.of("previous").shape
        (4, 4)
    """
    if not model.blocks:
        raise ConfigError("a model without blocks has no heads")
    if back < 1 or untrained < 0:
        raise ConfigError(f"back = {back} must be at least 1, untrained = {untrained} at least 0")
    ids = model.to_tokens(tokens)
    if ids.shape[1] < 2:
        raise TokenError(
            f"the sequences have {ids.shape[1]} token; every score needs a query with two keys, so "
            "at least 2"
        )
    few = ids[:UNTRAINED_SEQUENCES]
    total, count = len(ids) + untrained * len(few), 0

    def done(n: int) -> None:
        nonlocal count
        count += n
        if progress is not None:
            progress(count, total)

    was_training = model.training
    model.eval()
    try:
        own = _score(model, ids, back, _permuted(ids, seed) if permuted else None, done)
    finally:
        model.train(was_training)
    nulls = []
    for i in range(untrained):
        fresh = HookedGPT(model.config, model.tokenizer, seed=seed + 1 + i)
        found = _score(fresh.to(model.device, model.dtype).eval(), few, back, done=done)
        use = np.isfinite(found.values).all((1, 2))
        masked = np.where(use[:, None, None], found.values, 0.0).sum(-1)
        n = use.sum(-1)[:, None, None]
        nulls.append(np.where(n > 0, masked / np.maximum(n, 1), np.nan))
    null = np.concatenate(nulls, -1) if nulls else np.zeros((*own.values.shape[:2], 0))
    own.permuted[[is_positional(name) for name in own.names]] = np.nan
    present = np.isfinite(own.values).any((1, 2, 3))
    return HeadScores(
        scores=tuple(name for name, here in zip(own.names, present, strict=True) if here),
        values=own.values[present], uniform=own.uniform[present], permuted=own.permuted[present],
        untrained=null[present], queries=own.queries[present], tokens=to_numpy(ids),
        provenance=Provenance.of(model, ids, seed=seed),
    )  # fmt: skip


def _permuted(tokens: Tensor, seed: int) -> Tensor:
    """Each sequence in a random order of its own."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(tokens.shape, generator=generator).argsort(1).to(tokens.device)
    return tokens.gather(1, order)


# ---- tests ------------------------------------------------------------------------------------


def _above(differences: Float[np.ndarray, "*of sequence"]) -> np.ndarray:
    """One-sided p of the mean being above zero: Student's t over sequences."""
    n = differences.shape[-1]
    mean, spread = differences.mean(-1), differences.std(-1, ddof=1)
    certain = np.where(mean == 0, 0.0, np.copysign(np.inf, mean))
    t = np.where(spread > 0, mean / np.where(spread > 0, spread, 1) * np.sqrt(n), certain)
    return np.asarray(scipy_stats.t.sf(t, n - 1))


def _outlying(
    values: Float[np.ndarray, "layer head"], null: Float[np.ndarray, "layer null"]
) -> np.ndarray:
    """One-sided p of each value being one more draw from its layer's null (a prediction t-test)."""
    B = null.shape[-1]
    mean, spread = null.mean(-1, keepdims=True), null.std(-1, ddof=1, keepdims=True)
    t = (values - mean) / np.maximum(spread, 1e-12) / np.sqrt(1 + 1 / B)
    return np.asarray(scipy_stats.t.sf(t, B - 1))


def benjamini_hochberg(p: np.ndarray) -> np.ndarray:
    """Returns q-values of all tests together; NaN where there was none.

    Source: Benjamini & Hochberg 1995.
    """
    q = np.full(p.shape, np.nan)
    tested = np.isfinite(p)
    if tested.any():
        q[tested] = scipy_stats.false_discovery_control(p[tested])
    return q
