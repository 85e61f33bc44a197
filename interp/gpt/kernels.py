"""The fast ways of computing what `interp.gpt.layers` writes out, and nothing else.

Pure functions of tensors: no weights of their own, no hooks. Each computes the function that its
docstring names; `tests/test_model.py` holds every way to the written-out one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from interp.gpt.axes import Maps, PerHead, PerKey, Residual

SCORES_IN_CACHE = 2**18  # numbers; 1 MB in float32

HeadWeight = Float[Tensor, "head d_model d_head"]
HeadBias = Float[Tensor, "head d_head"]


def project_together(
    x: Residual,
    weights: tuple[HeadWeight, HeadWeight, HeadWeight],
    biases: tuple[HeadBias, HeadBias, HeadBias] | None,
) -> tuple[PerHead, PerHead, PerHead]:
    """Returns x W + b for each of the three weights, in one matrix product.

    The three share their memory: a cache that keeps all of them keeps one tensor.
    """
    W = rearrange(torch.stack(weights), "qkv head d_model d_head -> (qkv head d_head) d_model")
    b = None if biases is None else torch.cat([bias.flatten() for bias in biases])
    qkv = rearrange(
        F.linear(x, W, b),
        "batch pos (qkv head d_head) -> qkv batch pos head d_head",
        qkv=3,
        head=len(weights[0]),
    )
    q, k, v = qkv.unbind()
    return q, k, v


def mix(pattern: Maps, v: PerKey) -> PerHead:
    """Returns the values averaged by the pattern."""
    v = rearrange(v, "batch key head d_head -> batch head key d_head")
    return rearrange(pattern @ v, "batch head pos d_head -> batch pos head d_head")


def attention_in_pieces(
    q: PerHead, k: PerKey, v: PerKey, scores: Callable[[PerHead, PerKey], Maps]
) -> tuple[Maps, PerHead]:
    """Returns the pattern, softmax(scores(q, k)), and z, a few sequences at a time.

    The scores of a piece fit in a processor's cache: 0.7 of the time of all at once (measured).
    Without gradients: the pieces are written into tensors that stand ready.
    """
    batch, n_pos, n_heads, _ = q.shape
    pattern = q.new_empty(batch, n_heads, n_pos, k.shape[1])
    z = torch.empty_like(q, memory_format=torch.contiguous_format)
    size = max(1, SCORES_IN_CACHE // pattern[0].numel())
    for i in range(0, batch, size):
        piece = slice(i, i + size)
        torch.softmax(scores(q[piece], k[piece]), -1, out=pattern[piece])
        z[piece] = mix(pattern[piece], v[piece])
    return pattern, z


def fused_attention(
    q: PerHead, k: PerKey, v: PerKey, p_drop: float, scale: float, causal: Bool[Tensor, "pos key"]
) -> PerHead:
    """Returns z, softmax(q·k · scale) v under the causal mask, without ever holding the scores.

    `causal` has True where a query sees a key: its last rows and first columns are used.
    """
    q, k, v = (rearrange(x, "batch pos head d_head -> batch head pos d_head") for x in (q, k, v))
    n_pos, n_key = q.shape[2], k.shape[2]
    # The kernel knows two masks without being given one: the triangle of a run without a past, and
    # none at all, for one new query. Several queries on a longer past need theirs.
    mask = causal[n_key - n_pos : n_key, :n_key] if 1 < n_pos < n_key else None
    z = _fused(q, k, v, p_drop, scale, mask)
    return rearrange(z, "batch head pos d_head -> batch pos head d_head")


def _fused(
    q: Float[Tensor, "batch head pos d_head"],
    k: Float[Tensor, "batch head key d_head"],
    v: Float[Tensor, "batch head key d_head"],
    p_drop: float,
    scale: float,
    mask: Bool[Tensor, "pos key"] | None,
) -> Float[Tensor, "batch head pos d_head"]:
    """On a processor without AMX, PyTorch's bfloat16 kernel takes three times as long as its
    float32 one (measured on AVX-512), so there it runs in float32, also under autocast.
    """
    causal = q.shape[2] == k.shape[2]
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
