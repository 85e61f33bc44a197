"""Logits, split exactly into the parts that made them.

With the final LayerNorm's scale s held at the value the run had, a logit is linear in the residual
stream: for each part c of the stream

    A_c[j] = W_U[:, j] · (w * (c − mean c) / s)        and        Σ_c A_c + W_U·b + b_U = logits,

where w and b are the LayerNorm's gain and bias. The last two terms are the rows `ln_bias` and
`b_U`; nothing is left over, and the sum is checked against the model's own logits before anything
is returned.

A raw logit cannot be identified: adding the same vector to every column of W_U changes no
probability and every raw A. Hence the scalar that is split is one of

    "centered"     logit[y] − mean_j logit[j]                          (default)
    "foil"         logit[y] − logit[foil]
    "probability"  logit[y] − Σ_j p_j logit[j]  =  log p_y + H(p);  to first order the change of
                   log p_y when the part is removed (log p_y itself is not a sum of parts)
    "raw"          logit[y]

These are *direct* contributions with the normalisation frozen; what happens when a part is really
removed is another question.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.analysis.residual import By, read_stream
from interp.analysis.results import Provenance, Result, to_numpy
from interp.errors import CacheError, CompletenessError, ConfigError, TokenError, nearest
from interp.gpt.activations import ActivationCache
from interp.gpt.layers import LayerNorm
from interp.gpt.model import HookedGPT

Scalar = Literal["centered", "foil", "probability", "raw"]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


@dataclass(frozen=True, kw_only=True)
class LogitAttribution(Result):
    """The parts of one scalar of the logits at each position.

    `values` [component, batch, pos] in logits; `total` [batch, pos] is the scalar computed from the
    model's own logits; `completeness_error` = |Σ values − total|, at most `tolerance`.
    The row at `pos` explains the prediction of the token after it, `targets`.
    """

    AXES: ClassVar = {
        "values": ("component", "batch", "pos"),
        "total": ("batch", "pos"),
        "completeness_error": ("batch", "pos"),
        "tolerance": ("batch", "pos"),
        "tokens": ("batch", "pos"),
        "targets": ("batch", "pos"),
        "foils": ("batch", "pos"),
    }
    NAMES: ClassVar = {"components": "component"}
    values: np.ndarray
    total: np.ndarray
    completeness_error: np.ndarray
    tolerance: np.ndarray
    tokens: np.ndarray
    targets: np.ndarray
    foils: np.ndarray
    components: tuple[str, ...]
    characters: tuple[str, ...] | None
    scalar: str
    by: str

    def to_frame(self) -> pd.DataFrame:
        """Returns columns batch, pos, target, component, contribution."""
        n, batch, pos = self.values.shape
        b, p = np.meshgrid(np.arange(batch), np.arange(pos), indexing="ij")
        return pd.DataFrame(
            {
                "batch": np.tile(b.ravel(), n),
                "pos": np.tile(p.ravel(), n),
                "target": np.tile(self.targets.ravel(), n),
                "component": np.repeat(np.array(self.components), batch * pos),
                "contribution": self.values.ravel(),
            }
        )

    def row(self, component: str) -> np.ndarray:
        """Returns one component's contributions, [batch, pos].

        Raises:
            ConfigError: there is no such component.
        """
        if component not in self.components:
            raise ConfigError(
                f"no component {component!r} here{nearest(component, self.components)}"
            )
        row: np.ndarray = self.values[self.components.index(component)]
        return row


@torch.no_grad()
def logit_attribution(
    model: HookedGPT,
    cache: ActivationCache,
    by: By = "block",
    *,
    scalar: Scalar = "centered",
    targets: Int[Tensor, "batch pos"] | None = None,
    foils: Int[Tensor, "batch pos"] | str | int | None = None,
) -> LogitAttribution:
    """Returns the logits of each position's target, split into components that sum to them.

    Args:
        model: the model.
        cache: of a run in evaluation mode (`model.run_with_cache(tokens)`).
        by: "block", or "head" to tell the heads of each block apart.
        scalar: see the module.
        targets: the tokens to explain, [batch, pos]; by default the token at `pos + 1`, for every
            position but the last.
        foils: what scalar="foil" compares with: tokens [batch, pos], or one character or id.

    Raises:
        CompletenessError: the rows do not add up to the model's logits within
            1e-5·(1 + Σ|A|) in float32 or 1e-12·(1 + Σ|A|) in float64.
        CacheError: the cache is another model's, or lacks what is needed.
        TokenError: targets or foils outside the vocabulary or of the wrong shape.
        ConfigError: an unknown `by` or `scalar`, a foil missing or not wanted, a dtype without a
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
    check_choice("scalar", scalar, get_args(Scalar))
    tokens = tokens_of(model, cache)
    if model.dtype not in TOLERANCE:
        raise ConfigError(f"no tolerance is stated for {model.dtype}; use float32 or float64")
    if targets is None and tokens.shape[1] < 2:
        raise TokenError("a sequence of one token has no next token to explain; give targets")
    targets = tokens[:, 1:] if targets is None else _check_tokens(model, targets, tokens, "targets")
    foil_tokens = _foils(model, foils, targets, scalar)
    logits = cache["hook_logits"][:, : targets.shape[1]]

    weights = _target_weights(logits, targets, foil_tokens, scalar)
    total = (weights * logits).sum(-1)
    rows = _rows(model, cache, weights, by)
    values = torch.stack(list(rows.values()))
    tolerance = TOLERANCE[model.dtype] * (1 + values.abs().sum(0))
    error = (values.sum(0) - total).abs()
    check_complete(error, tolerance)
    return LogitAttribution(
        values=to_numpy(values),
        total=to_numpy(total),
        completeness_error=to_numpy(error),
        tolerance=to_numpy(tolerance),
        tokens=to_numpy(tokens[:, : targets.shape[1]]),
        targets=to_numpy(targets),
        foils=to_numpy(torch.full_like(targets, -1) if foil_tokens is None else foil_tokens),
        components=tuple(rows),
        characters=None if model.tokenizer is None else model.tokenizer.characters,
        scalar=scalar,
        by=by,
        provenance=Provenance.of(model, tokens),
    )


def check_complete(error: Tensor, tolerance: Tensor) -> None:
    """Raises CompletenessError unless every error is within its tolerance, and finite.

    Raises:
        CompletenessError: with the worst error, its tolerance and its place.
    """
    if bool(((error <= tolerance) & error.isfinite() & tolerance.isfinite()).all()):
        return
    excess = (error / tolerance).nan_to_num(nan=torch.inf)  # inf / inf is no excuse
    worst = int(excess.argmax())
    place = tuple(int(i) for i in np.unravel_index(worst, tuple(error.shape)))
    raise CompletenessError(
        f"the parts miss the model's own logits by {float(error.flatten()[worst]):.3g} at "
        f"(batch, pos) {place}, more than the tolerance {float(tolerance.flatten()[worst]):.3g}; "
        "the cache does not belong to these weights, was changed, or was made in training mode"
    )


def _rows(
    model: HookedGPT, cache: ActivationCache, weights: Float[Tensor, "batch pos d_vocab"], by: By
) -> dict[str, Float[Tensor, "batch pos"]]:
    direction = weights @ model.W_U.T  # [batch pos d_model]
    ln_bias = torch.zeros_like(direction[..., 0])
    if isinstance(model.ln_final, LayerNorm):
        ln_bias = direction @ model.ln_final.b
        # (w * (c − mean c) / s) · u  =  c · (w*u − mean(w*u)) / s
        direction = direction * model.ln_final.w
        direction = direction - direction.mean(-1, keepdim=True)
        direction = direction / cache["ln_final.hook_scale"][:, : direction.shape[1]]
    rows = read_stream(model, cache, direction, by)
    if isinstance(model.ln_final, LayerNorm):
        rows["ln_bias"] = ln_bias
    if model.b_U is not None:
        rows["b_U"] = weights @ model.b_U
    return rows


def _target_weights(
    logits: Float[Tensor, "batch pos d_vocab"],
    targets: Int[Tensor, "batch pos"],
    foils: Int[Tensor, "batch pos"] | None,
    scalar: Scalar,
) -> Float[Tensor, "batch pos d_vocab"]:
    """The linear function of the logits that is split: a one at the target, minus a baseline."""
    baseline = {
        "raw": lambda: torch.zeros_like(logits),
        "centered": lambda: torch.full_like(logits, 1 / logits.shape[-1]),
        "probability": lambda: logits.softmax(-1),
        "foil": lambda: _one_hot(foils, logits),
    }[scalar]()
    return _one_hot(targets, logits) - baseline


def _one_hot(tokens: Tensor | None, like: Tensor) -> Tensor:
    assert tokens is not None
    return torch.zeros_like(like).scatter_(-1, tokens[..., None], 1.0)


def tokens_of(model: HookedGPT, cache: ActivationCache) -> Int[Tensor, "batch pos"]:
    if cache.model is not model:
        raise CacheError("this cache was made by another model; run this one with run_with_cache")
    if cache.tokens is None or not cache.has_batch_dim:
        raise CacheError(
            "attribution needs a cache with its tokens and batch axis; "
            "use run_with_cache without remove_batch_dim, pos_slice or start_at_layer"
        )
    return cache.tokens


def _check_tokens(
    model: HookedGPT, given: Any, tokens: Int[Tensor, "batch pos"], what: str
) -> Int[Tensor, "batch up_to_pos"]:
    ids = torch.as_tensor(given, device=model.device)
    if ids.is_floating_point():
        raise TokenError(f"{what} are {ids.dtype}; expected integer token ids")
    n_pos = tokens.shape[1]
    if ids.ndim != 2 or len(ids) != len(tokens) or not 1 <= ids.shape[1] <= n_pos:
        raise TokenError(
            f"{what} have shape {tuple(ids.shape)}; expected [{len(tokens)}, up to {n_pos}]"
        )
    if int(ids.min()) < 0 or int(ids.max()) >= model.config.d_vocab:
        raise TokenError(
            f"{what} run from {int(ids.min())} to {int(ids.max())}, outside the vocabulary "
            f"0 … {model.config.d_vocab - 1}"
        )
    return ids.long()


def _foils(
    model: HookedGPT, foils: Any, targets: Int[Tensor, "batch pos"], scalar: Scalar
) -> Int[Tensor, "batch pos"] | None:
    if (foils is not None) != (scalar == "foil"):
        raise ConfigError('give foils together with scalar="foil", and only then')
    if foils is None:
        return None
    if isinstance(foils, str):
        foils = model.to_single_token(foils)
    if isinstance(foils, int):
        foils = torch.full_like(targets, foils)
    checked = _check_tokens(model, foils, targets, "foils")
    if checked.shape != targets.shape:
        raise TokenError(
            f"foils have shape {tuple(checked.shape)}; expected the targets' {tuple(targets.shape)}"
        )
    return checked


def check_choice(name: str, given: str, choices: tuple[str, ...]) -> None:
    """Raises ConfigError unless `given` is one of `choices`.

    Raises:
        ConfigError: with the choices.
    """
    if given not in choices:
        raise ConfigError(f"{name} = {given!r} is not one of {', '.join(map(repr, choices))}")
