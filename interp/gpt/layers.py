"""The parts of the hooked GPT, bottom up: norm, attention, MLP, block.

Take away every `self.hook_…(…)` and a plain pre-norm GPT remains; each contribution to the
residual stream is added, never overwritten.

Axes: `batch`; `pos` a position that asks (query); `key` a position that is asked (source);
`head`; `d_model`, `d_head`, `d_mlp`, `d_vocab` the widths. Weights act from the right (`x @ W`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import einsum, rearrange, repeat
from jaxtyping import Bool, Float
from torch import Tensor, nn

from interp.gpt.config import GPTConfig
from interp.hooks import HookPoint

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}

NORM_EPS = 1e-6  # of qk_norm: a query of zeros stays one
SCORES_IN_CACHE = 2**18  # numbers; 1 MB in float32

Residual = Float[Tensor, "batch pos d_model"]
PerHead = Float[Tensor, "batch pos head d_head"]
PerKey = Float[Tensor, "batch key head d_head"]
Maps = Float[Tensor, "batch head pos key"]
KeysValues = tuple[PerKey, PerKey]


def _weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape))


class LayerNorm(nn.Module):
    """(x - mean) / scale * w + b, with scale = sqrt(biased variance + eps)."""

    def __init__(self, cfg: GPTConfig) -> None:
        super().__init__()
        self.eps = cfg.ln_eps
        self.w = _weight(cfg.d_model)
        self.b = _weight(cfg.d_model)
        self.hook_scale = HookPoint()  # [batch pos 1]
        self.hook_normalized = HookPoint()  # [batch pos d_model]

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        if self.hook_normalized.watched or self.hook_scale.edited:
            centred = x - x.mean(-1, keepdim=True)
            scale = self.hook_scale((centred.square().mean(-1, keepdim=True) + self.eps).sqrt())
            return self.hook_normalized(centred / scale) * self.w + self.b
        out, _, rstd = torch.native_layer_norm(x, self.w.shape, self.w, self.b, self.eps)
        if self.hook_scale.watched:
            self.hook_scale(rstd.reciprocal())
        return out

    def read(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Returns the normalised `x` without passing the hook points."""
        return F.layer_norm(x, self.w.shape, self.w, self.b, self.eps)


class Attention(nn.Module):
    """Causal multi-head attention: softmax(q·k / attn_scale) v W_O, heads summed, plus b_O.

    With `learned_scale` or `qk_norm` the scores of head h are multiplied by gain[h]; with `qk_norm`
    q and k are first brought to a root mean square of 1. `hook_q` and `hook_k` stand before that.
    """

    mask: Tensor
    b_Q: nn.Parameter | None
    b_K: nn.Parameter | None
    b_V: nn.Parameter | None
    gain: nn.Parameter | None

    def __init__(self, cfg: GPTConfig) -> None:
        super().__init__()
        self.attn_scale = cfg.attn_scale
        self.multiplier: Tensor | None = None  # [head]; set for one run by `attn_scaled_by`
        self.qk_norm = cfg.qk_norm
        has_gain = cfg.learned_scale or cfg.qk_norm
        self.register_parameter("gain", _weight(cfg.n_heads) if has_gain else None)
        self.p_drop = cfg.dropout
        shape = (cfg.n_heads, cfg.d_model, cfg.d_head)
        self.W_Q, self.W_K, self.W_V = _weight(*shape), _weight(*shape), _weight(*shape)
        self.W_O = _weight(cfg.n_heads, cfg.d_head, cfg.d_model)
        self.b_O = _weight(cfg.d_model)
        for name in ("b_Q", "b_K", "b_V"):
            bias = _weight(cfg.n_heads, cfg.d_head) if cfg.qkv_bias else None
            self.register_parameter(name, bias)
        mask = torch.ones(cfg.n_ctx, cfg.n_ctx, dtype=torch.bool).tril()
        self.register_buffer("mask", mask, persistent=False)
        self.hook_q, self.hook_k, self.hook_v = HookPoint(), HookPoint(), HookPoint()
        self.hook_attn_scores, self.hook_pattern = HookPoint(), HookPoint()
        self.hook_z, self.hook_result = HookPoint(), HookPoint()

    def forward(self, q: PerHead, k: PerKey, v: PerKey) -> Residual:
        z = self.hook_z(self.attend(self.hook_q(q), self.hook_k(k), self.hook_v(v)))
        if self.hook_result.watched:
            out = self.hook_result(self.results(z)).sum(2) + self.b_O
        else:
            W_O = rearrange(self.W_O, "head d_head d_model -> d_model (head d_head)")
            out = F.linear(rearrange(z, "batch pos head d_head -> batch pos (head d_head)"), W_O)
            out = out + self.b_O
        return F.dropout(out, self.p_drop, self.training)

    def attend(self, q: PerHead, k: PerKey, v: PerKey) -> PerHead:
        """Returns z. Scores and pattern are written out where a hook looks at them, or else fused.

        All ways compute the same function; `tests/test_model.py` holds them to each other.
        """
        p_drop = self.p_drop if self.training else 0.0
        only_recorded = not (self.hook_attn_scores.watched or self.hook_pattern.edited)
        if (
            only_recorded
            and self.hook_pattern.watched
            and not torch.is_grad_enabled()
            and not p_drop
        ):
            return self.attend_in_pieces(q, k, v)
        if self.hook_attn_scores.watched or self.hook_pattern.watched:
            scores = self.hook_attn_scores(self.scores(q, k, self.multiplier))
            pattern = self.hook_pattern(scores.softmax(-1))
            return self.mix(F.dropout(pattern, p_drop, self.training), v)
        q, k = self.compared(q, k, self.multiplier)
        q, k, v = (
            rearrange(x, "batch pos head d_head -> batch head pos d_head") for x in (q, k, v)
        )
        n_pos, n_key = q.shape[2], k.shape[2]
        mask = self.mask[n_key - n_pos : n_key, :n_key] if 1 < n_pos < n_key else None
        z = fused_attention(q, k, v, p_drop, 1 / self.attn_scale, mask)
        return rearrange(z, "batch head pos d_head -> batch pos head d_head")

    def attend_in_pieces(self, q: PerHead, k: PerKey, v: PerKey) -> PerHead:
        """Returns z and records the pattern, a few sequences at a time.

        The scores of a piece fit in a processor's cache: 0.7 of the time of all at once (measured).
        """
        batch, n_pos, n_heads, _ = q.shape
        pattern = q.new_empty(batch, n_heads, n_pos, k.shape[1])
        z = torch.empty_like(q, memory_format=torch.contiguous_format)
        size = max(1, SCORES_IN_CACHE // pattern[0].numel())
        for i in range(0, batch, size):
            piece = slice(i, i + size)
            scores = self.scores(q[piece], k[piece], self.multiplier)
            torch.softmax(scores, -1, out=pattern[piece])
            z[piece] = self.mix(pattern[piece], v[piece])
        self.hook_pattern(pattern)
        return z

    def compared(
        self, q: PerHead, k: PerKey, multiplier: Tensor | None = None
    ) -> tuple[PerHead, PerKey]:
        """Returns what is compared, whose product over attn_scale is the score.

        Normalised (qk_norm), and the query times the head's gain and multiplier.
        """
        if self.qk_norm:
            q, k = (F.rms_norm(x, x.shape[-1:], eps=NORM_EPS) for x in (q, k))
        for factor in (self.gain, multiplier):
            if factor is not None:
                q = q * factor[:, None].to(q.dtype)
        return q, k

    def scores(self, q: PerHead, k: PerKey, multiplier: Tensor | None = None) -> Maps:
        """Returns the scores, times multiplier, −inf where a query would see a later position."""
        q, k = self.compared(q, k, multiplier)
        q = rearrange(q, "batch pos head d_head -> batch head pos d_head")
        k = rearrange(k, "batch key head d_head -> batch head d_head key")
        q = q / self.attn_scale
        n_pos, n_key = q.shape[2], k.shape[3]
        visible = self.mask[n_key - n_pos : n_key, :n_key]
        return (q @ k).masked_fill_(~visible, -torch.inf)

    def mix(self, pattern: Maps, v: PerKey) -> PerHead:
        """Returns the values averaged by the pattern."""
        v = rearrange(v, "batch key head d_head -> batch head key d_head")
        return rearrange(pattern @ v, "batch head pos d_head -> batch pos head d_head")

    def results(self, z: PerHead) -> Float[Tensor, "batch pos head d_model"]:
        """Returns what each head adds to the residual stream; with b_O they sum to attn_out."""
        return einsum(
            z, self.W_O, "batch pos head d_head, head d_head d_model -> batch pos head d_model"
        )

    def project(self, x: Residual) -> tuple[PerHead, PerHead, PerHead]:
        """Returns the queries, keys and values of one normalised input, in one matrix product."""
        W = torch.stack((self.W_Q, self.W_K, self.W_V))
        W = rearrange(W, "qkv head d_model d_head -> (qkv head d_head) d_model")
        b = None
        if self.b_Q is not None and self.b_K is not None and self.b_V is not None:
            b = torch.cat((self.b_Q.flatten(), self.b_K.flatten(), self.b_V.flatten()))
        qkv = rearrange(
            F.linear(x, W, b),
            "batch pos (qkv head d_head) -> qkv batch pos head d_head",
            qkv=3,
            head=self.W_Q.shape[0],
        )
        q, k, v = qkv.unbind()
        return q, k, v

    def project_one(self, x: Float[Tensor, "batch pos head d_model"], letter: str) -> PerHead:
        """Returns queries ("Q"), keys ("K") or values ("V") where each head has its own input."""
        weight, bias = getattr(self, f"W_{letter}"), getattr(self, f"b_{letter}")
        out: Tensor = einsum(
            x, weight, "batch pos head d_model, head d_model d_head -> batch pos head d_head"
        )
        return out if bias is None else out.add(bias)


def fused_attention(
    q: Float[Tensor, "batch head pos d_head"],
    k: Float[Tensor, "batch head key d_head"],
    v: Float[Tensor, "batch head key d_head"],
    p_drop: float,
    scale: float,
    mask: Bool[Tensor, "pos key"] | None = None,
) -> Float[Tensor, "batch head pos d_head"]:
    """Returns causal attention's output without ever holding the scores.

    `mask` (True: visible) is needed where several queries stand on a longer past.

    On a processor without AMX, PyTorch's bfloat16 kernel takes three times as long as its float32
    one (measured on AVX-512), so there attention is computed in float32 also under autocast.
    """
    causal = q.shape[2] == k.shape[2]  # one query on a longer past sees every key
    attention = F.scaled_dot_product_attention
    if q.dtype == torch.bfloat16 and q.device.type == "cpu" and not _has_amx():
        autocast = torch.is_autocast_enabled("cpu")
        with torch.autocast("cpu", enabled=False):
            q, k, v = q.float(), k.float(), v.float()
            out = attention(q, k, v, mask, p_drop, is_causal=causal, scale=scale)
        return out if autocast else out.bfloat16()
    return attention(q, k, v, mask, p_drop, is_causal=causal, scale=scale)


@functools.cache
def _has_amx() -> bool:
    ask = getattr(torch.cpu, "_is_amx_tile_supported", None)  # no public way to ask
    return ask is not None and bool(ask())


class MLP(nn.Module):
    """act(x W_in + b_in) W_out + b_out."""

    def __init__(self, cfg: GPTConfig) -> None:
        super().__init__()
        self.act = ACTIVATIONS[cfg.act_fn]
        self.p_drop = cfg.dropout
        self.W_in, self.b_in = _weight(cfg.d_model, cfg.d_mlp), _weight(cfg.d_mlp)
        self.W_out, self.b_out = _weight(cfg.d_mlp, cfg.d_model), _weight(cfg.d_model)
        self.hook_pre = HookPoint()  # [batch pos d_mlp]
        self.hook_post = HookPoint()  # [batch pos d_mlp]

    def forward(self, x: Residual) -> Residual:
        post = self.hook_post(self.act(self.hook_pre(self.pre(x))))
        return F.dropout(F.linear(post, self.W_out.T, self.b_out), self.p_drop, self.training)

    def pre(self, x: Residual) -> Float[Tensor, "batch pos d_mlp"]:
        """Returns the neurons' inputs."""
        return F.linear(x, self.W_in.T, self.b_in)


class PastKeys:
    """The keys and values that one block has computed so far, for generating token by token."""

    def __init__(self) -> None:
        self.keys_values: KeysValues | None = None

    def extend(self, k: PerHead, v: PerHead) -> KeysValues:
        """Returns the past with `k` and `v` appended, and remembers it."""
        if self.keys_values is not None:
            k = torch.cat((self.keys_values[0], k), dim=1)
            v = torch.cat((self.keys_values[1], v), dim=1)
        self.keys_values = (k, v)
        return k, v


class Block(nn.Module):
    """x = x + attn(ln1(x)); x = x + mlp(ln2(x))."""

    hook_out_is_single_residual_stream = True  # TransformerLens's logit lens asks

    def __init__(self, cfg: GPTConfig) -> None:
        super().__init__()
        self.n_heads = cfg.n_heads
        self.ln1, self.attn = LayerNorm(cfg), Attention(cfg)
        self.hook_resid_pre, self.hook_attn_out = HookPoint(), HookPoint()
        self.hook_q_input, self.hook_k_input = HookPoint(), HookPoint()
        self.hook_v_input, self.hook_resid_post = HookPoint(), HookPoint()
        self.mlp: MLP | None = None
        if not cfg.attn_only:
            self.ln2, self.mlp = LayerNorm(cfg), MLP(cfg)
            self.hook_resid_mid, self.hook_mlp_in = HookPoint(), HookPoint()
            self.hook_mlp_out = HookPoint()

    def forward(self, x: Residual, past: PastKeys | None = None) -> Residual:
        x = self.hook_resid_pre(x)
        return self.after_attention(
            x + self.hook_attn_out(self.attn(*self.queries_keys_values(x, past)))
        )

    def after_attention(self, x: Residual) -> Residual:
        """Returns the stream after the block, from the stream between attention and MLP."""
        if self.mlp is not None:
            x = self.hook_resid_mid(x)
            x = x + self.hook_mlp_out(self.mlp(self.ln2(self.hook_mlp_in(x))))
        return self.hook_resid_post(x)

    def queries_keys_values(
        self, x: Residual, past: PastKeys | None
    ) -> tuple[PerHead, PerKey, PerKey]:
        """Returns what attention reads from the residual stream.

        Where `hook_q_input`, `hook_k_input` or `hook_v_input` is in use, each head gets its own
        copy of the stream there, normalised on its own, so that a path into one head can be cut.
        What an edit of the copy changes is added to what the shared path gives, so that hooks on
        `ln1` keep their effect beside it.
        """
        qkv = list(self.attn.project(self.ln1(x)))
        for i, letter in enumerate("QKV"):
            point: HookPoint = getattr(self, f"hook_{letter.lower()}_input")
            if point.watched:
                copies = repeat(x, "batch pos d -> batch pos head d", head=self.n_heads)
                read = point(copies)
                if point.edited:
                    before = self.attn.project_one(self.ln1.read(copies), letter)
                    after = self.attn.project_one(self.ln1.read(read), letter)
                    qkv[i] = qkv[i] + (after - before)
        q, k, v = qkv
        return (q, k, v) if past is None else (q, *past.extend(k, v))


@torch.no_grad()
def initialise(module: nn.Module, cfg: GPTConfig, seed: int) -> None:
    """Fills the weights: normal(0, init_std), embeddings normal(0, embed_std), biases 0, gains 1.

    W_O and W_out, which write to the residual stream, are scaled by 1/sqrt(2 n_layers), as in
    GPT-2. The generator is local and on the CPU: the same seed gives the same weights on every
    device, and the global generator is left alone.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        kind = name.rsplit(".", 1)[-1]
        if kind in ("w", "gain"):
            parameter.fill_(1.0)
        elif kind.startswith("b"):
            parameter.zero_()
        else:
            std = cfg.init_std
            if kind in ("W_E", "W_pos") and cfg.embed_std > 0:
                std = cfg.embed_std
            if kind in ("W_O", "W_out"):
                std /= math.sqrt(2 * cfg.n_layers)
            parameter.copy_(torch.empty(parameter.shape).normal_(0.0, std, generator=generator))
