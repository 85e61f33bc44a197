"""A trained model whose attention scores are multiplied: what becomes of entropy and loss.

1 is the model as it is, √d_head takes its scaling away, 0 makes attention uniform. This probes how
a trained model is calibrated, not why scaling helps training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.analysis.scaling.results import AttentionScaling
from interp.errors import ConfigError, TokenError
from interp.gpt.model import HookedGPT, Input, next_token_loss
from interp.results.provenance import Provenance
from interp.results.result import to_numpy
from interp.stream import rows
from interp.stream.metric import check_choice

Inputs = Literal["as they come", "frozen"]
Progress = Callable[[int, int], None]
MULTIPLIERS = (0.0, 0.25, 0.5, 2**-0.5, 1.0, 2**0.5, 2.0, 4.0, 8.0)
BATCH = 16  # sequences at a time
QUANTITIES = ("entropy", "entropy_normalised", "largest", "loss")


@torch.no_grad()
def attention_scaling(
    model: HookedGPT,
    tokens: Input,
    multipliers: Sequence[float] = MULTIPLIERS,
    *,
    each: bool = False,
    inputs: Inputs = "as they come",
    seed: int = 0,
    progress: Progress | None = None,
) -> AttentionScaling:
    """Returns what multiplying a model's attention scores does to entropy and loss.

    Args:
        model: the model, with at least one block.
        tokens: sequences of at least two tokens.
        multipliers: must hold 1.0, the model as it is.
        each: multiply one head at a time (its entropy, and the loss of that run) instead of all.
        inputs: "as they come": deeper heads read what the changed earlier ones wrote; "frozen": the
            entropies of each head are those of its own scores in the run as it was, multiplied. The
            loss is always that of the real run.
        seed: of the intervals.
        progress: called with (runs done, of how many).

    Raises:
        ConfigError: 1.0 is missing; a multiplier that is negative or not finite; no blocks.
        TokenError: sequences of one token.

    Example:
        >>> import interp
        >>> model = interp.HookedGPT.from_pretrained("models/shakespeare-char")
        >>> result = interp.attention_scaling(model, "First Citizen:", (0.0, 1.0, 2.0))
        >>> bool(abs(result.entropy_normalised[0] - 1).max() < 1e-5)
        True
    """
    values = _checked(model, multipliers, inputs)
    ids = model.to_tokens(tokens)
    if ids.shape[1] < 2:
        raise TokenError("sequences of at least two tokens are needed: row 0 sees one key only")
    layers, heads = model.config.n_layers, model.config.n_heads
    shape = (len(values), layers, heads, len(ids))
    out = {name: np.zeros(shape) for name in QUANTITIES}
    runs = list(_runs(layers, heads, each))
    done, of = 0, len(values) * len(runs) * -(-len(ids) // BATCH)
    for start in range(0, len(ids), BATCH):
        batch = ids[start : start + BATCH]
        frozen = _run(model, batch)[0] if inputs == "frozen" else None
        for i, c in enumerate(values):
            for run in runs:
                found = _measured(model, batch, float(c), run, frozen)
                for (layer, head), quantities in zip(run.about, found, strict=True):
                    for name, value in quantities.items():
                        out[name][i, layer, head, start : start + len(batch)] = to_numpy(value)
                done += 1
                if progress is not None:
                    progress(done, of)
    return AttentionScaling(
        multipliers=values, **out, each=each, inputs=inputs,
        provenance=Provenance.of(model, ids, seed=seed),
    )  # fmt: skip


def _checked(model: HookedGPT, multipliers: Sequence[float], inputs: str) -> np.ndarray:
    check_choice("inputs", inputs, get_args(Inputs))
    values = np.asarray(multipliers, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any() or 1.0 not in values:
        raise ConfigError(
            f"multipliers = {list(multipliers)} must be finite, not negative, and hold 1.0, the "
            "model as it is"
        )
    if not model.blocks:
        raise ConfigError("a model without blocks has no attention to scale")
    return values


@dataclass(frozen=True)
class _ScaledRun:
    """The heads that a run is about, and [layer head] which are multiplied in it."""

    about: list[tuple[int, int]]
    multiplied: Tensor


def _runs(layers: int, heads: int, each: bool) -> Iterator[_ScaledRun]:
    every = [(layer, head) for layer in range(layers) for head in range(heads)]
    if not each:
        yield _ScaledRun(every, torch.ones(layers, heads, dtype=torch.bool))
        return
    for layer, head in every:
        one = torch.zeros(layers, heads, dtype=torch.bool)
        one[layer, head] = True
        yield _ScaledRun([(layer, head)], one)


def _measured(
    model: HookedGPT, tokens: Tensor, c: float, run: _ScaledRun, frozen: list[Tensor] | None
) -> Iterator[dict[str, Tensor]]:
    """For each head that a run is about: each quantity, one number per sequence."""
    grid = torch.where(run.multiplied, c, 1.0)
    with model.attn_scaled_by(grid.to(model.device, model.dtype)):
        scores, loss = _run(model, tokens)
    for layer, head in run.about:
        own = scores[layer][:, head] if frozen is None else c * frozen[layer][:, head]
        yield {**_of_rows(own), "loss": loss}


def _run(model: HookedGPT, tokens: Tensor) -> tuple[list[Tensor], Tensor]:
    """The scores of every layer, [batch head pos key], and the loss of each sequence."""
    names = [f"blocks.{layer}.attn.hook_attn_scores" for layer in range(len(model.blocks))]
    logits, cache = model.run_with_cache(tokens, names_filter=names)
    loss = next_token_loss(logits, tokens, per_token=True).mean(1)
    return [cache[name] for name in names], loss


def _of_rows(scores: Float[Tensor, "batch pos pos"]) -> dict[str, Tensor]:
    """Means over rows t ≥ 1 of one head's maps, one number per sequence."""
    exact = scores if scores.device.type == "mps" else scores.double()
    entropy = rows.entropy_of_scores(exact)
    largest = rows.largest(rows.softmax_of_scores(exact)[0])
    return {
        "entropy": entropy[:, 1:].mean(1),
        "entropy_normalised": rows.normalised(entropy)[:, 1:].mean(1),
        "largest": largest[:, 1:].mean(1),
    }
