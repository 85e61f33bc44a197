"""Which heads and scores stand above every null, on one half of the sequences and on the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from interp.analysis.heads.attention_targets import ROW_SCORES, is_positional
from interp.analysis.heads.score_results import HeadScores
from interp.analysis.heads.significance import benjamini_hochberg
from interp.results import intervals

UNLABELLED = (*ROW_SCORES, "local-4")


@dataclass(frozen=True)
class Seen:
    """Step 1: a score that is above every null on the first half; `index` is that of the score."""

    index: int
    layer: int
    head: int
    q_value: float


@dataclass(frozen=True)
class SeenAgain:
    """Step 2: a score on the second half, with its interval, and the highest null."""

    score: float
    score_low: float
    score_high: float
    null: float


def seen(
    scores: HeadScores, first: Bool[np.ndarray, " sequence"], level: float, least: float
) -> list[Seen]:
    """Step 1: what is above every null on the first half."""
    q_values = benjamini_hochberg(scores.p_values(first))
    out = []
    for i, name in enumerate(scores.scores):
        if name in UNLABELLED or not (scores.usable(i) & first).any():
            continue
        value, null = (x.mean(-1) for x in value_and_null(scores, i, first))
        strong = (value - null) >= least * (1 - null)
        out += [
            Seen(i, int(layer), int(head), float(q_values[i, layer, head]))
            for layer, head in np.argwhere((q_values[i] < level) & strong)
        ]
    return out


def value_and_null(
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


def seen_again(
    scores: HeadScores, second: Bool[np.ndarray, " sequence"], one: Seen, seed: int
) -> SeenAgain:
    """Step 2, on the second half.

    The interval is that of the difference from the null, put at the null.
    """
    value, null = (x[one.layer, one.head] for x in value_and_null(scores, one.index, second))
    if not len(value):
        return SeenAgain(np.nan, np.nan, np.nan, np.nan)
    _, low, high = intervals.mean_interval(value - null, seed=seed)
    base = float(null.mean())
    return SeenAgain(float(value.mean()), base + float(low), base + float(high), base)
