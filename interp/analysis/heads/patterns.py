"""Attention patterns as a result: what every head looks at, over one passage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from interp.errors import ConfigError, TokenError
from interp.gpt.cache import ActivationCache
from interp.gpt.model import HookedGPT
from interp.results.provenance import Provenance
from interp.results.result import Result, to_numpy
from interp.stream.metric import tokens_of


@dataclass(frozen=True, kw_only=True)
class AttentionPatterns(Result):
    """`patterns` [layer, head, pos, key]: the weight of `key` in the query at `pos`; 0 above it.

    Rows sum to 1. `tokens` [pos] is the passage.
    """

    AXES: ClassVar = {"patterns": ("layer", "head", "pos", "key"), "tokens": ("pos",)}
    QUANTA: ClassVar = {"patterns": 1 / 32767}
    patterns: np.ndarray
    tokens: np.ndarray
    characters: tuple[str, ...] | None

    def to_frame(self) -> pd.DataFrame:
        """Returns columns layer, head, pos, key, weight, one row a visible key."""
        layers, heads, n, _ = self.patterns.shape
        pos, key = np.tril_indices(n)
        grid = pd.MultiIndex.from_product(
            [range(layers), range(heads), range(len(pos))], names=["layer", "head", "i"]
        ).to_frame(index=False)
        return pd.DataFrame(
            {
                "layer": grid["layer"],
                "head": grid["head"],
                "pos": pos[grid["i"]],
                "key": key[grid["i"]],
                "weight": self.patterns[:, :, pos, key].ravel(),
            }
        )


def attention_patterns(
    model: HookedGPT, cache: ActivationCache, sequence: int = 0
) -> AttentionPatterns:
    """Returns the patterns of every head on one sequence of the cache.

    Args:
        model: the model, with at least one block.
        cache: of a run of it.
        sequence: which sequence of the batch.

    Raises:
        CacheError: another model's cache, or one without patterns.
        TokenError: there is no such sequence.
        ConfigError: the model has no blocks.
    """
    tokens = tokens_of(model, cache)
    if not 0 <= sequence < len(tokens):
        raise TokenError(f"sequence {sequence} is outside the batch of {len(tokens)}")
    if not model.blocks:
        raise ConfigError("a model without blocks has no attention patterns")
    patterns = [to_numpy(cache["pattern", layer][sequence]) for layer in range(len(model.blocks))]
    return AttentionPatterns(
        patterns=np.stack(patterns),
        tokens=to_numpy(tokens[sequence]),
        characters=None if model.tokenizer is None else model.tokenizer.characters,
        provenance=Provenance.of(model, tokens),
    )
