"""The one-head model's own decomposition: by source position, and b_U.

That rung has no residual connection, no LayerNorm and no projection:

    logits[t] = Σ_s P[t, s] · (x_s W_V) W_U + b_U

so the character at t itself has no direct path, and a row for the embedding would be wrong.
"""

from __future__ import annotations

from typing import get_args

import torch
from einops import rearrange
from jaxtyping import Int
from torch import Tensor

from interp.analysis.direct.attribution import of_logits
from interp.analysis.direct.results import LogitAttribution
from interp.deprecated import renamed
from interp.errors import ConfigError, TokenError
from interp.gpt.folder import AnyModel
from interp.lesson.ladder import OneHead, Positions
from interp.stream.metric import LinearMetric, TokensGiven, check_choice, make_metric
from interp.stream.tolerance import check_dtype


@renamed(scalar="metric")
@torch.no_grad()
def single_head_attribution(
    model: AnyModel,
    tokens: Int[Tensor, "batch pos"],
    *,
    metric: LinearMetric = "centered",
    targets: TokensGiven | None = None,
) -> LogitAttribution:
    """Returns the logits of a one-head model, split by source position; rows S0, S1, …, and b_U.

    Args:
        model: the rung "head", in evaluation mode.
        tokens: [batch, pos].
        metric: "centered", "probability" or "raw".
        targets: by default the next token at every position but the last.

    Raises:
        ConfigError: another rung; metric "foil"; neither float32 nor float64.
        CompletenessError: the rows do not add up to the model's logits (dropout in training mode).
        TokenError: tokens or targets outside the vocabulary.

    Example:
        >>> import interp, torch
        >>> cfg = interp.LadderConfig(rung="head", d_vocab=5, d_model=8)
        >>> model = interp.build_model(cfg)
        >>> interp.single_head_attribution(model, torch.tensor([[0, 3, 4]])).components
        ('S0', 'S1', 'b_U')
    """
    if not isinstance(model, OneHead):
        given = getattr(model.config, "rung", type(model).__name__)
        raise ConfigError(
            f"this decomposition is of the rung 'head', not of {given!r}; a model with "
            "a residual stream is split by logit_attribution"
        )
    check_choice("metric", metric, tuple(s for s in get_args(LinearMetric) if s != "foil"))
    check_dtype(model)
    if (
        tokens.ndim != 2
        or not tokens.numel()
        or int(tokens.min()) < 0
        or int(tokens.max()) >= model.config.d_vocab
    ):
        raise TokenError(
            f"expected tokens [batch, pos] of ids 0 … {model.config.d_vocab - 1}, got shape "
            f"{tuple(tokens.shape)}"
        )
    value_of = make_metric(model, tokens, model(tokens), metric, targets)
    head, n_pos = model.attention_head, value_of.n_pos
    x = Positions.represent(model, tokens)[:, :n_pos]  # what the head reads
    pattern = head.weights(x)
    direction = value_of.weights()
    into_value = direction @ model.LM_head.weight  # [batch pos C]
    by_source = pattern * (into_value @ head.value(x).mT)  # [batch pos key]
    b_U = (direction @ model.LM_head.bias)[None]
    names = [*(f"S{key}" for key in range(n_pos)), "b_U"]
    values = torch.cat((rearrange(by_source, "batch pos key -> key batch pos"), b_U))
    total = (direction * value_of.logits).sum(-1)
    return of_logits(model, tokens, (names, values), total, value_of, "source")
