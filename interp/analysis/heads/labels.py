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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp.analysis.heads.behaviours import Behaviours, Split
from interp.analysis.heads.label_results import HeadLabels
from interp.analysis.heads.score_results import HeadScores
from interp.analysis.heads.seen import Seen, SeenAgain, seen, seen_again
from interp.errors import CacheError, ConfigError, TokenError
from interp.gpt.folder import model_hash
from interp.gpt.model import HookedGPT
from interp.results import intervals
from interp.results.provenance import Provenance
from interp.stream.resume import check_can_resume

LEVEL = 0.05
LEAST = 0.2
NATS = 0.01
TIMES = 2.0  # the control, at least so many times smaller
CONFIRMING = 64  # sequences, at most, on which effects are measured
FEWEST = 10  # sequences
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Caused:
    """Step 3: effects in nats per token with intervals; `specific_low` of effect − 2 · control."""

    behaviour: str
    effect: float
    effect_low: float
    effect_high: float
    control: float
    control_low: float
    control_high: float
    specific_low: float


@dataclass(frozen=True)
class Row:
    """A head and a label that it may deserve, with what the three steps found."""

    label: str
    seen: Seen
    again: SeenAgain
    caused: Caused


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
        ConfigError: a level, share or effect that makes no sense; dropout in training mode.
        HookError: a model with hooks attached.
        TokenError: fewer than 10 sequences to split.
    """
    _check(model, scores, level, least, nats)
    n = scores.values.shape[-1]
    first = np.arange(n) % 2 == 0
    found = seen(scores, first, level, least)
    again = [seen_again(scores, ~first, one, seed) for one in found]
    ids = torch.from_numpy(np.array(scores.tokens)[~first][:CONFIRMING]).to(model.device)
    rows = []
    for label, tried in _tried(model, scores, ids, found, seed, progress):
        for one, second in zip(found, again, strict=True):
            if scores.scores[one.index] == label:
                effects = {name: of[one.layer, one.head] for name, of in tried.items()}
                rows.append(Row(label, one, second, _caused(effects, seed)))
    rows.sort(key=lambda row: (row.seen.layer, row.seen.head, row.label))
    return HeadLabels(
        **_columns(rows, nats),
        level=level, least=least, nats=nats, sequences=n, untrained=scores.untrained_models,
        model_heads=len(scores.heads), provenance=Provenance.of(model, ids, seed=seed),
    )  # fmt: skip


def _check(model: HookedGPT, scores: HeadScores, level: float, least: float, nats: float) -> None:
    if scores.provenance.model != model_hash(model):
        raise CacheError("these scores are of another model; run head_scores on this one")
    if not (0 < level < 1 and 0 <= least < 1 and nats >= 0):
        raise ConfigError(
            f"level = {level} must be between 0 and 1, least = {least} from 0 to below 1, nats = "
            f"{nats} not negative"
        )
    check_can_resume(model)
    n = scores.values.shape[-1]
    if n < FEWEST:
        raise TokenError(
            f"labels need at least {FEWEST} sequences to split in two; got {n}, give more"
        )


def _tried(
    model: HookedGPT,
    scores: HeadScores,
    ids: Tensor,
    found: Sequence[Seen],
    seed: int,
    progress: Progress | None,
) -> Iterator[tuple[str, dict[str, dict[tuple[int, int], Split]]]]:
    """Each label that was seen, with the effects of all heads on its behaviours."""
    labels = sorted({scores.scores[one.index] for one in found})
    heads = sorted({(one.layer, one.head) for one in found})
    report = progress or (lambda done, of: None)
    behaviours = Behaviours(model, ids, heads, seed) if heads else None
    report(1, len(labels) + 2)
    for done, label in enumerate(labels, 2):
        assert behaviours is not None  # a label was seen in a head
        yield label, behaviours.of(label)
        report(done, len(labels) + 2)
    report(len(labels) + 2, len(labels) + 2)


def _caused(effects: dict[str, Split], seed: int) -> Caused:
    """Step 3: the behaviour whose effect is most surely above twice the control's."""
    tried = [_effects(name, *split, seed=seed) for name, split in effects.items()]
    return max(tried, key=lambda one: np.nan_to_num(one.specific_low, nan=-np.inf))


def _effects(behaviour: str, match: np.ndarray, control: np.ndarray, *, seed: int) -> Caused:
    """Effect, control and the low end of effect − 2 · control, with intervals over sequences."""

    def interval(values: np.ndarray) -> tuple[float, float, float]:
        finite = values[np.isfinite(values)]
        if not len(finite):
            return np.nan, np.nan, np.nan
        mean, low, high = intervals.mean_interval(finite, seed=seed)
        return float(mean), float(low), float(high)

    _, specific_low, _ = interval(match - TIMES * control)
    return Caused(behaviour, *interval(match), *interval(control), specific_low)


def _columns(rows: Sequence[Row], nats: float) -> dict[str, Any]:
    """The fields of the result, one entry per row; confirmed where all three steps hold."""
    again = {f.name: np.array([getattr(row.again, f.name) for row in rows], dtype=np.float64)
             for f in fields(SeenAgain)}  # fmt: skip
    caused = {f.name: np.array([getattr(row.caused, f.name) for row in rows], dtype=np.float64)
              for f in fields(Caused) if f.name != "behaviour"}  # fmt: skip
    with np.errstate(invalid="ignore"):
        confirmed = (
            (again["score_low"] > again["null"])
            & (caused["effect"] >= nats)
            & (caused["effect_low"] > 0)
            & (caused["specific_low"] > 0)
        )
    return {
        **again,
        **caused,
        "confirmed": confirmed,
        "labels": tuple(row.label for row in rows),
        "behaviours": tuple(row.caused.behaviour for row in rows),
        "layers": np.array([row.seen.layer for row in rows], dtype=np.int64),
        "heads": np.array([row.seen.head for row in rows], dtype=np.int64),
        "q_values": np.array([row.seen.q_value for row in rows], dtype=np.float64),
    }
