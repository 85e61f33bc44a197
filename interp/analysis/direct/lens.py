"""The logit lens: what the model would predict if it stopped early.

At each depth the residual stream goes through the final LayerNorm, *with statistics of its own*,
and the unembedding. That is not the frozen-LayerNorm attribution of `interp.logit_attribution`:
early streams are small, and with the last stream's scale they would look falsely uncertain.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from interp.analysis.direct.lens_results import LogitLens, Predictions
from interp.errors import CompletenessError
from interp.gpt.cache import ActivationCache
from interp.gpt.model import HookedGPT
from interp.results.document import to_numpy
from interp.results.provenance import Provenance
from interp.stream.metric import tokens_of


@torch.no_grad()
def predictions(model: HookedGPT, cache: ActivationCache, k: int = 5) -> Predictions:
    """Returns the `k` likeliest next tokens at every position; at the last, of what comes after.

    Raises:
        CacheError: another model's cache, or one without logits.
        CompletenessError: predictions that are not numbers.
    """
    tokens = tokens_of(model, cache)
    p = cache["hook_logits"].softmax(-1)
    if not bool(p.isfinite().all()):
        raise CompletenessError("the model's predictions are not finite numbers")
    likeliest = p.topk(min(k, p.shape[-1]), dim=-1)
    before = p[:, :-1]  # the last position has no next token
    true = before.gather(-1, tokens[:, 1:, None])
    return Predictions(
        top=to_numpy(likeliest.indices), top_prob=to_numpy(likeliest.values),
        prob=to_numpy(F.pad(true[..., 0], (0, 1), value=torch.nan)),
        rank=to_numpy(F.pad((before > true).sum(-1), (0, 1), value=-1)), tokens=to_numpy(tokens),
        characters=None if model.tokenizer is None else model.tokenizer.characters,
        provenance=Provenance.of(model, tokens),
    )  # fmt: skip


@torch.no_grad()
def logit_lens(model: HookedGPT, cache: ActivationCache) -> LogitLens:
    """Returns what the residual stream predicts at each depth, at every position.

    Args:
        model: the model.
        cache: of a run of it that keeps the residual stream or can rebuild it.

    Raises:
        CacheError: another model's cache, or one without the residual stream.
        CompletenessError: predictions that are not numbers.
    """
    tokens = tokens_of(model, cache)
    streams = {"embed": cache["embed"]}
    if model.config.positional:
        streams["embed"] = streams["embed"] + cache["pos_embed"]
    for layer in range(model.config.n_layers):
        if not model.config.attn_only:
            streams[f"L{layer}.attn"] = cache["resid_mid", layer]
        streams[f"L{layer}"] = cache["resid_post", layer]
    last = _log_probs(model, list(streams.values())[-1][:, -1:]).argmax(-1)
    targets = torch.cat((tokens[:, 1:], last), dim=1)
    read = [_predictions(model, stream, targets) for stream in streams.values()]
    stacked = {name: np.stack([to_numpy(one[name]) for one in read]) for name in read[0]}
    return LogitLens(
        **stacked,
        tokens=to_numpy(tokens),
        targets=to_numpy(targets),
        depths=tuple(streams),
        characters=None if model.tokenizer is None else model.tokenizer.characters,
        provenance=Provenance.of(model, tokens),
    )


def _predictions(model: HookedGPT, stream: Tensor, targets: Tensor) -> dict[str, Tensor]:
    log_probs = _log_probs(model, stream)
    of_target = log_probs.gather(-1, targets[..., None])
    top_prob, top = log_probs.max(-1)
    return {
        "log_prob": of_target[..., 0],
        "rank": (log_probs > of_target).sum(-1),
        "entropy": -(log_probs.exp() * log_probs).sum(-1),
        "top": top,
        "top_prob": top_prob.exp(),
    }


def _log_probs(model: HookedGPT, stream: Tensor) -> Tensor:
    log_probs = model.unembed_residual(stream).log_softmax(-1)
    if bool(log_probs.isnan().any()):
        raise CompletenessError("the model's predictions are not numbers; its weights hold a NaN")
    return log_probs
