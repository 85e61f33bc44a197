"""How heads form: scores, paths and losses over the checkpoints of a training run.

Everything is measured at each checkpoint on the same random tokens that repeat with random periods
(`repeated_sequences`): the loss from the second copy on, which only a model that looks back can
lower; the scores of every head; and what each path from an earlier head into the queries, keys or
values of a later layer carries of that loss. On the sequences given: the in-context-learning score,
the loss late in the context less the loss early in it (Olsson et al. 2022).

The change point splits the repeated loss into two levels by least squares. Its interval is over
sequences. Less than a halving is no change: ordinary learning lowers a loss too. (The loss itself,
not its log, whose largest falls come long after, where hardly any loss is left.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.analysis.circuits.circuits import path_effects
from interp.analysis.heads.scores import head_scores
from interp.data.repeated import repeated_sequences
from interp.errors import CheckpointError, ConfigError, TokenError
from interp.gpt.model import HookedGPT, Input, next_token_loss
from interp.results import intervals
from interp.results.provenance import Provenance
from interp.results.result import Result, to_numpy

SCORES = ("previous", "duplicate", "induction", "sink", "entropy")
SEQUENCES = 64
HALVED = 0.5
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ChangePoint:
    """The first checkpoint after a change, with a 95 % interval, and the levels around it.

    `step` is None where the second level is not below half of the first: nothing formed.
    """

    step: int | None
    low: int | None
    high: int | None
    before: float
    after: float


@dataclass(frozen=True, kw_only=True)
class Formation(Result):
    """What was measured at each checkpoint.

    `repeated_loss` and `first_loss` (nats a token, from the second copy on and in the first),
    [step, sequence]; `values` [score, step, layer, head]; `paths` [sender, receiver, step], nats a
    token of the repeated loss; `icl` [step, text]: late less early loss, NaN without sequences.
    """

    AXES: ClassVar = {
        "steps": ("step",),
        "repeated_loss": ("step", "sequence"),
        "first_loss": ("step", "sequence"),
        "values": ("score", "step", "layer", "head"),
        "paths": ("sender", "receiver", "step"),
        "icl": ("step", "text"),
    }
    NAMES: ClassVar = {"scores": "score", "senders": "sender", "receivers": "receiver"}
    steps: np.ndarray
    repeated_loss: np.ndarray
    first_loss: np.ndarray
    scores: tuple[str, ...]
    values: np.ndarray
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    paths: np.ndarray
    icl: np.ndarray

    def change_point(self, draws: int = 1000) -> ChangePoint:
        """Returns where the repeated loss fell, if it did."""
        return change_point(
            self.steps, self.repeated_loss, draws=draws, seed=self.provenance.seed or 0
        )

    def to_frame(self) -> pd.DataFrame:
        """Returns one row a step and measure: step, measure, value, low, high.

        Measures: repeated_loss, first_loss and icl (intervals over sequences); for each score the
        best head of each layer, as induction:L1; for each path its effect, as L0.H1>L1.k.
        """
        rows: list[pd.DataFrame] = []

        def add(
            measure: str, value: np.ndarray, low: object = np.nan, high: object = np.nan
        ) -> None:
            columns = {"step": self.steps, "measure": measure, "value": value}
            rows.append(pd.DataFrame({**columns, "low": low, "high": high}))

        for name in ("repeated_loss", "first_loss", "icl"):
            held = getattr(self, name)
            if held.shape[1]:
                add(name, *intervals.mean_interval(held, seed=self.provenance.seed or 0))
        for i, score in enumerate(self.scores):
            best = self.values[i].min(-1) if score == "entropy" else self.values[i].max(-1)
            for layer in range(best.shape[1]):
                add(f"{score}:L{layer}", best[:, layer])
        for s, r in np.ndindex(self.paths.shape[:2]):
            if np.isfinite(self.paths[s, r]).all():
                add(f"{self.senders[s]}>{self.receivers[r]}", self.paths[s, r])
        return pd.concat(rows, ignore_index=True)


def change_point(
    steps: Int[np.ndarray, " step"],
    losses: Float[np.ndarray, "step sequence"],
    *,
    most: float = HALVED,
    draws: int = 1000,
    seed: int = 0,
) -> ChangePoint:
    """Returns where the mean loss splits best into two levels, the second lower.

    Args:
        steps: of the checkpoints, rising.
        losses: at each checkpoint, of each sequence.
        most: the second level's largest share of the first that is still a change.
        draws: resamples of sequences for the interval.
        seed: of them.

    Raises:
        ConfigError: fewer than three checkpoints; losses that are not positive numbers.
    """
    losses = np.asarray(losses, dtype=np.float64)
    if len(steps) < 3 or not (np.isfinite(losses).all() and (losses > 0).all()):
        raise ConfigError(
            f"a change point needs at least 3 checkpoints (got {len(steps)}) and positive losses"
        )
    at = int(_split(losses.mean(1)[:, None])[0])
    before, after = float(losses[:at].mean()), float(losses[at:].mean())
    if after > most * before:
        return ChangePoint(None, None, None, before, after)
    weights = intervals.bootstrap_weights(losses.shape[1], draws, seed)
    low, high = np.quantile(_split(losses @ weights.T), (0.025, 0.975), method="nearest")
    return ChangePoint(int(steps[at]), int(steps[low]), int(steps[high]), before, after)


def _split(y: Float[np.ndarray, "step draw"]) -> Int[np.ndarray, " draw"]:
    """The index that begins the second level, for each draw."""
    n = len(y)
    sums = y.cumsum(0)
    before = np.arange(1, n)[:, None]
    first, second = sums[:-1] / before, (sums[-1] - sums[:-1]) / (n - before)
    explained = before * first**2 + (n - before) * second**2  # the larger, the less is left
    return np.asarray(explained.argmax(0) + 1)


def checkpoints_of(folder: str | Path) -> dict[int, Path]:
    """Returns step → folder of the checkpoints of a training run, in order.

    Raises:
        CheckpointError: there are none.
    """
    if not Path(folder).is_dir():
        what = "is a file, not the folder of a run" if Path(folder).exists() else "does not exist"
        raise CheckpointError(f"{folder} {what}; train one with: interp train RECIPE")
    places = sorted(Path(folder).glob("checkpoints/step-*"))
    if not places:
        raise CheckpointError(
            f"{folder} has no checkpoints, so nothing can be said of how it formed; train with "
            "checkpoints in the recipe's [training]"
        )
    steps = [re.sub(r"\D", "", place.name) for place in places]
    return {int(step): place for step, place in zip(steps, places, strict=True) if step}


def formation(
    checkpoints: str | Path | Mapping[int, HookedGPT],
    tokens: Input | None = None,
    *,
    sequences: int = SEQUENCES,
    seed: int = 0,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Formation:
    """Returns scores, paths and losses at every checkpoint.

    Args:
        checkpoints: the folder of a training run, or step → model.
        tokens: sequences for the in-context-learning score; without them there is none.
        sequences: how many random repeating ones.
        seed: of them, and of the intervals.
        device: where to run.
        progress: called with (checkpoints done, of how many).

    Raises:
        CheckpointError: the folder has no checkpoints, or they are damaged.
        ConfigError: no blocks; an empty mapping.
        TokenError: a context too short, or a vocabulary too small, for tokens to repeat.
    """
    if isinstance(checkpoints, str | Path):
        places = checkpoints_of(checkpoints)
        models = (
            (step, HookedGPT.from_pretrained(place, device)) for step, place in places.items()
        )
        steps, of = list(places), len(places)
    else:
        steps, of = sorted(checkpoints), len(checkpoints)
        models = ((step, checkpoints[step]) for step in steps)
    if not steps:
        raise ConfigError("there are no checkpoints to look at")
    rows = []
    for done, (_, model) in enumerate(models, 1):
        repeats, periods = random_repeats(model, sequences, seed)
        rows.append(_measure(model, repeats.to(model.device), periods, tokens, seed))
        if progress is not None:
            progress(done, of)
    last = rows[-1]
    return Formation(
        steps=np.array(steps),
        **{name: np.stack([row[name] for row in rows]) for name in
           ("repeated_loss", "first_loss", "icl")},
        values=np.stack([row["values"] for row in rows], 1),
        paths=np.stack([row["paths"] for row in rows], -1),
        scores=SCORES, senders=last["senders"], receivers=last["receivers"],
        provenance=Provenance.of(model, repeats, seed=seed),
    )  # fmt: skip


def random_repeats(
    model: HookedGPT, count: int, seed: int
) -> tuple[Int[Tensor, "batch pos"], Int[Tensor, " batch"]]:
    """Returns random repeating tokens that fill a model's context, and their periods.

    Periods run from an eighth to half of the context, as far as the vocabulary reaches: no token
    occurs twice in a segment.

    Raises:
        TokenError: a context too short or a vocabulary too small.
    """
    n, d_vocab = model.config.n_ctx, model.config.d_vocab
    greatest = min(n // 2, d_vocab)
    least = max(2, min(n // 8, greatest))
    if greatest < least:
        raise TokenError(
            f"with n_ctx = {n} and d_vocab = {d_vocab} no tokens can repeat with a period of 2 or "
            "more; at least 4 and 2 are needed"
        )
    rng = np.random.default_rng([seed, 4])
    return repeated_sequences(d_vocab, count, n, (least, greatest), rng)


@torch.no_grad()
def _measure(
    model: HookedGPT, repeats: Tensor, periods: Tensor, tokens: Input | None, seed: int
) -> dict[str, Any]:
    """One checkpoint."""
    loss = next_token_loss(model(repeats), repeats, per_token=True)
    at = torch.arange(repeats.shape[1], device=repeats.device)
    again = at >= periods.to(at.device)[:, None]  # [batch pos]
    new = at < periods.to(at.device)[:, None] - 1
    found = head_scores(model, repeats, untrained=0, permuted=False, seed=seed)
    values = [found.of(name) for name in SCORES]
    senders: tuple[str, ...] = ()
    receivers: tuple[str, ...] = ()
    paths = np.zeros((0, 0))
    if model.config.n_layers > 1:
        carried = path_effects(model, repeats, where=again, seed=seed)
        senders, receivers = carried.senders, carried.receivers
        paths = carried.values.mean(-1)
    icl = np.zeros(0)
    if tokens is not None:
        ids = model.to_tokens(tokens)
        icl = _late_less_early(next_token_loss(model(ids), ids, per_token=True))
    return {
        "repeated_loss": _mean(loss, again[:, :-1]),
        "first_loss": _mean(loss, new[:, :-1]),
        "values": np.stack(values),
        "senders": senders,
        "receivers": receivers,
        "paths": paths,
        "icl": icl,
    }


def _mean(loss: Tensor, counted: Tensor) -> np.ndarray:
    return to_numpy((loss * counted).sum(1) / counted.sum(1))


def _late_less_early(loss: Float[Tensor, "batch pos"]) -> np.ndarray:
    """The mean over the last tenth of the positions less that over the second tenth."""
    n = loss.shape[1]
    tenth = max(1, n // 10)
    return to_numpy(loss[:, -tenth:].mean(1) - loss[:, tenth : 2 * tenth].mean(1))
