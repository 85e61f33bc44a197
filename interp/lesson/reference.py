"""The lesson's GPT in textbook form: one `nn.Linear` per head, every score written out.

The independent oracle of the tests, and the place to read the model in the lesson's own words.
The rest of the package uses TransformerLens's words; the dictionary:

    lesson        here elsewhere      lesson          here elsewhere
    n_embd (C)    d_model             key.weight      W_K[head].T
    head_size     d_head (d_k)        proj            W_O (all heads), b_O
    n_head        n_heads             net[0], net[2]  W_in, b_in and W_out, b_out
    block_size    n_ctx               lm_head         W_U, b_U
    wei           attn_scores, then pattern

In training mode dropout zeroes attention weights *after* the softmax, so rows then no longer sum
to 1; "rows sum to 1" holds before dropout, or in evaluation mode. Dropout acts on attention
weights, after the projection and after the MLP (the second lesson); the first lesson has none, and
neither has dropout on the embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from interp.errors import ConfigError, TokenError
from interp.gpt.config import Activation, GPTConfig
from interp.gpt.layers import LayerNorm
from interp.gpt.model import HookedGPT
from interp.gpt.tokenizer import CharTokenizer


class Head(nn.Module):
    """One causal self-attention head: softmax(q k^T / sqrt(head_size)) v."""

    tril: Tensor

    def __init__(
        self,
        n_embd: int,
        head_size: int,
        block_size: int,
        dropout: float = 0.2,
        *,
        bias: bool = False,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.key = nn.Linear(n_embd, head_size, bias=bias)
        self.query = nn.Linear(n_embd, head_size, bias=bias)
        self.value = nn.Linear(n_embd, head_size, bias=bias)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))
        self.dropout = nn.Dropout(dropout)
        self.scale = head_size**0.5 if scale is None else scale

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T head_size"]:
        out: Tensor = self.dropout(self.weights(x)) @ self.value(x)  # (B, T, head_size)
        return out

    def weights(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T T"]:
        """Returns the attention weights, before dropout: rows sum to 1, later positions are 0.

        Raises:
            TokenError: more positions than the mask buffer holds.
        """
        T = x.shape[1]
        if len(self.tril) < T:
            raise _too_long(len(self.tril), T)
        wei = self.query(x) @ self.key(x).transpose(-2, -1) / self.scale  # (B, T, T)
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        return F.softmax(wei, dim=-1)


def _too_long(held: int, given: int) -> TokenError:
    return TokenError(
        f"the mask buffer holds {held} positions, but {given} were given; crop the context to the "
        f"last {held} tokens"
    )


class MultiHeadAttention(nn.Module):
    """Heads side by side, concatenated and projected."""

    def __init__(
        self,
        n_head: int,
        n_embd: int,
        block_size: int,
        dropout: float = 0.2,
        *,
        head_size: int | None = None,
        bias: bool = False,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        if head_size is None and n_embd % n_head:
            raise ConfigError(
                f"n_embd = {n_embd} is not divisible by n_head = {n_head}; n_embd // n_head would "
                "drop the remainder and fail only at the projection"
            )
        size = n_embd // n_head if head_size is None else head_size
        self.heads: Sequence[Head] = nn.ModuleList(  # type: ignore[assignment]  # it is one
            Head(n_embd, size, block_size, dropout, bias=bias, scale=scale) for _ in range(n_head)
        )
        self.proj = nn.Linear(n_head * size, n_embd)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        out: Tensor = self.dropout(self.proj(torch.cat([h(x) for h in self.heads], dim=-1)))
        return out


class FeedForward(nn.Module):
    """The position-wise MLP, four times as wide inside."""

    def __init__(
        self,
        n_embd: int,
        dropout: float = 0.2,
        *,
        hidden: int | None = None,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        hidden = 4 * n_embd if hidden is None else hidden
        between: nn.Module = nn.ReLU()
        if activation != "relu":
            between = nn.GELU(approximate="tanh" if activation == "gelu_tanh" else "none")
        self.net = nn.Sequential(
            nn.Linear(n_embd, hidden), between, nn.Linear(hidden, n_embd), nn.Dropout(dropout)
        )

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        out: Tensor = self.net(x)
        return out


class Block(nn.Module):
    """The pre-norm residual block."""

    def __init__(self, n_embd: int, n_head: int, block_size: int, dropout: float = 0.2) -> None:
        super().__init__()
        self.sa = MultiHeadAttention(n_head, n_embd, block_size, dropout)
        self.ffwd: FeedForward | None = FeedForward(n_embd, dropout)
        self.ln1 = nn.LayerNorm(n_embd)
        self.ln2 = nn.LayerNorm(n_embd)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        x = x + self.sa(self.ln1(x))
        if self.ffwd is not None:
            x = x + self.ffwd(self.ln2(x))
        return x


class ReferenceGPT(nn.Module):
    """Embeddings, blocks, final LayerNorm and `lm_head`, in textbook form.

    Raises:
        ConfigError: a config with learned_scale or qk_norm, which the lesson does not have.
    """

    def __init__(self, cfg: GPTConfig) -> None:
        super().__init__()
        if cfg.learned_scale or cfg.qk_norm:
            raise ConfigError("the lesson's modules have neither learned_scale nor qk_norm")
        self.cfg = cfg
        self.token_embedding_table = nn.Embedding(cfg.d_vocab, cfg.d_model)
        self.position_embedding_table = (
            nn.Embedding(cfg.n_ctx, cfg.d_model) if cfg.positional else None
        )
        self.blocks = nn.Sequential(*(self._block(cfg) for _ in range(cfg.n_layers)))
        self.ln_f = nn.LayerNorm(cfg.d_model, eps=cfg.ln_eps) if cfg.final_norm else nn.Identity()
        self.lm_head = nn.Linear(cfg.d_model, cfg.d_vocab, bias=cfg.unembed_bias)
        if cfg.tied:
            self.lm_head.weight = self.token_embedding_table.weight

    @staticmethod
    def _block(cfg: GPTConfig) -> Block:
        block = Block(cfg.d_model, cfg.n_heads, cfg.n_ctx, cfg.dropout)
        block.sa = MultiHeadAttention(
            cfg.n_heads, cfg.d_model, cfg.n_ctx, cfg.dropout,
            head_size=cfg.d_head, bias=cfg.qkv_bias, scale=cfg.attn_scale,
        )  # fmt: skip
        block.ffwd = None
        if not cfg.attn_only:
            block.ffwd = FeedForward(
                cfg.d_model, cfg.dropout, hidden=cfg.d_mlp, activation=cfg.act_fn
            )
        block.ln1.eps = block.ln2.eps = cfg.ln_eps
        return block

    def forward(self, idx: Int[Tensor, "B T"]) -> Float[Tensor, "B T vocab_size"]:
        if idx.shape[1] > self.cfg.n_ctx:
            raise _too_long(self.cfg.n_ctx, idx.shape[1])
        x = self.token_embedding_table(idx)
        if self.position_embedding_table is not None:
            x = x + self.position_embedding_table(torch.arange(idx.shape[1], device=idx.device))
        logits: Tensor = self.lm_head(self.ln_f(self.blocks(x)))
        return logits


def from_reference(reference: ReferenceGPT, tokenizer: CharTokenizer | None = None) -> HookedGPT:
    """Returns a `HookedGPT` with the reference model's weights, dtype and device."""
    model = HookedGPT(reference.cfg, tokenizer)
    model.to(next(reference.parameters()))
    with torch.no_grad():
        for theirs, ours in _pairs(reference, model):
            ours.copy_(theirs)
    return model.train(reference.training)


def to_reference(model: HookedGPT) -> ReferenceGPT:
    """Returns a `ReferenceGPT` with the hooked model's weights, dtype and device."""
    reference = ReferenceGPT(model.config).to(model.embed.W_E)
    with torch.no_grad():
        for theirs, ours in _pairs(reference, model):
            theirs.copy_(ours)
    return reference.train(model.training)


def _pairs(reference: ReferenceGPT, model: HookedGPT) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields (reference tensor, view of the hooked model's) of equal shapes."""
    yield reference.token_embedding_table.weight, model.embed.W_E
    if reference.position_embedding_table is not None:
        yield reference.position_embedding_table.weight, model.pos_embed.W_pos
    for theirs, ours in zip(reference.blocks, model.blocks, strict=True):
        assert isinstance(theirs, Block)
        attn = ours.attn
        for h, head in enumerate(theirs.sa.heads):
            for name, letter in (("query", "Q"), ("key", "K"), ("value", "V")):
                linear = getattr(head, name)
                yield linear.weight, getattr(attn, f"W_{letter}")[h].T
                if linear.bias is not None:
                    yield linear.bias, getattr(attn, f"b_{letter}")[h]
        yield theirs.sa.proj.weight, attn.W_O.flatten(0, 1).T
        yield theirs.sa.proj.bias, attn.b_O
        yield theirs.ln1.weight, ours.ln1.w
        yield theirs.ln1.bias, ours.ln1.b
        if theirs.ffwd is not None:
            first, last = theirs.ffwd.net[0], theirs.ffwd.net[2]
            assert isinstance(first, nn.Linear)
            assert isinstance(last, nn.Linear)
            assert ours.mlp is not None
            yield first.weight, ours.mlp.W_in.T
            yield first.bias, ours.mlp.b_in
            yield last.weight, ours.mlp.W_out.T
            yield last.bias, ours.mlp.b_out
            yield theirs.ln2.weight, ours.ln2.w
            yield theirs.ln2.bias, ours.ln2.b
    if isinstance(reference.ln_f, nn.LayerNorm) and isinstance(model.ln_final, LayerNorm):
        yield reference.ln_f.weight, model.ln_final.w
        yield reference.ln_f.bias, model.ln_final.b
    if model.unembed.W_U is not None:
        yield reference.lm_head.weight, model.unembed.W_U.T
    if model.unembed.b_U is not None:
        yield reference.lm_head.bias, model.unembed.b_U
