"""The logit lens: what the model would predict if it stopped early.

At each depth the residual stream goes through the final LayerNorm, *with statistics of its own*,
and the unembedding. That is not the frozen-LayerNorm attribution of `interp.logit_attribution`:
early streams are small, and with the last stream's scale they would look falsely uncertain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from interp.errors import CompletenessError
from interp.gpt.cache import ActivationCache
from interp.gpt.model import HookedGPT
from interp.results.provenance import Provenance
from interp.results.result import Result, to_numpy
from interp.stream.metric import tokens_of


@dataclass(frozen=True, kw_only=True)
class LogitLens(Result):
    """Predictions read off the stream at each depth, for every position but the last.

    `log_prob` of the true next token in nats; its `rank` (0 is best); the prediction's `entropy` in
    nats; the likeliest token `top` and its probability `top_prob`. All [depth, batch, pos].
    """

    AXES: ClassVar = dict.fromkeys(
        ("log_prob", "rank", "entropy", "top", "top_prob"), ("depth", "batch", "pos")
    ) | {"tokens": ("batch", "pos"), "targets": ("batch", "pos")}
    NAMES: ClassVar = {"depths": "depth"}
    QUANTA: ClassVar = {"log_prob": 1e-3, "entropy": 1e-3, "top_prob": 1 / 32767}
    log_prob: np.ndarray
    rank: np.ndarray
    entropy: np.ndarray
    top: np.ndarray
    top_prob: np.ndarray
    tokens: np.ndarray
    targets: np.ndarray
    depths: tuple[str, ...]
    characters: tuple[str, ...] | None

    def to_frame(self) -> pd.DataFrame:
        """Returns columns depth, batch, pos, target, log_prob, rank, entropy, top, top_prob."""
        n, batch, pos = self.log_prob.shape
        index = pd.MultiIndex.from_product(
            [self.depths, range(batch), range(pos)], names=["depth", "batch", "pos"]
        )
        columns = {"target": np.tile(self.targets.ravel(), n)}
        columns |= {
            name: getattr(self, name).ravel()
            for name in ("log_prob", "rank", "entropy", "top", "top_prob")
        }
        return pd.DataFrame(columns, index=index).reset_index()


@dataclass(frozen=True, kw_only=True)
class Predictions(Result):
    """What the model predicts at every position but the last: the likeliest tokens.

    `top` and `top_prob` [batch, pos, choice], likeliest first; of the true next token its
    probability `prob` and `rank` (0 is best), [batch, pos]. `tokens` are all of them.
    """

    AXES: ClassVar = {
        "top": ("batch", "pos", "choice"),
        "top_prob": ("batch", "pos", "choice"),
        "prob": ("batch", "pos"),
        "rank": ("batch", "pos"),
        "tokens": ("batch", "token"),
    }
    top: np.ndarray
    top_prob: np.ndarray
    prob: np.ndarray
    rank: np.ndarray
    tokens: np.ndarray
    characters: tuple[str, ...] | None

    def to_frame(self) -> pd.DataFrame:
        """Returns columns batch, pos, choice, token, prob, one row a choice."""
        index = pd.MultiIndex.from_product(
            [range(n) for n in self.top.shape], names=["batch", "pos", "choice"]
        )
        columns = {"token": self.top.ravel(), "prob": self.top_prob.ravel()}
        return pd.DataFrame(columns, index=index).reset_index()


@torch.no_grad()
def predictions(model: HookedGPT, cache: ActivationCache, k: int = 5) -> Predictions:
    """Returns the `k` likeliest next tokens at every position but the last.

    Raises:
        CacheError: another model's cache, or one without logits.
        CompletenessError: predictions that are not numbers.
    """
    tokens = tokens_of(model, cache)
    p = cache["hook_logits"][:, :-1].softmax(-1)
    if not bool(p.isfinite().all()):
        raise CompletenessError("the model's predictions are not finite numbers")
    found = p.topk(min(k, p.shape[-1]), dim=-1)
    true = p.gather(-1, tokens[:, 1:, None])
    return Predictions(
        top=to_numpy(found.indices), top_prob=to_numpy(found.values),
        prob=to_numpy(true[..., 0]), rank=to_numpy((p > true).sum(-1)), tokens=to_numpy(tokens),
        characters=None if model.tokenizer is None else model.tokenizer.characters,
        provenance=Provenance.of(model, tokens),
    )  # fmt: skip


@torch.no_grad()
def logit_lens(model: HookedGPT, cache: ActivationCache) -> LogitLens:
    """Returns what the residual stream predicts at each depth.

    Args:
        model: the model.
        cache: of a run of it that keeps the residual stream or can rebuild it.

    Raises:
        CacheError: another model's cache, or one without the residual stream.
        CompletenessError: predictions that are not numbers.
    """
    tokens = tokens_of(model, cache)
    targets = tokens[:, 1:]
    streams = {"embed": cache["embed"]}
    if model.config.positional:
        streams["embed"] = streams["embed"] + cache["pos_embed"]
    for layer in range(model.config.n_layers):
        if not model.config.attn_only:
            streams[f"L{layer}.attn"] = cache["resid_mid", layer]
        streams[f"L{layer}"] = cache["resid_post", layer]
    read = [_predictions(model, stream, targets) for stream in streams.values()]
    stacked = {name: np.stack([to_numpy(one[name]) for one in read]) for name in read[0]}
    return LogitLens(
        **stacked,
        tokens=to_numpy(tokens[:, :-1]),
        targets=to_numpy(targets),
        depths=tuple(streams),
        characters=None if model.tokenizer is None else model.tokenizer.characters,
        provenance=Provenance.of(model, tokens),
    )


def _predictions(model: HookedGPT, stream: Tensor, targets: Tensor) -> dict[str, Tensor]:
    log_probs = model.unembed_residual(stream[:, :-1]).log_softmax(-1)
    if bool(log_probs.isnan().any()):
        raise CompletenessError("the model's predictions are not numbers; its weights hold a NaN")
    of_target = log_probs.gather(-1, targets[..., None])
    top_prob, top = log_probs.max(-1)
    return {
        "log_prob": of_target[..., 0],
        "rank": (log_probs > of_target).sum(-1),
        "entropy": -(log_probs.exp() * log_probs).sum(-1),
        "top": top,
        "top_prob": top_prob.exp(),
    }
