"""Names for heads: what they look at, and whether it matters.

A head gets a label where all of this holds:

1. **Seen.** On half of the sequences its score is above every null (q below the level, over all
   heads and scores), by at least `least` of the way from the highest null to 1.
2. **Seen again.** On the other half the score's interval is above every null.
3. **Caused.** Replacing the head by its mean (over other sequences) raises the loss on the matching
   behaviour, by at least `nats`, its interval above zero; and by at least twice what it does to a
   control behaviour, by the interval of the difference.

Two behaviours serve. *Repeats*: predicting random tokens that repeat with a random period, from the
second copy on; the control is the first copy. It is that of "induction" and "duplicate".
*Dependence*: predicting where the model depends on the keys in question. At random eligible queries
those keys' tokens are replaced by others; the queries whose loss rises most (the upper half) are
the matching ones, the lower half the control. It is that of all other labels; "previous" and
"back-k" may be confirmed by either, since such a head may also serve the keys of a later one.

A head may get several labels or none, and "none" is a normal answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.analysis.heads.attention_targets import ROW_SCORES, is_positional, key_masks
from interp.analysis.heads.scores import HeadScores, benjamini_hochberg
from interp.data.repeated import repeated_sequences
from interp.errors import CacheError, ConfigError, HookError, TokenError
from interp.gpt.folder import model_hash
from interp.gpt.model import HookedGPT, next_token_loss
from interp.results import intervals
from interp.results.provenance import Provenance
from interp.results.result import Result, to_numpy
from interp.stream.components import component
from interp.stream.batches import BATCH as PIECE
from interp.stream.references import ReferenceSet
from interp.stream.resume import run_batch, run_from, stream_at

LEVEL = 0.05
LEAST = 0.2
NATS = 0.01
TIMES = 2.0  # the control, at least so many times smaller
CONFIRMING = 64  # sequences, at most, on which effects are measured
REPEATS = 64  # random repeating sequences
TOGETHER = 64  # changed sequences in one run
QUERIES = 8  # random queries a sequence, whose keys are replaced
UNLABELLED = (*ROW_SCORES, "local-4")
REPEATING = ("induction", "duplicate")
FEWEST = 10  # sequences
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class HeadLabels(Result):
    """Every head and score that was seen (1), with what became of it; one row each.

    `score`, `score_low`, `score_high`, `null` (the highest) on the second half of the sequences;
    `q_values` on the first. `effect` and `control` in nats a token with 95 % intervals over
    sequences; NaN where a sequence had no such query. `confirmed`: all three steps hold.
    """

    AXES: ClassVar = dict.fromkeys(
        (
            "layers", "heads", "score", "score_low", "score_high", "null", "q_values", "effect",
            "effect_low", "effect_high", "control", "control_low", "control_high", "specific_low",
            "confirmed",
        ),
        ("row",),
    )  # fmt: skip
    NAMES: ClassVar = {"labels": "row", "behaviours": "row"}
    labels: tuple[str, ...]
    behaviours: tuple[str, ...]
    layers: np.ndarray
    heads: np.ndarray
    score: np.ndarray
    score_low: np.ndarray
    score_high: np.ndarray
    null: np.ndarray
    q_values: np.ndarray
    effect: np.ndarray
    effect_low: np.ndarray
    effect_high: np.ndarray
    control: np.ndarray
    control_low: np.ndarray
    control_high: np.ndarray
    specific_low: np.ndarray
    confirmed: np.ndarray
    level: float
    least: float
    nats: float
    sequences: int

    def of(self, layer: int, head: int) -> list[str]:
        """Returns the confirmed labels of one head; often none."""
        return [
            label
            for i, label in enumerate(self.labels)
            if self.confirmed[i] and (self.layers[i], self.heads[i]) == (layer, head)
        ]

    def to_frame(self) -> pd.DataFrame:
        """Returns layer, head, label, behaviour, score, score_low, score_high, null, q_value,
        effect, effect_low, effect_high, control, control_low, control_high, specific_low (of
        effect − 2 · control), confirmed.
        """
        names = {"layers": "layer", "heads": "head", "q_values": "q_value"}
        columns = {names.get(name, name): getattr(self, name) for name in self.AXES}
        frame = pd.DataFrame(columns)
        frame.insert(2, "label", self.labels)
        frame.insert(3, "behaviour", self.behaviours)
        return frame


@torch.no_grad()
def label_heads(
    model: HookedGPT,
    scores: HeadScores,
    *,
    level: float = LEVEL,
    least: float = LEAST,
    nats: float = NATS,
    seed: int = 0,
    progress: Progress | None = None,
) -> HeadLabels:
    """Returns which heads deserve which names.

    Args:
        model: the model.
        scores: of `head_scores` on the same model; its sequences are split in two.
        level: of the false discovery rate.
        least: how far above the highest null a score must be, as a share of what is left to 1.
        nats: the least effect that counts.
        seed: of the random repeats, the queries and the intervals.
        progress: called with (steps done, of how many).

    Raises:
        CacheError: scores of another model.
        ConfigError: a level, share or effect that makes no sense.
        HookError: a model with hooks attached.
        TokenError: fewer than 10 sequences to split.
    """
    if scores.provenance.model != model_hash(model):
        raise CacheError("these scores are of another model; run head_scores on this one")
    if not (0 < level < 1 and 0 <= least < 1 and nats >= 0):
        raise ConfigError(
            f"level = {level} must be between 0 and 1, least = {least} from 0 to below 1, nats = "
            f"{nats} not negative"
        )
    if model.is_edited:
        raise HookError("remove the model's hooks first: effects would pass them twice")
    n = scores.values.shape[-1]
    if n < FEWEST:
        raise TokenError(
            f"labels need at least {FEWEST} sequences to split in two; got {n}, give more"
        )
    first = np.arange(n) % 2 == 0
    found = _seen(scores, first, level, least)
    second = _second_half(scores, ~first, [(i, layer, head) for i, layer, head, _ in found], seed)
    kinds = sorted({scores.scores[i] for i, *_ in found})
    heads = sorted({(layer, head) for _, layer, head, _ in found})
    steps, done = len(kinds) + 2, 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, steps)

    ids = torch.from_numpy(np.array(scores.tokens)[~first][:CONFIRMING]).to(model.device)
    text = _Behaviours(model, ids, heads, seed) if heads else None
    step()
    rows: list[Row] = []
    for kind in kinds:
        assert text is not None
        tried = text.behaviours(kind)
        for (i, layer, head, q), observed in zip(found, second, strict=True):
            if scores.scores[i] == kind:
                effects = {name: _effects(*masks[layer, head], seed=seed)
                           for name, masks in tried.items()}  # fmt: skip
                best = max(effects, key=lambda name: np.nan_to_num(effects[name][-1], nan=-np.inf))
                rows.append((layer, head, kind, best, q, observed, effects[best]))
        step()
    rows.sort(key=lambda row: row[:3])
    step()
    return _collected(rows, level, least, nats, Provenance.of(model, ids, seed=seed), n)


def _seen(
    scores: HeadScores, first: np.ndarray, level: float, least: float
) -> list[tuple[int, int, int, float]]:
    """Step 1: (score, layer, head, q) of what is above every null on the first half."""
    q_values = benjamini_hochberg(scores.p_values(first))
    out = []
    for i, name in enumerate(scores.scores):
        if name in UNLABELLED or not (scores.usable(i) & first).any():
            continue
        value, null = _value_and_null(scores, i, first)
        value, null = value.mean(-1), null.mean(-1)
        strong = (value - null) >= least * (1 - null)
        out += [
            (i, int(layer), int(head), float(q_values[i, layer, head]))
            for layer, head in np.argwhere((q_values[i] < level) & strong)
        ]
    return out


def _value_and_null(
    scores: HeadScores, i: int, which: np.ndarray
) -> tuple[Float[np.ndarray, "layer head sequence"], Float[np.ndarray, "layer head sequence"]]:
    """A score and the highest of its nulls; the highest by its mean, for each head."""
    use = scores.usable(i) & which
    value = scores.values[i][..., use].astype(np.float64)
    nulls = [scores.uniform[i][..., use].astype(np.float64)]
    permuted = scores.permuted[i][..., use]
    if not is_positional(scores.scores[i]) and np.isfinite(permuted).any():
        mean = np.nanmean(permuted, -1, keepdims=True)
        nulls.append(np.where(np.isfinite(permuted), permuted, mean))
    if scores.untrained.shape[-1]:
        mean = scores.untrained[i].mean(-1)[:, None, None]
        nulls.append(np.broadcast_to(mean, value.shape))
    together = np.stack(nulls)
    highest = together.mean(-1).argmax(0)  # [layer head]
    null = np.take_along_axis(together, highest[None, ..., None], 0)[0]
    return value, null


def _second_half(
    scores: HeadScores, second: np.ndarray, cells: list[tuple[int, int, int]], seed: int
) -> list[tuple[float, float, float, float]]:
    """Step 2: score, and the interval of the score, and the null, on the second half.

    The interval is that of the difference from the null, put at the null.
    """
    out = []
    for i, layer, head in cells:
        value, null = (x[layer, head] for x in _value_and_null(scores, i, second))
        if not len(value):
            out.append((np.nan,) * 4)
            continue
        _, low, high = intervals.mean_interval(value - null, seed=seed)
        base = float(null.mean())
        out.append((float(value.mean()), base + float(low), base + float(high), base))
    return out


Row = tuple[int, int, str, str, float, tuple[float, float, float, float], list[float]]
Masked = tuple[np.ndarray, np.ndarray]  # effects of a head at matching, at control queries


class _Behaviours:
    """Effects of each head on matching and control behaviour, [sequence] each, for any label."""

    def __init__(
        self,
        model: HookedGPT,
        ids: Int[Tensor, "batch pos"],
        heads: list[tuple[int, int]],
        seed: int,
    ) -> None:
        self.model, self.ids, self.heads, self.seed = model, ids, heads, seed
        self.loss, self.effect = ablation_losses(model, ids, heads)
        self._repeated: dict[tuple[int, int], Masked] | None = None

    def behaviours(self, kind: str) -> dict[str, dict[tuple[int, int], Masked]]:
        """The behaviours that a label may be confirmed by."""
        tried = {} if kind in REPEATING else {"dependence": self.dependent(kind)}
        if kind in REPEATING or kind == "previous" or kind.startswith("back-"):
            tried["repeats"] = self.repeats()
        return tried

    def repeats(self) -> dict[tuple[int, int], Masked]:
        """Matching: the second copy of random tokens and later; control: the first."""
        if self._repeated is None:
            self._repeated = self._on_repeats()
        return self._repeated

    def _on_repeats(self) -> dict[tuple[int, int], Masked]:
        length, d_vocab = self.ids.shape[1], self.model.config.d_vocab
        greatest = min(d_vocab, length // 2)
        least = max(2, greatest // 4)
        if greatest < least:
            nothing = np.full(REPEATS, np.nan)
            return dict.fromkeys(self.heads, (nothing, nothing))
        tokens, periods = repeated_sequences(
            d_vocab, REPEATS, length, (least, greatest), np.random.default_rng([self.seed, 2])
        )
        _, effect = ablation_losses(self.model, tokens.to(self.model.device), self.heads)
        at = np.arange(length - 1)
        again = at >= periods.numpy()[:, None]
        new = at < periods.numpy()[:, None] - 1
        return {
            h: (_mean(effect[i], again), _mean(effect[i], new)) for i, h in enumerate(self.heads)
        }

    def dependent(self, kind: str) -> dict[tuple[int, int], Masked]:
        """Matching: queries whose loss rises most when the keys in question are others."""
        characters = None if self.model.tokenizer is None else self.model.tokenizer.characters
        n = self.ids.shape[1]
        rng = np.random.default_rng([self.seed, 3])
        rise = np.full((len(self.ids), n - 1), np.nan)
        for start in range(0, len(self.ids), PIECE):
            piece = self.ids[start : start + PIECE]
            names, masks = key_masks(piece, characters, back=n - 1)
            keys = masks[..., names.index(kind)].cpu().numpy()  # [batch pos key]
            del masks
            count = keys.sum(-1)
            eligible = (count > 0) & (count < np.arange(1, n + 1))
            queries = [
                (b, int(t))
                for b, row in enumerate(eligible[:, : n - 1])
                for t in rng.permutation(np.flatnonzero(row))[:QUERIES]
            ]
            if queries:
                of, at = np.array(queries).T
                rise[start + of, at] = self._rise(start + of, at, keys[of, at], rng)
        middle = np.nanmedian(rise) if np.isfinite(rise).any() else 0.0
        most, least = rise > middle, rise <= middle
        return {h: (_mean(self.effect[i], most), _mean(self.effect[i], least))
                for i, h in enumerate(self.heads)}  # fmt: skip

    def _rise(
        self, of: np.ndarray, at: np.ndarray, keys: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """How much the loss at queries `at` of sequences `of` rises when their keys' tokens change.

        The new tokens are drawn from the same sequence.
        """
        given = self.ids[torch.from_numpy(of).to(self.ids.device)].cpu().numpy()
        places = rng.integers(given.shape[1], size=given.shape)
        drawn = np.take_along_axis(given, places, axis=1)
        changed = torch.from_numpy(np.where(keys, drawn, given)).to(self.ids.device)
        targets = torch.from_numpy(given[np.arange(len(at)), at + 1]).to(self.ids.device)
        out = []
        for piece in range(0, len(at), TOGETHER):
            some = slice(piece, piece + TOGETHER)
            logits = self.model(changed[some])
            rows = torch.arange(len(logits), device=logits.device)
            query = torch.from_numpy(at[some]).to(logits.device)
            log_p = logits[rows, query].log_softmax(-1)
            out.append(-to_numpy(log_p.gather(-1, targets[some, None])[:, 0]))
        rise: np.ndarray = np.concatenate(out) - self.loss[of, at]
        return rise


def _mean(effect: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """[sequence]: the mean over the masked positions, NaN where there are none."""
    count = mask.sum(-1)
    total = np.where(mask, effect, 0.0).sum(-1)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


@torch.no_grad()
def ablation_losses(
    model: HookedGPT, ids: Int[Tensor, "batch pos"], heads: list[tuple[int, int]]
) -> tuple[Float[np.ndarray, "batch asked"], Float[np.ndarray, "head batch asked"]]:
    """Returns each next token's loss, and how much replacing each head by its mean adds to it.

    The mean is over the other sequences, at the same position. The last position is left out.
    """
    means = ReferenceSet.of(model, ids)
    parts = [component(model.config, f"L{layer}.H{head}") for layer, head in heads]
    means.prepare([part.hook for part in parts])
    losses, effects = [], []
    for piece in ids.split(PIECE):
        logits, cache = model.run_with_cache(piece)
        loss = next_token_loss(logits, piece, per_token=True)
        rises = []
        for part in parts:
            value = part.value(model, cache[part.hook])
            new = means.mean(part, piece.shape[1], cache[part.hook]).expand(value.shape)
            change = part.written(model, new - value)[None]
            run = partial(run_from, model, depth=part.depth)
            after = run_batch(run, stream_at(cache, part.depth), change)[0]
            rises.append(next_token_loss(after, piece, per_token=True) - loss)
        losses.append(to_numpy(loss))
        effects.append(to_numpy(torch.stack(rises)))
    return np.concatenate(losses), np.concatenate(effects, axis=1)


def _effects(match: np.ndarray, control: np.ndarray, *, seed: int) -> list[float]:
    """Effect, control and the low end of effect − 2 · control, with intervals over sequences."""
    out = []
    for values in (match, control, match - TIMES * control):
        finite = values[np.isfinite(values)]
        found = intervals.mean_interval(finite, seed=seed) if len(finite) else (np.nan,) * 3
        out += [float(x) for x in found]
    return [*out[:6], out[7]]


def _collected(
    rows: list[Row],
    level: float,
    least: float,
    nats: float,
    provenance: Provenance,
    n: int,
) -> HeadLabels:
    """Step 3, and the result."""
    observed = np.array([row[5] for row in rows], dtype=np.float64).reshape(len(rows), 4).T
    effects = np.array([row[6] for row in rows], dtype=np.float64).reshape(len(rows), 7).T
    score, low, high, null = observed
    effect, effect_low, _, _, _, _, specific = effects
    names = ("effect", "effect_low", "effect_high", "control", "control_low", "control_high",
             "specific_low")  # fmt: skip
    with np.errstate(invalid="ignore"):
        confirmed = (low > null) & (effect >= nats) & (effect_low > 0) & (specific > 0)
    return HeadLabels(
        labels=tuple(row[2] for row in rows),
        layers=np.array([row[0] for row in rows], dtype=np.int64),
        heads=np.array([row[1] for row in rows], dtype=np.int64),
        score=score, score_low=low, score_high=high, null=null,
        behaviours=tuple(row[3] for row in rows),
        q_values=np.array([row[4] for row in rows], dtype=np.float64),
        **dict(zip(names, effects, strict=True)), confirmed=confirmed,
        level=level, least=least, nats=nats, sequences=n, provenance=provenance,
    )  # fmt: skip
