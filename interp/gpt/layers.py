"""The parts of the hooked GPT, bottom up: norm, attention, MLP, block.

Take away every `hook_…` and a plain pre-norm GPT remains; each contribution to the residual
stream is added, never overwritten. Where a method asks whether a hook is `watched`, it chooses
between two ways of computing one function, written out or fused.

Axes: `interp.gpt.axes`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import repeat
from jaxtyping import Float
from torch import Tensor, nn

from interp.gpt.attention import Attention, Changes, PastKeys, empty_weight
from interp.gpt.axes import PerHead, Residual
from interp.gpt.config import GPTConfig
from interp.hooks import HookPoint

__all__ = ["MLP", "Attention", "Block", "LayerNorm", "PastKeys"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


class LayerNorm(nn.Module):
    """(x - mean) / scale * w + b, with scale = sqrt(biased variance + eps)."""

    def __init__(self, cfg: GPTConfig) -> None:
        super().__init__()
        self.eps = cfg.ln_eps
        self.w = empty_weight(cfg.d_model)
        self.b = empty_weight(cfg.d_model)
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


class MLP(nn.Module):
    """act(x W_in + b_in) W_out + b_out."""

    def __init__(self, cfg: GPTConfig) -> None:
        super().__init__()
        self.act = ACTIVATIONS[cfg.act_fn]
        self.p_drop = cfg.dropout
        self.W_in, self.b_in = empty_weight(cfg.d_model, cfg.d_mlp), empty_weight(cfg.d_mlp)
        self.W_out, self.b_out = empty_weight(cfg.d_mlp, cfg.d_model), empty_weight(cfg.d_model)
        self.hook_pre = HookPoint()  # [batch pos d_mlp]
        self.hook_post = HookPoint()  # [batch pos d_mlp]

    def forward(self, x: Residual) -> Residual:
        post = self.hook_post(self.act(self.hook_pre(self.pre(x))))
        return F.dropout(F.linear(post, self.W_out.T, self.b_out), self.p_drop, self.training)

    def pre(self, x: Residual) -> Float[Tensor, "batch pos d_mlp"]:
        """Returns the neurons' inputs."""
        return F.linear(x, self.W_in.T, self.b_in)


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
        x = x + self.hook_attn_out(self.attn(self.ln1(x), past, self.hook_inputs(x)))
        if self.mlp is not None:
            x = self.hook_resid_mid(x)
            x = x + self.hook_mlp_out(self.mlp(self.ln2(self.hook_mlp_in(x))))
        return self.hook_resid_post(x)

    def after_attention(self, x: Residual) -> Residual:
        """Returns `forward` without its first addition, from the stream as it stands after that.

        What runs a model on from its middle starts here.
        """
        if self.mlp is not None:
            x = self.hook_resid_mid(x)
            x = x + self.hook_mlp_out(self.mlp(self.ln2(self.hook_mlp_in(x))))
        return self.hook_resid_post(x)

    def hook_inputs(self, x: Residual) -> Changes:
        """Returns what hooks on `hook_q_input`, `hook_k_input`, `hook_v_input` change of q, k, v.

        Where one is in use, each head gets its own copy of the stream there, normalised on its own,
        so that a path into one head can be cut. What an edit of the copy changes is *added* to what
        the shared path gives, so that hooks on `ln1` keep their effect beside it.
        """
        points = (self.hook_q_input, self.hook_k_input, self.hook_v_input)
        q, k, v = (
            self._change(x, point, letter) if point.watched else None
            for point, letter in zip(points, "QKV", strict=True)
        )
        return q, k, v

    def _change(self, x: Residual, point: HookPoint, letter: str) -> PerHead | None:
        copies = repeat(x, "batch pos d -> batch pos head d", head=self.n_heads)
        read = point(copies)
        if not point.edited:
            return None
        before = self.attn.project_one(self.ln1.read(copies), letter)
        after = self.attn.project_one(self.ln1.read(read), letter)
        return after - before
