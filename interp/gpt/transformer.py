"""The GPT on tokens: embed, blocks, final norm, unembed. Text, caches and names come on top of it.

Axes: `interp.gpt.axes`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from interp.gpt.aliases import hook_aliases
from interp.gpt.attention import PastKeys, empty_weight
from interp.gpt.axes import Logits, Residual, Tokens
from interp.gpt.config import GPTConfig
from interp.gpt.layers import Block, LayerNorm
from interp.hooks import HookedModule, HookPoint


class Embed(nn.Module):
    """One row of W_E per token."""

    def __init__(self, cfg: GPTConfig) -> None:
        super().__init__()
        self.W_E = empty_weight(cfg.d_vocab, cfg.d_model)

    def forward(self, tokens: Tokens) -> Residual:
        return F.embedding(tokens, self.W_E)


class PosEmbed(nn.Module):
    """One row of W_pos per position, from `offset` on; the same for every sequence."""

    def __init__(self, cfg: GPTConfig) -> None:
        super().__init__()
        self.W_pos = empty_weight(cfg.n_ctx, cfg.d_model)

    def forward(self, tokens: Tokens, offset: int = 0) -> Residual:
        positions = torch.arange(offset, offset + tokens.shape[1], device=tokens.device)
        return F.embedding(positions, self.W_pos).expand(len(tokens), -1, -1)


class Unembed(nn.Module):
    """One column of W_U per token (absent when tied to W_E), and a bias b_U where there is one."""

    W_U: nn.Parameter | None
    b_U: nn.Parameter | None

    def __init__(self, cfg: GPTConfig) -> None:
        super().__init__()
        W_U = None if cfg.tied else empty_weight(cfg.d_model, cfg.d_vocab)
        b_U = empty_weight(cfg.d_vocab) if cfg.unembed_bias else None
        self.register_parameter("W_U", W_U)
        self.register_parameter("b_U", b_U)


class Transformer(HookedModule):
    """A small pre-norm GPT with a hook point at every contribution and every attention map."""

    def __init__(self, config: GPTConfig, *, seed: int = 0) -> None:
        """
        Args:
            config: the shape.
            seed: of the initial weights; the same seed gives the same weights.
        """
        super().__init__()
        self.config = config
        self.embed = Embed(config)
        self.hook_embed = HookPoint()
        if config.positional:
            self.pos_embed = PosEmbed(config)
            self.hook_pos_embed = HookPoint()
        self.blocks: Sequence[Block] = nn.ModuleList(  # type: ignore[assignment]  # it is one
            Block(config) for _ in range(config.n_layers)
        )
        self.ln_final = LayerNorm(config) if config.final_norm else nn.Identity()
        self.unembed = Unembed(config)
        self.hook_logits = HookPoint()
        initialise(self, config, seed)
        self.setup()  # type: ignore[no-untyped-call]
        self.aliases = hook_aliases(config)

    def forward(
        self,
        input: Tokens | Residual,
        *,
        start_at_layer: int | None = None,
        stop_at_layer: int | None = None,
        past: list[PastKeys] | None = None,
    ) -> Logits | Residual:
        """Returns the logits of tokens.

        Args:
            input: tokens; with `start_at_layer`, the residual stream that enters that block.
            start_at_layer: the first block to run.
            stop_at_layer: stop before this block and return the residual stream.
            past: keys and values computed earlier, one entry per block.
        """
        x = self.embed_tokens(input, past) if start_at_layer is None else input
        first, last = slice(start_at_layer, stop_at_layer).indices(len(self.blocks))[:2]
        for layer in range(first, last):
            x = self.blocks[layer](x, None if past is None else past[layer])
        if stop_at_layer is not None:
            return x
        return self.hook_logits(self.unembed_residual(x))

    def embed_tokens(self, tokens: Tokens, past: list[PastKeys] | None = None) -> Residual:
        """Returns the residual stream that enters block 0: token plus position embeddings."""
        x = self.hook_embed(self.embed(tokens))
        if self.config.positional:
            seen = past[0].keys_values if past else None
            offset = 0 if seen is None else seen[0].shape[1]
            x = x + self.hook_pos_embed(self.pos_embed(tokens, offset))
        return x

    def unembed_residual(self, x: Residual) -> Logits:
        """Returns final LayerNorm, then W_U and b_U."""
        return F.linear(self.ln_final(x), self.W_U.T, self.b_U)

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_model"]:
        return self.embed.W_E

    @property
    def W_pos(self) -> Float[Tensor, "n_ctx d_model"]:
        return self.pos_embed.W_pos

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:
        W_U = self.unembed.W_U
        return self.embed.W_E.T if W_U is None else W_U

    @property
    def b_U(self) -> Float[Tensor, " d_vocab"] | None:
        return self.unembed.b_U

    @property
    def device(self) -> torch.device:
        return self.embed.W_E.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embed.W_E.dtype

    @contextmanager
    def attn_scaled_by(self, multiplier: float | Float[Tensor, "layer head"]) -> Iterator[Self]:
        """Multiplies attention scores by `multiplier` inside a `with` block.

        Args:
            multiplier: one number for all heads, or [layer, head]. 1 is the model as it is,
                sqrt(d_head) takes the lesson's scaling away, 0 makes attention uniform.
        """
        shape = (self.config.n_layers, self.config.n_heads)
        values = torch.as_tensor(multiplier, device=self.device, dtype=self.dtype).expand(shape)
        before = [block.attn.multiplier for block in self.blocks]
        try:
            for block, row in zip(self.blocks, values, strict=True):
                block.attn.multiplier = row
            yield self
        finally:
            for block, old in zip(self.blocks, before, strict=True):
                block.attn.multiplier = old

    @property
    def is_plain(self) -> bool:
        """True when a run now would be the plain function of tokens and weights."""
        dropping = self.training and self.config.dropout > 0
        scaled = any(block.attn.multiplier is not None for block in self.blocks)
        return not (dropping or scaled or self.is_edited)


def next_token_loss(logits: Logits, tokens: Tokens, per_token: bool = False) -> Tensor:
    """Returns the cross-entropy in nats of each position's prediction of the token after it.

    Args:
        logits: [batch, pos, d_vocab].
        tokens: [batch, pos].
        per_token: [batch, pos - 1] instead of the mean.
    """
    losses = F.cross_entropy(
        logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
    ).view(len(tokens), -1)
    return losses if per_token else losses.mean()


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
