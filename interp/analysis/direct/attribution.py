"""Logits, and anything else that is read from the residual stream, split exactly into parts.

With a LayerNorm's scale s held at the value the run had, what is read is linear in the stream: for
each part c of the stream, and the final LayerNorm's gain w and bias b,

    A_c[j] = W_U[:, j] · (w * (c − mean c) / s)        and        Σ_c A_c + W_U·b + b_U = logits.

The last two terms are the rows `ln_bias` and `b_U`; nothing is left over, and the sum is checked
against the model's own values before anything is returned. What of the logits is split is one of

    "centered"     logit[y] − mean_j logit[j]                          (default)
    "foil"         logit[y] − logit[foil]
    "probability"  logit[y] − Σ_j p_j logit[j]  =  log p_y + H(p);  to first order the change of
                   log p_y when the part is removed (log p_y itself is not a sum of parts)
    "raw"          logit[y], which cannot be identified (see `interp.stream.metric`)

These are *direct* contributions with the normalisation frozen; what happens when a part is really
removed is another question, answered by `interp.component_effects`.
"""

from __future__ import annotations

from typing import get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp.analysis.direct.results import LogitAttribution
from interp.deprecated import renamed
from interp.gpt.cache import ActivationCache
from interp.gpt.folder import AnyModel
from interp.gpt.layers import LayerNorm
from interp.gpt.model import HookedGPT
from interp.results.document import to_numpy
from interp.stream.metric import (
    LinearMetric,
    Metric,
    check_choice,
    make_metric,
    tokens_of,
)
from interp.stream.reading import By, read_stream
from interp.stream.token_ids import TokensGiven
from interp.stream.tolerance import check_dtype


@renamed(scalar="metric")
@torch.no_grad()
def logit_attribution(
    model: HookedGPT,
    cache: ActivationCache,
    by: By = "block",
    *,
    metric: LinearMetric = "centered",
    targets: TokensGiven | None = None,
    foils: TokensGiven | None = None,
) -> LogitAttribution:
    """Returns the logits of each position's target, split into components that sum to them.

    Args:
        model: the model.
        cache: of a run in evaluation mode (`model.run_with_cache(tokens)`).
        by: "block"; "head" tells the heads of each attention apart, "source" also the key position
            that each head took it from (`L0.H3.S5`), "neuron" the neurons of each MLP (`L0.N17`).
        metric: see the module.
        targets: the characters or ids to explain (see `interp.stream.token_ids`); by default
            the token at `pos + 1`, and at the last position the one that the model finds likeliest.
        foils: what metric="foil" compares with; likewise.

    Raises:
        CompletenessError: the rows do not add up to the model's logits within
            1e-5·(1 + Σ|A|) in float32 or 1e-12·(1 + Σ|A|) in float64.
        CacheError: the cache is another model's, or lacks what is needed.
        TokenError: targets or foils outside the vocabulary or of the wrong shape.
        ConfigError: an unknown `by` or `metric`, a foil missing or not wanted, a dtype without a
            stated tolerance.

    Example:
        >>> import interp
        >>> cfg = interp.GPTConfig(n_layers=1, n_heads=2, d_model=8, n_ctx=4, d_vocab=2)
        >>> model = interp.HookedGPT(cfg, interp.CharTokenizer("ab"))
        >>> logits, cache = model.run_with_cache("abba")
        >>> parts = interp.logit_attribution(model, cache)
        >>> parts.components
        ('embed', 'pos_embed', 'L0.attn', 'L0.b_O', 'L0.mlp', 'L0.b_out', 'ln_bias', 'b_U')
    """
    check_choice("by", by, get_args(By))
    check_choice("metric", metric, get_args(LinearMetric))
    tokens = tokens_of(model, cache)
    check_dtype(model)
    value_of = make_metric(
        model, tokens, cache["hook_logits"], metric, targets, foils, get_args(LinearMetric),
        after_last=True,
    )  # fmt: skip
    weights = value_of.weights()
    total = (weights * value_of.logits).sum(-1)
    rows = _logit_rows(model, cache, weights, by)
    return of_logits(model, tokens, rows, total, value_of, by)


def of_logits(
    model: AnyModel,
    tokens: Int[Tensor, "batch all_pos"],
    rows: tuple[list[str], Float[Tensor, "component batch pos"]],
    total: Float[Tensor, "batch pos"],
    value_of: Metric,
    by: str,
) -> LogitAttribution:
    """Returns the attribution of a linear metric, checked.

    Raises:
        CompletenessError: the rows do not sum to the total.
    """
    targets, foils = value_of.targets, value_of.foils
    following = torch.nn.functional.pad(tokens[:, 1:], (0, 1), value=-1)[:, : value_of.n_pos]
    return LogitAttribution.checked(
        model,
        tokens,
        rows,
        total,
        targets=to_numpy(targets),
        foils=to_numpy(torch.full_like(targets, -1) if foils is None else foils),
        target_is_next=to_numpy(targets == following),
        metric=value_of.name,
        by=by,
    )


def _logit_rows(
    model: HookedGPT, cache: ActivationCache, weights: Float[Tensor, "batch pos d_vocab"], by: By
) -> tuple[list[str], Tensor]:
    b_U = {} if model.b_U is None else {"b_U": weights @ model.b_U}
    place = (len(model.blocks), 0)
    return rows_along(model, cache, weights @ model.W_U.T, by, place, model.ln_final, b_U)


def rows_along(
    model: HookedGPT,
    cache: ActivationCache,
    direction: Float[Tensor, "batch pos d_model"],
    by: By,
    place: tuple[int, int],
    norm: nn.Module,
    constants: dict[str, Float[Tensor, "batch pos"]],
) -> tuple[list[str], Tensor]:
    """Returns the parts of what is read along `direction` from the stream at `place`.

    Args:
        model: the model.
        cache: of the run.
        direction: what is read of the normalised stream at each position.
        by: what to tell apart.
        place: (block, 0 for its attention, 1 for its MLP), or (n_layers, 0) behind all.
        norm: the LayerNorm in front of it; its bias is a row, its scale the run's.
        constants: further rows, by label.
    """
    if isinstance(norm, LayerNorm):
        constants = {_bias_label(place, model): direction @ norm.b, **constants}
        # (w * (c − mean c) / s) · u  =  c · (w*u − mean(w*u)) / s
        direction = direction * norm.w
        direction = direction - direction.mean(-1, keepdim=True)
        direction = (
            direction / cache[f"{_norm_name(place, model)}.hook_scale"][:, : direction.shape[1]]
        )
    labels, values = read_stream(model, cache, direction, by, place)
    if constants:
        values = torch.cat((values, torch.stack(list(constants.values()))))
    return [*labels, *constants], values


def _norm_name(place: tuple[int, int], model: HookedGPT) -> str:
    layer, half = place
    return "ln_final" if layer == len(model.blocks) else f"blocks.{layer}.ln{half + 1}"


def _bias_label(place: tuple[int, int], model: HookedGPT) -> str:
    layer, half = place
    return "ln_bias" if layer == len(model.blocks) else f"L{layer}.ln{half + 1}_bias"
