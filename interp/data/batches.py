"""Windows of tokens: random ones to train on, all of them in order to validate on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor


def training_batch(
    tokens: Int[Tensor, " text"], n_ctx: int, batch_size: int, *, seed: int, step: int
) -> Int[Tensor, "batch pos"]:
    """Returns `batch_size` random windows of n_ctx + 1 tokens: inputs and, shifted by one, targets.

    A pure function of (seed, step), so that a resumed run sees the batches it would have seen.
    """
    starts = np.random.default_rng([seed, step]).integers(len(tokens) - n_ctx, size=batch_size)
    index = torch.from_numpy(starts)[:, None] + torch.arange(n_ctx + 1)
    return tokens[index]


def validation_windows(
    tokens: Int[Tensor, " text"], n_ctx: int, batch_size: int
) -> Iterator[Int[Tensor, "batch pos"]]:
    """Yields windows of at most n_ctx + 1 tokens; each token but the first is a target once."""
    n_whole = (len(tokens) - 1) // n_ctx
    whole = [tokens[i * n_ctx : (i + 1) * n_ctx + 1] for i in range(n_whole)]
    for i in range(0, n_whole, batch_size):
        yield torch.stack(whole[i : i + batch_size])
    rest = tokens[n_whole * n_ctx :]
    if len(rest) > 1:
        yield rest[None]
