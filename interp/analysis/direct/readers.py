"""What a head's query, key or value, a neuron or the logits read, split into parts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.analysis.direct.attribution import logit_attribution, rows_along
from interp.analysis.direct.results import StreamAttribution
from interp.errors import ConfigError
from interp.gpt.cache import ActivationCache
from interp.gpt.model import HookedGPT
from interp.stream.components import component
from interp.stream.metric import check_choice, tokens_of
from interp.stream.reading import By

_INPUT = re.compile(r"(L\d+\.H\d+)\.([qkv])")


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
    _check_stream(model, cache)
    read = _reader(model, cache, into, vector)
    labels, values = rows_along(
        model, cache, read.direction, by, read.place, read.norm, read.constants
    )
    return StreamAttribution.checked(model, tokens, (labels, values), read.total, into=into, by=by)


def _check_stream(model: HookedGPT, cache: ActivationCache) -> None:
    """Checks that the parts of the stream are those of the model's logits.

    What is rebuilt from the stream (a query, say) cannot prove it.
    """
    logit_attribution(model, cache)


@dataclass(frozen=True)
class _Reader:
    """What reads the stream: along which direction, at which place, through which LayerNorm; what
    it adds itself; and the number that comes out, by the model itself.
    """

    direction: Float[Tensor, "batch pos d_model"]
    place: tuple[int, int]
    norm: nn.Module
    constants: dict[str, Float[Tensor, "batch pos"]]
    total: Float[Tensor, "batch pos"]


def _reader(model: HookedGPT, cache: ActivationCache, into: str, vector: Any) -> _Reader:
    if into == "logits":
        return _logits_reader(model, cache, vector)
    if parsed := _INPUT.fullmatch(into):
        return _head_reader(model, cache, parsed[1], parsed[2], vector)
    return _neuron_reader(model, cache, into, vector)


def _logits_reader(model: HookedGPT, cache: ActivationCache, vector: Any) -> _Reader:
    u = _vector(cache, vector, model.config.d_vocab, "logits")
    b_U = {} if model.b_U is None else {"b_U": u @ model.b_U}
    total = (u * cache["hook_logits"]).sum(-1)
    return _Reader(u @ model.W_U.T, (len(model.blocks), 0), model.ln_final, b_U, total)


def _head_reader(
    model: HookedGPT, cache: ActivationCache, label: str, letter: str, vector: Any
) -> _Reader:
    head = component(model.config, label)
    block, layer = model.blocks[head.layer], head.layer
    u = _vector(cache, vector, model.config.d_head, f"{label}.{letter}")
    weight = getattr(block.attn, f"W_{letter.upper()}")[head.index]
    bias = getattr(block.attn, f"b_{letter.upper()}")
    constants = {} if bias is None else {f"L{layer}.b_{letter.upper()}": u @ bias[head.index]}
    total = (u * cache[letter, layer][:, :, head.index]).sum(-1)
    return _Reader(u @ weight.T, (layer, 0), block.ln1, constants, total)


def _neuron_reader(model: HookedGPT, cache: ActivationCache, into: str, vector: Any) -> _Reader:
    try:
        neuron = component(model.config, into)
    except ConfigError as error:
        raise ConfigError(f"{error}; readers are L2.H1.q (or k, v), L1.N17 and logits") from None
    mlp = None if neuron.kind != "neuron" else model.blocks[neuron.layer].mlp
    if mlp is None:
        raise ConfigError(
            f"into = {into!r} reads nothing; give L2.H1.q (or k, v), L1.N17 or logits"
        )
    if vector is not None:
        raise ConfigError("a neuron reads along its own input weights; give no vector")
    total = cache["pre", neuron.layer][..., neuron.index]
    u = mlp.W_in[:, neuron.index].expand(*total.shape, -1)
    bias = {f"L{neuron.layer}.b_in": mlp.b_in[neuron.index].expand(total.shape)}
    return _Reader(u, (neuron.layer, 1), model.blocks[neuron.layer].ln2, bias, total)


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
