"""A trained model with its attention scores multiplied.

1 is the model as it is, √d_head takes its scaling away, 0 makes attention uniform. This probes how
a trained model is calibrated, not why scaling helps training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.analysis.scaling.results import AttentionScaling
from interp.errors import ConfigError, TokenError
from interp.gpt.model import HookedGPT, Input, next_token_loss
from interp.results.document import to_numpy
from interp.results.provenance import Provenance
from interp.stream import rows
from interp.stream.metric import check_choice

Inputs = Literal["as they come", "frozen"]
Progress = Callable[[int, int], None]
MULTIPLIERS = (0.0, 0.25, 0.5, 2**-0.5, 1.0, 2**0.5, 2.0, 4.0, 8.0)
BATCH = 16  # sequences run at a time


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
    out = {name: np.zeros(shape) for name in ("entropy", "entropy_normalised", "largest", "loss")}
    grids = _grids(layers, heads, each)
    done, of = 0, len(values) * len(grids) * -(-len(ids) // BATCH)
    for start in range(0, len(ids), BATCH):
        piece = ids[start : start + BATCH]
        at = slice(start, start + len(piece))
        frozen = _run(model, piece)[0] if inputs == "frozen" else None
        for i, c in enumerate(values):
            for where, which in grids:
                grid = torch.where(which, float(c), 1.0)
                with model.attn_scaled_by(grid.to(model.device, model.dtype)):
                    scores, loss = _run(model, piece)
                for layer, head in where:
                    row = scores[layer][:, head] if frozen is None else c * frozen[layer][:, head]
                    for name, value in (_of_rows(row) | {"loss": loss}).items():
                        out[name][i, layer, head, at] = to_numpy(value)
                done += 1
                if progress is not None:
                    progress(done, of)
    return AttentionScaling(
        multipliers=values, **out, each=each, inputs=inputs,
        provenance=Provenance.of(model, ids, seed=seed),
    )  # fmt: skip


def _checked(model: HookedGPT, multipliers: Sequence[float], inputs: str) -> np.ndarray:
    """The multipliers, if they and the rest make sense."""
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


def _grids(layers: int, heads: int, each: bool) -> list[tuple[list[tuple[int, int]], Tensor]]:
    """The heads that a run is about, and which are multiplied in it."""
    every = [(layer, head) for layer in range(layers) for head in range(heads)]
    if not each:
        return [(every, torch.ones(layers, heads, dtype=torch.bool))]
    grids = []
    for layer, head in every:
        one = torch.zeros(layers, heads, dtype=torch.bool)
        one[layer, head] = True
        grids.append(([(layer, head)], one))
    return grids


def _run(model: HookedGPT, tokens: Tensor) -> tuple[list[Tensor], Tensor]:
    """The scores of every layer, [batch head pos key], and the loss of each sequence."""
    names = [f"blocks.{layer}.attn.hook_attn_scores" for layer in range(len(model.blocks))]
    logits, cache = model.run_with_cache(tokens, names_filter=names)
    loss = next_token_loss(logits, tokens, per_token=True).mean(1)
    return [cache[name] for name in names], loss


def _of_rows(scores: Float[Tensor, "batch pos key"]) -> dict[str, Tensor]:
    """Means over rows t ≥ 1 of one head's maps, one number per sequence.

    In float64 where the device has it; what a key after the query holds is not looked at, so that
    0 · −inf does no harm.
    """
    wide = scores.double() if scores.device.type != "mps" else scores
    weights, _ = rows.softmax_of_scores(wide)
    entropy = rows.entropy_of_scores(wide)
    return {
        "entropy": entropy[:, 1:].mean(1),
        "entropy_normalised": rows.normalised(entropy)[:, 1:].mean(1),
        "largest": rows.largest(weights)[:, 1:].mean(1),
    }


def scale_identity(model: HookedGPT, tokens: Input) -> dict[str, Float[np.ndarray, "layer head"]]:
    """Returns three numbers a head that must be equal: c·∂L/∂c, ⟨W_Q, ∂L/∂W_Q⟩, ⟨W_K, ∂L/∂W_K⟩.

    A score is c·(x W_Q)·(x W_K): a homogeneous function of degree 1 of the scale c, of W_Q and of
    W_K, so by Euler's theorem all three products are the same (without query and key biases, and
    without qk_norm).

    Raises:
        ConfigError: the model has query and key biases, or qk_norm.
        TokenError: sequences of one token have no loss.
    """
    if model.config.qkv_bias or model.config.qk_norm:
        what = "query and key biases" if model.config.qkv_bias else "qk_norm"
        raise ConfigError(f"with {what} the score is not homogeneous of degree 1 in W_Q and W_K")
    ids = model.to_tokens(tokens)
    if ids.shape[1] < 2:
        raise TokenError("a sequence of one token has no loss to take a gradient of")
    shape = (model.config.n_layers, model.config.n_heads)
    with torch.enable_grad():
        scale = torch.ones(shape, device=model.device, dtype=model.dtype, requires_grad=True)
        weights: list[Any] = [w for b in model.blocks for w in (b.attn.W_Q, b.attn.W_K)]
        frozen = [w for w in weights if not w.requires_grad]
        for w in frozen:
            w.requires_grad_(True)
        try:
            with model.attn_scaled_by(scale):
                loss = model(ids, return_type="loss")
            grads = torch.autograd.grad(loss, [scale, *weights])
        finally:
            for w in frozen:
                w.requires_grad_(False)
    inner = [(w * g).sum((1, 2)).detach() for w, g in zip(weights, grads[1:], strict=True)]
    return {
        "scale": to_numpy(grads[0]),
        "W_Q": to_numpy(torch.stack(inner[0::2])),
        "W_K": to_numpy(torch.stack(inner[1::2])),
    }
