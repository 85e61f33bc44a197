"""Causal multi-head attention, with a hook at every step.

Take away every `hook_…` and plain attention remains. Where a method asks whether a hook is
`watched`, it chooses between two ways of computing one function: written out, for the hook to look
into, or by a kernel (`interp.gpt.kernels`).

Axes: `interp.gpt.axes`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from torch import Tensor, nn

from interp.gpt import kernels
from interp.gpt.axes import KeysValues, Maps, PerHead, PerHeadStream, PerKey, Residual
from interp.gpt.config import GPTConfig
from interp.hooks import HookPoint

NORM_EPS = 1e-6  # of qk_norm: a query of zeros stays one

Changes = tuple[PerHead | None, PerHead | None, PerHead | None]  # of q, k, v; see `Block`


def empty_weight(*shape: int) -> nn.Parameter:
    """Returns a parameter of a shape, to be filled by `initialise`."""
    return nn.Parameter(torch.empty(*shape))


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
        self.register_parameter("gain", empty_weight(cfg.n_heads) if has_gain else None)
        self.p_drop = cfg.dropout
        shape = (cfg.n_heads, cfg.d_model, cfg.d_head)
        self.W_Q, self.W_K, self.W_V = (
            empty_weight(*shape),
            empty_weight(*shape),
            empty_weight(*shape),
        )
        self.W_O = empty_weight(cfg.n_heads, cfg.d_head, cfg.d_model)
        self.b_O = empty_weight(cfg.d_model)
        for name in ("b_Q", "b_K", "b_V"):
            bias = empty_weight(cfg.n_heads, cfg.d_head) if cfg.qkv_bias else None
            self.register_parameter(name, bias)
        mask = torch.ones(cfg.n_ctx, cfg.n_ctx, dtype=torch.bool).tril()
        self.register_buffer("mask", mask, persistent=False)
        self.hook_q, self.hook_k, self.hook_v = HookPoint(), HookPoint(), HookPoint()
        self.hook_attn_scores, self.hook_pattern = HookPoint(), HookPoint()
        self.hook_z, self.hook_result = HookPoint(), HookPoint()

    def forward(
        self, x: Residual, past: PastKeys | None = None, hook_changes: Changes | None = None
    ) -> Residual:
        q, k, v = self.project(x)
        if hook_changes is not None:  # see `Block.hook_inputs`
            q, k, v = (
                y if change is None else y + change
                for y, change in zip((q, k, v), hook_changes, strict=True)
            )
        if past is not None:
            k, v = past.extend(k, v)
        z = self.hook_z(self.attend(self.hook_q(q), self.hook_k(k), self.hook_v(v)))
        return F.dropout(self.write(z), self.p_drop, self.training)

    def project(self, x: Residual) -> tuple[PerHead, PerHead, PerHead]:
        """Returns the queries, keys and values of one normalised input."""
        biases = None
        if self.b_Q is not None and self.b_K is not None and self.b_V is not None:
            biases = (self.b_Q, self.b_K, self.b_V)
        return kernels.project_together(x, (self.W_Q, self.W_K, self.W_V), biases)

    def attend(self, q: PerHead, k: PerKey, v: PerKey) -> PerHead:
        """Returns z. Scores and pattern are written out where a hook looks at them, or else fused.

        All ways compute the same function; `tests/test_model.py` holds them to each other.
        """
        p_drop = self.p_drop if self.training else 0.0
        if not (self.hook_attn_scores.watched or self.hook_pattern.watched):
            q, k = self.compared(q, k, self.multiplier)
            return kernels.fused_attention(q, k, v, p_drop, 1 / self.attn_scale, self.mask)
        only_recorded = not (self.hook_attn_scores.watched or self.hook_pattern.edited)
        if only_recorded and not torch.is_grad_enabled() and not p_drop:
            pattern, z = kernels.attention_in_pieces(
                q, k, v, lambda q, k: self.scores(q, k, self.multiplier)
            )
            self.hook_pattern(pattern)
            return z
        scores = self.hook_attn_scores(self.scores(q, k, self.multiplier))
        pattern = self.hook_pattern(scores.softmax(-1))
        return self.mix(F.dropout(pattern, p_drop, self.training), v)

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
        return kernels.mix(pattern, v)

    def write(self, z: PerHead) -> Residual:
        """Returns what the heads together write: the sum of `results`, plus b_O."""
        if self.hook_result.watched:
            return self.hook_result(self.results(z)).sum(2) + self.b_O
        W_O = rearrange(self.W_O, "head d_head d_model -> d_model (head d_head)")
        out = F.linear(rearrange(z, "batch pos head d_head -> batch pos (head d_head)"), W_O)
        return out + self.b_O

    def results(self, z: PerHead) -> PerHeadStream:
        """Returns what each head adds to the residual stream; with b_O they sum to attn_out."""
        return einsum(
            z, self.W_O, "batch pos head d_head, head d_head d_model -> batch pos head d_model"
        )

    def project_one(self, x: PerHeadStream, letter: str) -> PerHead:
        """Returns queries ("Q"), keys ("K") or values ("V") where each head has its own input."""
        weight, bias = getattr(self, f"W_{letter}"), getattr(self, f"b_{letter}")
        out: Tensor = einsum(
            x, weight, "batch pos head d_model, head d_model d_head -> batch pos head d_head"
        )
        return out if bias is None else out.add(bias)
