"""Hand-built models whose every effect is known exactly: what an analysis must find.

Each is an ordinary `HookedGPT` in float64, run by the same code as any other. Two devices make the
answers exact:

- a LayerNorm with eps = E = 10¹² and gain √E divides by √(variance + E) and multiplies by √E: it
  subtracts the mean and changes nothing else, to a relative variance/2E;
- the stream's features are pairs of coordinates (v, −v)/√2, whose mean is zero, so that subtracting
  the mean changes nothing either.

`norm_repair` keeps a true LayerNorm at the end: it is what that model is about.

Effects are of replacing a component by nothing, on the raw logit of token 0 (except `and_gate`'s
Shapley values, through re-runs of the model).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.gpt.config import GPTConfig
from interp.gpt.layers import MLP, LayerNorm
from interp.gpt.model import HookedGPT

NEUTRAL_EPS = 1e12


@dataclass(frozen=True, kw_only=True)
class Effect:
    """The exact effects of one component. direct = total + layer_norm_part + downstream_part."""

    direct: float
    total: float
    layer_norm_part: float
    downstream_part: float


@dataclass(frozen=True, kw_only=True)
class GroundTruth:
    """A model, tokens [1, pos] to run it on, and the answers at the last position.

    `effects` names every component that does anything; all others have effects of 0.
    `shapley` holds Shapley values of zero-ablations with the model run again, by component.
    """

    model: HookedGPT
    tokens: Int[Tensor, "1 pos"]
    target: int
    logit: float
    effects: dict[str, Effect]
    shapley: dict[str, float] = field(default_factory=dict)


def _at_once(value: float) -> Effect:
    return Effect(direct=value, total=value, layer_norm_part=0.0, downstream_part=0.0)


def constant_block(v: float = 2.0) -> GroundTruth:
    """A block that writes a constant: its direct effect is its total effect is `v`."""
    model = _model(n_layers=2)
    _mlp(model, 1).b_out.copy_(v * feature(0))
    return _truth(model, v, {"L1.b_out": _at_once(v)})


def silent_sink(beta: float = 30.0) -> GroundTruth:
    """A head that puts all its weight on position 0 and moves nothing: attention is not effect.

    At query t the weight of key 0 is e^β / (e^β + t). Its values read a token that is not in the
    prompt, so every contribution and every effect is exactly 0.
    """
    model = _model(n_layers=1)
    attn = model.blocks[0].attn
    model.embed.W_E.copy_(feature(2).expand(model.config.d_vocab, -1))  # a constant to ask with
    model.embed.W_E[1] += feature(1)  # token 1 alone has a value; it is not in the prompt
    model.pos_embed.W_pos[0] = feature(3)
    attn.W_Q[0, :, 0] = beta * attn.attn_scale * feature(2)
    attn.W_K[0, :, 0] = feature(3)
    attn.W_V[0, :, 0] = feature(1)
    attn.W_O[0, 0] = feature(0)
    return _truth(model, 0.0, {})


def writer_eraser(v: float = 2.0) -> GroundTruth:
    """Block 0 writes `v`, block 1 reads it and writes −v: direct v and −v, total 0 and −v."""
    model = _model(n_layers=2)
    _neuron(model, 0, reads=torch.zeros(model.config.d_model), bias=1.0, writes=v * feature(0))
    _neuron(model, 1, reads=feature(0) * math.copysign(1, v), bias=0.0,
            writes=-math.copysign(1, v) * feature(0))  # fmt: skip
    writer = Effect(direct=v, total=0.0, layer_norm_part=0.0, downstream_part=v)
    return _truth(model, 0.0, {"L0.mlp": writer, "L1.mlp": _at_once(-v)})


def backup(v: float = 2.0) -> GroundTruth:
    """Block 0 writes `v`; block 1 writes v·relu(1 − a), where a = 1 if block 0 wrote: a backup.

    Block 0: direct v, total 0, all of it made up for downstream. Block 1 has no effect at all.
    """
    model = _model(n_layers=2)
    _neuron(model, 0, reads=torch.zeros(model.config.d_model), bias=1.0, writes=v * feature(0))
    _neuron(model, 1, reads=-feature(0) / v, bias=1.0, writes=v * feature(0))
    writer = Effect(direct=v, total=0.0, layer_norm_part=0.0, downstream_part=v)
    return _truth(model, v, {"L0.mlp": writer})


def and_gate(v: float = 2.0) -> GroundTruth:
    """Heads A and B each write 1 where only the MLP reads; it writes v·relu(a + b − 1).

    Removing either takes all of v (together 2v: single ablations do not add up); their Shapley
    values, with the model run again, are v/2 each; their direct effects are 0, the MLP's is v.
    """
    model = _model(n_layers=1, n_heads=2)
    attn = model.blocks[0].attn
    model.embed.W_E.copy_(feature(3).expand(model.config.d_vocab, -1))
    for head in (0, 1):  # W_Q = 0: the mean over keys, all of them alike
        attn.W_V[head, :, 0] = feature(3)
        attn.W_O[head, 0] = feature(1 + head)
    _neuron(model, 0, reads=feature(1) + feature(2), bias=-1.0, writes=v * feature(0))
    gate = Effect(direct=0.0, total=v, layer_norm_part=0.0, downstream_part=-v)
    return _truth(
        model,
        v,
        {"L0.H0": gate, "L0.H1": gate, "L0.attn": gate, "embed": gate, "L0.mlp": _at_once(v)},
        {"L0.H0": v / 2, "L0.H1": v / 2},
    )


def norm_repair(a: float = 1.5, c: float = 2.0, eps: float = 1e-5) -> GroundTruth:
    """A true final LayerNorm: x = a·u + c·w, and the unembedding reads u only.

    The logit is a/√((a² + c²)/d_model + eps). The MLP that writes c·w has a direct effect of 0, and
    yet removing it raises the logit to a/√(a²/d_model + eps): all of it through the LayerNorm.
    """
    model = _model(n_layers=1, eps=eps)
    model.embed.W_E.copy_((a * feature(0)).expand(model.config.d_vocab, -1))
    _neuron(model, 0, reads=torch.zeros(model.config.d_model), bias=1.0, writes=c * feature(1))
    d = model.config.d_model
    both = a / math.sqrt((a * a + c * c) / d + eps)
    alone = a / math.sqrt(a * a / d + eps)
    hides = Effect(
        direct=0.0, total=both - alone, layer_norm_part=alone - both, downstream_part=0.0
    )
    return _truth(model, both, {"embed": _at_once(both), "L0.mlp": hides})


def feature(i: int, n: int = 8) -> Float[Tensor, " d_model"]:
    """Returns the i-th of n orthonormal features, each a pair of coordinates with mean zero."""
    out = torch.zeros(2 * n, dtype=torch.float64)
    out[2 * i], out[2 * i + 1] = math.sqrt(0.5), -math.sqrt(0.5)
    return out


def neutralise(norm: LayerNorm) -> None:
    """Makes a LayerNorm of eps 10¹² the function x − mean(x)."""
    norm.w.data.fill_(math.sqrt(norm.eps))


def _model(n_layers: int, n_heads: int = 1, eps: float = NEUTRAL_EPS) -> HookedGPT:
    """A model of zeros, with neutral LayerNorms, that reads token 0's logit along feature 0."""
    cfg = GPTConfig(
        n_layers=n_layers, n_heads=n_heads, d_model=16, d_head=2, d_mlp=4, n_ctx=8, d_vocab=4,
        ln_eps=eps,
    )  # fmt: skip
    model = HookedGPT(cfg).to(torch.float64).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        parameter.fill_(1.0 if name.endswith(".w") else 0.0)
    if eps == NEUTRAL_EPS:
        for module in model.modules():
            if isinstance(module, LayerNorm):
                neutralise(module)
    model.W_U[:, 0] = feature(0)
    return model


def _mlp(model: HookedGPT, layer: int) -> MLP:
    mlp = model.blocks[layer].mlp
    assert mlp is not None
    return mlp


def _neuron(model: HookedGPT, layer: int, reads: Tensor, bias: float, writes: Tensor) -> None:
    """Sets the first neuron of a block to relu(x · reads + bias) · writes."""
    mlp = _mlp(model, layer)
    mlp.W_in[:, 0] = reads
    mlp.b_in[0] = bias
    mlp.W_out[0] = writes


def _truth(
    model: HookedGPT,
    logit: float,
    effects: dict[str, Effect],
    shapley: dict[str, float] | None = None,
) -> GroundTruth:
    tokens = torch.tensor([[2, 3, 2, 3]])
    return GroundTruth(
        model=model, tokens=tokens, target=0, logit=logit, effects=effects, shapley=shapley or {}
    )
