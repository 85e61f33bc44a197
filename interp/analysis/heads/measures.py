"""Every score of every head and sequence, from runs: attention to kinds of keys, and whole rows.

What the scores mean is told in `interp.analysis.heads.scores`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.analysis.heads.attention_targets import ROW_SCORES, key_masks
from interp.gpt.cache import ActivationCache
from interp.gpt.model import HookedGPT
from interp.results.document import to_numpy
from interp.stream import rows

BATCH = 16  # sequences run at a time


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Per sequence: values, uniform, permuted [score layer head sequence]; queries [score]."""

    names: list[str]
    values: np.ndarray
    uniform: np.ndarray
    permuted: np.ndarray
    queries: np.ndarray


@dataclass(frozen=True)
class Targets:
    """The kinds of keys in some sequences, and the queries that can choose (the eligible ones).

    `masks` [batch pos key kind] as numbers; `weights` [batch pos kind] each query's share of its
    sequence's mean, NaN where there is no eligible one; `uniform` [kind batch] what equal attention
    gives; `queries` [kind] how many are eligible.
    """

    names: list[str]
    masks: Tensor
    weights: Tensor
    uniform: Tensor
    queries: Tensor

    @classmethod
    def of(
        cls, tokens: Int[Tensor, "batch pos"], characters: Sequence[str] | None, back: int,
        dtype: torch.dtype,
    ) -> Targets:  # fmt: skip
        """Returns what some tokens have."""
        names, masks = key_masks(tokens, characters, back)
        visible = torch.arange(1, masks.shape[1] + 1, device=masks.device)[:, None]
        count = masks.sum(2)  # [batch pos kind]
        eligible = (count > 0) & (count < visible)
        weights = eligible.to(dtype) / eligible.sum(1, keepdim=True)
        uniform = ((count / visible).to(dtype) * weights).sum(1).T
        return cls(names, masks.to(dtype), weights, uniform, eligible.sum((0, 1)))

    def masses(
        self, pattern: Float[Tensor, "batch head pos key"]
    ) -> Float[Tensor, "kind head batch"]:
        """Returns the attention to each kind of key, averaged over the eligible queries."""
        mass = torch.einsum("bhqk,bqkm->bhqm", pattern, self.masks)
        return torch.einsum("bhqm,bqm->mhb", mass, self.weights)


@torch.no_grad()
def measure(
    model: HookedGPT,
    tokens: Int[Tensor, "batch pos"],
    back: int,
    permuted: Int[Tensor, "batch pos"] | None = None,
    done: Callable[[int], None] | None = None,
) -> Measured:
    """Returns every score of every head and sequence; NaN where one has no eligible query.

    Args:
        model: the model.
        tokens: sequences.
        back: up to how many positions back the k-back kinds go.
        permuted: the tokens in another order, for the kinds of keys of that null.
        done: called with the number of sequences, after each batch.
    """
    characters = None if model.tokenizer is None else model.tokenizer.characters
    names: list[str] = []
    found: list[tuple[np.ndarray, ...]] = []
    queries = np.zeros(0, np.int64)
    for start in range(0, len(tokens), BATCH):
        at = slice(start, start + BATCH)
        targets = Targets.of(tokens[at], characters, back, model.dtype)
        other = None
        if permuted is not None:
            other = Targets.of(permuted[at], characters, back, model.dtype)
        n = len(tokens[at])
        names = [*targets.names, *ROW_SCORES]
        found.append(_batch(model, tokens[at], targets, other))
        whole_rows = [n * (tokens.shape[1] - 1)] * len(ROW_SCORES)
        now = np.array([*targets.queries.tolist(), *whole_rows])
        queries = now if not len(queries) else queries + now
        if done is not None:
            done(n)
    values, uniform, by_order = (np.concatenate(x, -1) for x in zip(*found, strict=True))
    return Measured(names=names, values=values, uniform=uniform, permuted=by_order, queries=queries)


def _batch(
    model: HookedGPT, tokens: Int[Tensor, "batch pos"], targets: Targets, other: Targets | None
) -> tuple[np.ndarray, ...]:
    """Values, uniform and permuted, [score layer head sequence], of one batch."""
    hooks = [f"blocks.{i}.attn.hook_{what}" for i in range(len(model.blocks))
             for what in ("pattern", "v")]  # fmt: skip
    _, cache = model.run_with_cache(tokens, names_filter=hooks, return_type=None)
    layers = [_layer(model, cache, i, targets, other) for i in range(len(model.blocks))]
    return tuple(to_numpy(torch.stack(parts, 1)) for parts in zip(*layers, strict=True))


def _layer(
    model: HookedGPT, cache: ActivationCache, layer: int, targets: Targets, other: Targets | None
) -> tuple[Tensor, ...]:
    """Values, uniform and permuted, [score head sequence], of one layer."""
    pattern = cache["pattern", layer]  # [batch head pos key]
    of_rows, rows_uniform = _row_scores(pattern, _value_sizes(model, layer, cache["v", layer]))
    of_kinds = targets.masses(pattern)
    by_order = torch.full_like(of_kinds, torch.nan) if other is None else other.masses(pattern)
    return (
        torch.cat((of_kinds, of_rows)),
        torch.cat((targets.uniform[:, None].expand_as(of_kinds), rows_uniform)),
        torch.cat((by_order, torch.full_like(of_rows, torch.nan))),
    )


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
    at = torch.arange(pattern.shape[2], device=pattern.device)
    visible = (at[1:] + 1).to(pattern.dtype)  # keys of each row
    weighted = pattern[:, :, 1:, 0] * sizes[:, :, None, 0]
    total = torch.einsum("bhqk,bhk->bhq", pattern[:, :, 1:], sizes)
    entropy = rows.entropy(pattern)  # [batch head pos]
    distance = at[1:] - torch.einsum("bhqk,k->bhq", pattern[:, :, 1:], at.to(pattern.dtype))
    each = [
        torch.where(total > 0, weighted / total, 0.0), rows.largest(pattern)[..., 1:],
        rows.normalised(entropy)[..., 1:], entropy[..., 1:].exp(), distance,
    ]  # fmt: skip
    written = sizes.cumsum(-1)[:, :, 1:]
    share = torch.where(written > 0, sizes[:, :, :1] / written, 0.0).mean(2).T  # [head batch]
    one = torch.ones((), dtype=visible.dtype, device=visible.device)
    flat = [(1 / visible).mean(), one, visible.mean(), at[1:].to(visible.dtype).mean() / 2]
    uniform = torch.stack([share, *(value.expand_as(share) for value in flat)])
    return torch.stack([value.mean(-1).T for value in each]), uniform
