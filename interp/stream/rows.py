"""Rows of attention maps: how evenly a query spreads its weight, and how far its scores differ.

Row t sees the keys 0 to t; what stands after them is never looked at, so scores may hold −inf or
NaN there. Row 0 sees one key: its entropy is 0, and what divides by ln 1 or by 1 − 1 is NaN, so
means are over rows t ≥ 1, `rows[..., 1:]`. Sums are in the dtype that is given.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def entropy(patterns: Float[Tensor, "*of pos key"]) -> Float[Tensor, "*of pos"]:
    """Returns −Σ p ln p of each row of weights, in nats; 0 · ln 0 counts as 0."""
    out: Tensor = torch.special.entr(patterns).sum(-1)
    return out


def softmax_of_scores(
    scores: Float[Tensor, "*of pos pos"],
) -> tuple[Float[Tensor, "*of pos pos"], Float[Tensor, "*of pos pos"]]:
    """Returns the weights of each row of scores before the softmax, and their logs."""
    log_p = scores.masked_fill(~_visible(scores), -torch.inf).log_softmax(-1)
    return log_p.exp(), log_p


def entropy_of_scores(scores: Float[Tensor, "*of pos pos"]) -> Float[Tensor, "*of pos"]:
    """Returns the entropy in nats of the softmax of each row's visible scores."""
    p, log_p = softmax_of_scores(scores)
    out: Tensor = -torch.where(_visible(scores), p * log_p, 0.0).sum(-1)
    return out


def normalised(entropies: Float[Tensor, "*of pos"]) -> Float[Tensor, "*of pos"]:
    """Returns entropies over ln of the number of visible keys: 1 where all weights are equal.

    NaN in row 0, which sees one key.
    """
    keys = torch.arange(1, entropies.shape[-1] + 1, device=entropies.device)
    return entropies / keys.to(entropies.dtype).log()


def largest(patterns: Float[Tensor, "*of pos key"]) -> Float[Tensor, "*of pos"]:
    """Returns the largest weight of each row."""
    return patterns.amax(-1)


def variance(scores: Float[Tensor, "*of pos pos"]) -> Float[Tensor, "*of pos"]:
    """Returns the unbiased variance of each row's visible scores; NaN in row 0.

    The std within a row, over many rows, is the root of their mean variance.
    """
    visible = _visible(scores)
    keys = torch.arange(1, scores.shape[-1] + 1, device=scores.device)
    seen = torch.where(visible, scores, 0.0)
    mean = seen.sum(-1, keepdim=True) / keys[:, None]
    out: Tensor = torch.where(visible, seen - mean, 0.0).square().sum(-1) / (keys - 1)
    return out


def _visible(maps: Float[Tensor, "*of pos pos"]) -> Tensor:
    """[pos key]: the key is not after the query."""
    n = maps.shape[-1]
    return torch.ones(n, n, dtype=torch.bool, device=maps.device).tril()
