"""The lesson's ladder of models: from a table of bigrams to the GPT, one step at a time.

Words are the lesson's (see `interp.lesson.reference` for the dictionary). All take tokens (B, T)
and give logits (B, T, vocab_size), and all are trained by `interp.train` from a recipe whose
`[model]` says `rung = …`:

    rung         the lesson's steps   what it adds
    "bigram"     (the start)          a table: each character scores the next; vocab_size² weights
    "averages"   3_1 to 3_3           averages of the past, computed and thrown away: no change
    "dense"      3_6, 3_7             embeddings of width C, and LM_head
    "positions"  3_8 (and 3_13)       a vector for each position
    "average"    (not in the lesson)  the average of the past, used
    "head"       3_14 to 3_18         one attention head in its place
    "heads"      second lesson        several heads side by side, concatenated and projected
    "block"      second lesson        one pre-norm block: residual stream, LayerNorm, MLP
    "stack"      second lesson        several blocks

Up to "heads" there is no residual connection: what the head returns *replaces* the embeddings, so
the character itself has no direct path to the logits.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from interp.errors import ConfigError
from interp.gpt.config import GPTConfig, StrictModel
from interp.gpt.tokenizer import CharTokenizer
from interp.lesson.reference import Head, MultiHeadAttention, ReferenceGPT, from_reference

Rung = Literal[
    "bigram", "averages", "dense", "positions", "average", "head", "heads", "block", "stack"
]
Logits = Float[Tensor, "B T vocab_size"]
Stream = Float[Tensor, "B T C"]


class LadderConfig(StrictModel):
    """The shape of a rung. `d_model` is the lesson's C, `n_ctx` its block_size.

    n_heads counts for "heads", "block" and "stack"; n_layers for "stack".
    """

    rung: Rung
    n_ctx: int = Field(default=8, ge=1)
    d_vocab: int = Field(ge=1)
    d_model: int = Field(default=32, ge=1)
    n_heads: int = Field(default=4, ge=1)
    n_layers: int = Field(default=4, ge=1)
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0)

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.rung in ("heads", "block", "stack") and self.d_model % self.n_heads:
            raise ValueError(
                f"d_model = {self.d_model} is not divisible by n_heads = {self.n_heads}; "
                "the lesson's head_size = n_embd // n_head would drop the remainder"
            )
        return self


# ---- the average of the past, in three forms -------------------------------------------------


def average_loop(x: Stream) -> Stream:
    """Returns the mean of the vectors up to and including each position; one at a time (step 3_1).

    Agrees with the other two forms to rounding (2e-16 in float64, 2e-7 in float32).
    """
    out = torch.zeros_like(x)
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            out[b, t] = x[b, : t + 1].mean(dim=0)
    return out


def average_matrix(x: Stream) -> Stream:
    """Returns the same as one product with a triangular matrix whose rows sum to 1 (step 3_2)."""
    T = x.shape[1]
    W = torch.tril(torch.ones(T, T, dtype=x.dtype, device=x.device))
    return (W / W.sum(1, keepdim=True)) @ x


def average_softmax(x: Stream) -> Stream:
    """Returns the same by a softmax of equal scores, −inf where masked (step 3_3)."""
    T = x.shape[1]
    W = torch.tril(torch.ones(T, T, dtype=x.dtype, device=x.device))
    return F.softmax(W.masked_fill(W == 0, float("-inf")), dim=-1) @ x


AVERAGES: dict[str, Callable[[Tensor], Tensor]] = {
    "loop": average_loop,
    "matrix": average_matrix,
    "softmax": average_softmax,
}


# ---- the rungs --------------------------------------------------------------------------------


class LadderModel(nn.Module):
    """A rung. Subclasses give `forward(idx)`.

    Weights have PyTorch's default initial values, drawn with `seed`; the global generator is left
    alone.
    """

    config: LadderConfig
    tokenizer: CharTokenizer | None
    folder: Path | None = None
    name: str = ""

    def __init__(
        self, config: LadderConfig, tokenizer: CharTokenizer | None = None, *, seed: int = 0
    ) -> None:
        super().__init__()
        if tokenizer is not None and len(tokenizer) != config.d_vocab:
            raise ConfigError(
                f"the tokenizer has {len(tokenizer)} characters, but d_vocab = {config.d_vocab}"
            )
        self.config, self.tokenizer = config, tokenizer
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.build(config)

    def build(self, cfg: LadderConfig) -> None:
        """Makes the layers."""
        raise NotImplementedError

    def forward(self, idx: Int[Tensor, "B T"]) -> Logits:
        """Returns logits."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    @torch.no_grad()
    def generate(
        self, idx: Int[Tensor, "B T"], max_new_tokens: int, *, crop: bool = True, seed: int = 0
    ) -> Int[Tensor, "B T_new"]:
        """Returns `idx` with sampled tokens after it; runs in evaluation mode.

        Args:
            idx: tokens.
            max_new_tokens: how many to add.
            crop: read only the last n_ctx tokens (step 3_17). Without it, a rung with an attention
                head fails past n_ctx, where its mask ends.
            seed: of the sampling.

        Raises:
            TokenError: past n_ctx without the crop, in a rung with a mask.
        """
        generator = torch.Generator().manual_seed(seed)
        was_training = self.training
        self.eval()
        try:
            for _ in range(max_new_tokens):
                seen = idx[:, -self.config.n_ctx :] if crop else idx
                p = self(seen)[:, -1].softmax(-1).cpu()
                new = torch.multinomial(p, 1, generator=generator).to(idx.device)
                idx = torch.cat((idx, new), dim=1)
        finally:
            self.train(was_training)
        return idx


class Bigram(LadderModel):
    """Each character's row of the table is the logits of the next one."""

    def build(self, cfg: LadderConfig) -> None:
        self.token_embedding_table = nn.Embedding(cfg.d_vocab, cfg.d_vocab)

    def forward(self, idx: Int[Tensor, "B T"]) -> Logits:
        logits: Tensor = self.token_embedding_table(idx)
        return logits


class Averages(Bigram):
    """The bigram table, and averages of the past that nothing uses: the same logits, later."""

    how = "matrix"

    def forward(self, idx: Int[Tensor, "B T"]) -> Logits:
        AVERAGES[self.how](self.token_embedding_table(idx))
        return super().forward(idx)


class Dense(LadderModel):
    """Embeddings of width C, then LM_head."""

    def build(self, cfg: LadderConfig) -> None:
        self.token_embedding_table = nn.Embedding(cfg.d_vocab, cfg.d_model)
        self.LM_head = nn.Linear(cfg.d_model, cfg.d_vocab)

    def forward(self, idx: Int[Tensor, "B T"]) -> Logits:
        logits: Tensor = self.LM_head(self.represent(idx))
        return logits

    def represent(self, idx: Int[Tensor, "B T"]) -> Stream:
        """Returns what LM_head reads."""
        x: Tensor = self.token_embedding_table(idx)
        return x


class Positions(Dense):
    """And a vector for each position; past n_ctx positions begin again (`% block_size`)."""

    def build(self, cfg: LadderConfig) -> None:
        super().build(cfg)
        self.position_embedding_table = nn.Embedding(cfg.n_ctx, cfg.d_model)

    def represent(self, idx: Int[Tensor, "B T"]) -> Stream:
        position = torch.arange(idx.shape[1], device=idx.device) % self.config.n_ctx
        x: Tensor = super().represent(idx) + self.position_embedding_table(position)
        return x


class Average(Positions):
    """And the average of all up to each position in place of its own vector."""

    def represent(self, idx: Int[Tensor, "B T"]) -> Stream:
        return average_matrix(super().represent(idx))


class OneHead(Positions):
    """And one attention head, as wide as the embeddings, in place of the average."""

    def build(self, cfg: LadderConfig) -> None:
        super().build(cfg)
        self.attention_head = Head(cfg.d_model, cfg.d_model, cfg.n_ctx, cfg.dropout)

    def represent(self, idx: Int[Tensor, "B T"]) -> Stream:
        x: Tensor = self.attention_head(super().represent(idx))
        return x


class ParallelHeads(Positions):
    """And several heads side by side, concatenated and projected."""

    def build(self, cfg: LadderConfig) -> None:
        super().build(cfg)
        self.sa = MultiHeadAttention(cfg.n_heads, cfg.d_model, cfg.n_ctx, cfg.dropout)

    def represent(self, idx: Int[Tensor, "B T"]) -> Stream:
        x: Tensor = self.sa(super().represent(idx))
        return x


class Stack(LadderModel):
    """The lesson's GPT, of one block ("block") or several ("stack").

    `gpt` is a `HookedGPT` with the initial weights of the lesson's modules; it trains in 0.6 of
    their time (measured), as its heads are one matrix product.
    """

    def build(self, cfg: LadderConfig) -> None:
        shape = GPTConfig(
            n_layers=cfg.n_layers if cfg.rung == "stack" else 1, n_heads=cfg.n_heads,
            d_model=cfg.d_model, n_ctx=cfg.n_ctx, d_vocab=cfg.d_vocab, dropout=cfg.dropout,
        )  # fmt: skip
        self.gpt = from_reference(ReferenceGPT(shape))

    def forward(self, idx: Int[Tensor, "B T"]) -> Logits:
        logits: Tensor = self.gpt(idx)
        return logits


RUNGS: dict[str, type[LadderModel]] = {
    "bigram": Bigram,
    "averages": Averages,
    "dense": Dense,
    "positions": Positions,
    "average": Average,
    "head": OneHead,
    "heads": ParallelHeads,
    "block": Stack,
    "stack": Stack,
}
