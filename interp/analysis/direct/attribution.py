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

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Self, get_args

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp.errors import ConfigError, nearest
from interp.gpt.cache import ActivationCache
from interp.gpt.folder import AnyModel
from interp.gpt.layers import LayerNorm
from interp.gpt.model import HookedGPT
from interp.results.provenance import Provenance
from interp.results.result import Result, to_numpy
from interp.stream.components import component
from interp.stream.metric import LinearMetric, check_choice, make_metric, tokens_of
from interp.stream.reading import By, read_stream
from interp.stream.tolerance import TOLERANCE, check_complete, check_dtype

_INPUT = re.compile(r"(L\d+\.H\d+)\.([qkv])")


@dataclass(frozen=True, kw_only=True)
class Attribution(Result):
    """The parts of one number at each position.

    `values` [component, batch, pos]; `total` [batch, pos] is the number as the model itself
    computed it; `completeness_error` = |Σ values − total|, at most `tolerance`.
    """

    AXES: ClassVar[dict[str, tuple[str, ...]]] = {
        "values": ("component", "batch", "pos"),
        "total": ("batch", "pos"),
        "completeness_error": ("batch", "pos"),
        "tolerance": ("batch", "pos"),
        "tokens": ("batch", "pos"),
    }
    NAMES: ClassVar = {"components": "component"}
    QUANTA: ClassVar = {"values": 1e-4}
    values: np.ndarray
    total: np.ndarray
    completeness_error: np.ndarray
    tolerance: np.ndarray
    tokens: np.ndarray
    components: tuple[str, ...]
    characters: tuple[str, ...] | None
    by: str

    @classmethod
    def checked(
        cls,
        model: AnyModel,
        tokens: Int[Tensor, "batch all_pos"],
        rows: tuple[list[str], Float[Tensor, "component batch pos"]],
        total: Float[Tensor, "batch pos"],
        **fields: Any,
    ) -> Self:
        """Returns the attribution, if its rows sum to the total.

        Raises:
            CompletenessError: they do not, within 1e-5·(1 + Σ|row|) in float32 or
                1e-12·(1 + Σ|row|) in float64.
        """
        labels, values = rows
        tolerance = TOLERANCE[model.dtype] * (1 + values.abs().sum(0))
        error = (values.sum(0) - total).abs()
        check_complete(error, tolerance)
        return cls(
            values=to_numpy(values),
            total=to_numpy(total),
            completeness_error=to_numpy(error),
            tolerance=to_numpy(tolerance),
            tokens=to_numpy(tokens[:, : total.shape[1]]),
            components=tuple(labels),
            characters=None if model.tokenizer is None else model.tokenizer.characters,
            provenance=Provenance.of(model, tokens),
            **fields,
        )

    def to_frame(self) -> pd.DataFrame:
        """Returns columns batch, pos, component, contribution.

        By source also source and source_token: the position that the row came from and the token
        there, −1 for rows that have none.
        """
        n, batch, pos = self.values.shape
        b, p = np.meshgrid(np.arange(batch), np.arange(pos), indexing="ij")
        frame = pd.DataFrame(
            {
                "batch": np.tile(b.ravel(), n),
                "pos": np.tile(p.ravel(), n),
                "component": np.repeat(np.array(self.components), batch * pos),
                "contribution": self.values.ravel(),
            }
        )
        if self.by == "source":
            source = np.repeat(self._sources(), batch * pos)
            token = self.tokens[frame["batch"], np.maximum(source, 0)]
            frame["source"], frame["source_token"] = source, np.where(source < 0, -1, token)
        return frame

    def by_source(self) -> np.ndarray:
        """Returns [key, batch, pos]: what came from each source position, through all heads.

        Raises:
            ConfigError: the attribution does not tell sources apart.
        """
        if self.by != "source":
            raise ConfigError(f"these rows are by {self.by}; make the attribution by='source'")
        out = np.zeros((self.tokens.shape[1], *self.values.shape[1:]), dtype=self.values.dtype)
        sources = self._sources()
        np.add.at(out, sources[sources >= 0], self.values[sources >= 0])
        return out

    def _sources(self) -> np.ndarray:
        """Each row's source position; −1 where it has none."""
        found = (re.search(r"(?:^|\.)S(\d+)$", name) for name in self.components)
        return np.array([-1 if one is None else int(one[1]) for one in found])

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


@dataclass(frozen=True, kw_only=True)
class LogitAttribution(Attribution):
    """The parts of one metric of the logits at each position, in logits.

    The row at `pos` explains the prediction of the token after it, `targets` [batch, pos].
    """

    AXES: ClassVar = Attribution.AXES | {"targets": ("batch", "pos"), "foils": ("batch", "pos")}
    targets: np.ndarray
    foils: np.ndarray
    metric: str

    def to_frame(self) -> pd.DataFrame:
        """Returns columns batch, pos, target, component, contribution."""
        frame = super().to_frame()
        frame.insert(2, "target", np.tile(self.targets.ravel(), len(self.components)))
        return frame


@dataclass(frozen=True, kw_only=True)
class StreamAttribution(Attribution):
    """The parts of what `into` reads from the residual stream at each position."""

    into: str


@torch.no_grad()
def logit_attribution(
    model: HookedGPT,
    cache: ActivationCache,
    by: By = "block",
    *,
    metric: LinearMetric = "centered",
    targets: Int[Tensor, "batch pos"] | None = None,
    foils: Int[Tensor, "batch pos"] | str | int | None = None,
) -> LogitAttribution:
    """Returns the logits of each position's target, split into components that sum to them.

    Args:
        model: the model.
        cache: of a run in evaluation mode (`model.run_with_cache(tokens)`).
        by: "block"; "head" tells the heads of each attention apart, "source" also the key position
            that each head took it from (`L0.H3.S5`), "neuron" the neurons of each MLP (`L0.N17`).
        metric: see the module.
        targets: the tokens to explain, [batch, pos]; by default the token at `pos + 1`, for every
            position but the last.
        foils: what metric="foil" compares with: tokens [batch, pos], or one character or id.

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
        model, tokens, cache["hook_logits"], metric, targets, foils, get_args(LinearMetric)
    )
    weights = value_of.weights()
    return LogitAttribution.checked(
        model,
        tokens,
        _logit_rows(model, cache, weights, by),
        (weights * value_of.logits).sum(-1),
        targets=to_numpy(value_of.targets),
        foils=to_numpy(
            torch.full_like(value_of.targets, -1) if value_of.foils is None else value_of.foils
        ),
        metric=metric,
        by=by,
    )


@torch.no_grad()
def stream_attribution(
    model: HookedGPT,
    cache: ActivationCache,
    into: str,
    vector: Float[Tensor, "*batch_pos d"] | None = None,
    by: By = "block",
) -> StreamAttribution:
    """Returns what a head's query, key or value, a neuron or the logits read, split into parts.

    Everything that was written into the stream before that place is a row; so are the bias of the
    LayerNorm in front of it and its own bias. The LayerNorm's scale is held at the run's value.

    Args:
        model: the model.
        cache: of a run in evaluation mode.
        into: "L2.H1.q", "L2.H1.k", "L2.H1.v": the head's query, key or value along `vector`;
            "L1.N17": the input of that neuron, before its activation function;
            "logits": the logits along `vector`.
        vector: [d_head] (or [d_vocab]), or one for each position, [batch, pos, …]. The key at s,
            divided by the attention scale, makes the query's rows those of the score at s.
        by: as in `logit_attribution`.

    Raises:
        CompletenessError, CacheError: as `logit_attribution`.
        ConfigError: no such place, a vector missing, not wanted or of the wrong shape.

    Example:
        >>> import interp, torch
        >>> cfg = interp.GPTConfig(n_layers=2, n_heads=2, d_model=8, n_ctx=4, d_vocab=2)
        >>> model = interp.HookedGPT(cfg, interp.CharTokenizer("ab"))
        >>> _, cache = model.run_with_cache("abba")
        >>> key = cache["k", 1][0, 2, 0] / model.config.attn_scale  # of head 0 at position 2
        >>> parts = interp.stream_attribution(model, cache, "L1.H0.q", key)
        >>> parts.components[-3:]
        ('L0.mlp', 'L0.b_out', 'L1.ln1_bias')
    """
    check_choice("by", by, get_args(By))
    tokens = tokens_of(model, cache)
    logit_attribution(
        model, cache, targets=tokens
    )  # what is rebuilt from the stream cannot prove it
    if into == "logits":
        u = _vector(cache, vector, model.config.d_vocab, into)
        rows = _logit_rows(model, cache, u, by)
        total = (u * cache["hook_logits"]).sum(-1)
    elif parsed := _INPUT.fullmatch(into):
        head = component(model.config, parsed[1])
        block, letter = model.blocks[head.layer], parsed[2]
        u = _vector(cache, vector, model.config.d_head, into)
        weight = getattr(block.attn, f"W_{letter.upper()}")[head.index]
        bias = getattr(block.attn, f"b_{letter.upper()}")
        constants = (
            {} if bias is None else {f"L{head.layer}.b_{letter.upper()}": u @ bias[head.index]}
        )
        place = (head.layer, 0)
        rows = _rows(model, cache, u @ weight.T, by, place, block.ln1, constants)
        total = (u * cache[letter, head.layer][:, :, head.index]).sum(-1)
    else:
        try:
            neuron = component(model.config, into)
        except ConfigError as error:
            raise ConfigError(
                f"{error}; readers are L2.H1.q (or k, v), L1.N17 and logits"
            ) from None
        mlp = None if neuron.kind != "neuron" else model.blocks[neuron.layer].mlp
        if mlp is None:
            raise ConfigError(
                f"into = {into!r} reads nothing; give L2.H1.q (or k, v), L1.N17 or logits"
            )
        if vector is not None:
            raise ConfigError("a neuron reads along its own input weights; give no vector")
        u = mlp.W_in[:, neuron.index].expand(*tokens.shape, -1)
        bias = mlp.b_in[neuron.index].expand(tokens.shape)
        place, ln2 = (neuron.layer, 1), model.blocks[neuron.layer].ln2
        rows = _rows(model, cache, u, by, place, ln2, {f"L{neuron.layer}.b_in": bias})
        total = cache["pre", neuron.layer][..., neuron.index]
    return StreamAttribution.checked(model, tokens, rows, total, into=into, by=by)


def _logit_rows(
    model: HookedGPT, cache: ActivationCache, weights: Float[Tensor, "batch pos d_vocab"], by: By
) -> tuple[list[str], Tensor]:
    b_U = {} if model.b_U is None else {"b_U": weights @ model.b_U}
    place = (len(model.blocks), 0)
    return _rows(model, cache, weights @ model.W_U.T, by, place, model.ln_final, b_U)


def _rows(
    model: HookedGPT,
    cache: ActivationCache,
    direction: Float[Tensor, "batch pos d_model"],
    by: By,
    place: tuple[int, int],
    norm: nn.Module,
    constants: dict[str, Float[Tensor, "batch pos"]],
) -> tuple[list[str], Tensor]:
    """The parts of what is read along `direction` from the stream at `place` through `norm`."""
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


def _vector(cache: ActivationCache, vector: Any, width: int, into: str) -> Tensor:
    assert cache.tokens is not None
    batch, pos = cache.tokens.shape
    if vector is None:
        raise ConfigError(f"{into} is a vector at each position; give the vector to read it along")
    shapes = ((width,), (batch, pos, width))
    if tuple(vector.shape) not in shapes:
        raise ConfigError(
            f"the vector has shape {tuple(vector.shape)}; expected {shapes[0]} or {shapes[1]}"
        )
    own: Tensor = torch.as_tensor(vector).to(cache.model.device, cache.model.dtype)
    if not bool(own.isfinite().all()):
        raise ConfigError("the vector holds numbers that are not finite")
    return own.expand(batch, pos, width)
