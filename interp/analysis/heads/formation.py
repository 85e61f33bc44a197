"""How heads form: scores, paths and losses over the checkpoints of a training run.

Everything is measured at each checkpoint on the same random tokens that repeat with random periods
(`repeated_sequences`): the loss from the second copy on, which only a model that looks back can
lower; the scores of every head; and what each path from an earlier head into the queries, keys or
values of a later layer carries of that loss. On the sequences given: the in-context-learning score,
the loss late in the context less the loss early in it (Olsson et al. 2022).

Where the repeated loss fell is told by `interp.analysis.heads.change_points`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.analysis.circuits.paths import path_effects
from interp.analysis.heads.formation_results import Formation
from interp.analysis.heads.scores import head_scores
from interp.data.repeated import repeated_sequences, repeats_for
from interp.errors import CheckpointError, ConfigError, TokenError
from interp.gpt.model import HookedGPT, Input, next_token_loss
from interp.results.document import to_numpy
from interp.results.provenance import Provenance

SCORES = ("previous", "duplicate", "induction", "sink", "entropy")
SEQUENCES = 64
Progress = Callable[[int, int], None]


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
    steps, models = _models(checkpoints, device)
    rows = []
    for done, model in enumerate(models, 1):
        repeats, periods = random_repeats(model, sequences, seed)
        rows.append(_measure(model, repeats.to(model.device), periods, tokens, seed))
        if progress is not None:
            progress(done, len(steps))
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


def _models(
    checkpoints: str | Path | Mapping[int, HookedGPT], device: str | torch.device
) -> tuple[list[int], Iterator[HookedGPT]]:
    """The steps, and their models, each loaded when it is its turn."""
    if isinstance(checkpoints, str | Path):
        places = checkpoints_of(checkpoints)
        steps = list(places)
        models = (HookedGPT.from_pretrained(place, device) for place in places.values())
    else:
        steps = sorted(checkpoints)
        models = (checkpoints[step] for step in steps)
    if not steps:
        raise ConfigError("there are no checkpoints to look at")
    return steps, models


def random_repeats(
    model: HookedGPT, count: int, seed: int
) -> tuple[Int[Tensor, "batch pos"], Int[Tensor, " batch"]]:
    """Returns random repeating tokens that fill a model's context, and their periods.

    Raises:
        TokenError: a context too short or a vocabulary too small.
    """
    n, d_vocab = model.config.n_ctx, model.config.d_vocab
    reach = repeats_for(n, d_vocab)
    if reach is None:
        raise TokenError(
            f"with n_ctx = {n} and d_vocab = {d_vocab} no tokens can repeat with a period of 2 or "
            "more; at least 4 and 2 are needed"
        )
    return repeated_sequences(d_vocab, count, n, reach, np.random.default_rng([seed, 4]))


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
