"""Sequences run a batch at a time, with what each run left behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from interp.gpt.cache import ActivationCache
from interp.gpt.model import HookedGPT

BATCH = 16  # sequences in one run whose activations are kept


@dataclass(frozen=True)
class Run:
    """One batch, run: which rows of all sequences, their tokens, the logits, the activations."""

    rows: slice
    tokens: Int[Tensor, "batch pos"]
    logits: Float[Tensor, "batch pos d_vocab"]
    cache: ActivationCache


def runs(model: HookedGPT, tokens: Int[Tensor, "sequence pos"]) -> Iterator[Run]:
    """Yields the runs of all sequences, `BATCH` at a time."""
    for start in range(0, len(tokens), BATCH):
        batch = tokens[start : start + BATCH]
        logits, cache = model.run_with_cache(batch)
        yield Run(slice(start, start + len(batch)), batch, logits, cache)
