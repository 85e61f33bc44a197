"""Repeated random tokens: text that only a model which looks back can predict.

Each sequence has a period of its own and a random segment of that length, repeated to the end. The
first copy cannot be predicted; from the second copy on, the next token is the one that followed the
same token a period earlier, which is what an induction head finds. With one period for all, a model
learns to look that far back instead: no induction, and yet no errors.

Source: Olsson et al. 2022, In-context learning and induction heads (2209.11895).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from interp import files
from interp.errors import ConfigError, TextError
from interp.gpt.tokenizer import CharTokenizer

SYMBOLS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
HELD_OUT = 512  # sequences of the validation set
_VALIDATION, _TRAINING = 1, 0  # streams of random numbers that never meet


@dataclass(frozen=True, kw_only=True)
class RepeatedTokens:
    """A source of repeated random sequences, endless in training and fixed in validation.

    Periods are drawn from `min_period` to `max_period`. Without `replacement` no token occurs twice
    in a segment, so the token alone tells what follows; with it, chance repeats make one token
    ambiguous, and two-token matches pay.
    """

    symbols: int = 32
    min_period: int = 6
    max_period: int = 24
    replacement: bool = False

    def __post_init__(self) -> None:
        if not 2 <= self.symbols <= len(SYMBOLS):
            raise ConfigError(f"symbols = {self.symbols} must be 2 to {len(SYMBOLS)}")
        if not 1 <= self.min_period <= self.max_period:
            raise ConfigError(
                f"min_period = {self.min_period} and max_period = {self.max_period} must be at "
                "least 1, and in that order"
            )
        if not self.replacement and self.max_period > self.symbols:
            raise ConfigError(
                f"max_period = {self.max_period} needs as many symbols, but there are "
                f"{self.symbols}; give more, or replacement = true"
            )

    @property
    def name(self) -> str:
        return "repeated-tokens"

    @property
    def sha256(self) -> str:
        return files.sha256(json.dumps(asdict(self), sort_keys=True).encode())

    def tokenizer(self) -> CharTokenizer:
        """Returns the tokenizer of the symbols, in their order."""
        return CharTokenizer(SYMBOLS[: self.symbols])

    def check_long_enough(self, n_ctx: int) -> None:
        """Checks that the longest period repeats within a context.

        Raises:
            TextError: it does not.
        """
        if n_ctx + 1 < 2 * self.max_period - 1:
            raise TextError(
                f"a period of max_period = {self.max_period} does not repeat within n_ctx = "
                f"{n_ctx}; lower it, or give n_ctx = {2 * self.max_period - 2} or more"
            )

    def batch(
        self, n_ctx: int, batch_size: int, *, seed: int, step: int
    ) -> Int[Tensor, "batch pos"]:
        """Returns `batch_size` sequences of n_ctx + 1 tokens; a pure function of (seed, step)."""
        rng = np.random.default_rng([_TRAINING, seed, step])
        return self.draw(batch_size, n_ctx + 1, rng)[0]

    def windows(self, n_ctx: int, batch_size: int) -> Iterator[Int[Tensor, "batch pos"]]:
        """Yields the validation set: 512 sequences of n_ctx + 1 tokens, the same every time."""
        rng = np.random.default_rng([_VALIDATION, 0, 0])
        tokens, _ = self.draw(HELD_OUT, n_ctx + 1, rng)
        yield from tokens.split(batch_size)

    def passages(self, n_ctx: int, count: int, *, seed: int | None = None) -> list[str]:
        """Returns up to 512 sequences of n_ctx symbols of the validation set, as text.

        The first of them, or with a seed some drawn from all.
        """
        tokens = torch.cat(list(self.windows(n_ctx, HELD_OUT)))[:, :n_ctx]
        order = np.arange(HELD_OUT)
        if seed is not None:
            order = np.random.default_rng(seed).permutation(HELD_OUT)
        tokens = tokens[np.sort(order[:count])]
        tokenizer = self.tokenizer()
        return [tokenizer.decode(row) for row in tokens.tolist()]

    def draw(
        self, count: int, length: int, rng: np.random.Generator
    ) -> tuple[Int[Tensor, "batch pos"], Int[Tensor, " batch"]]:
        """Returns `count` sequences and the period of each."""
        periods = (self.min_period, self.max_period)
        return repeated_sequences(self.symbols, count, length, periods, rng, self.replacement)


def repeated_sequences(
    symbols: int,
    count: int,
    length: int,
    periods: tuple[int, int],
    rng: np.random.Generator,
    replacement: bool = False,
) -> tuple[Int[Tensor, "batch pos"], Int[Tensor, " batch"]]:
    """Returns `count` random sequences, each repeating with a period of its own, and the periods.

    Args:
        symbols: tokens are below this.
        count: how many.
        length: tokens of each.
        periods: the least and the greatest.
        rng: where they come from.
        replacement: whether a token may occur twice in a segment.
    """
    least, greatest = periods
    period = rng.integers(least, greatest + 1, size=count)
    if replacement:
        segments = rng.integers(symbols, size=(count, greatest))
    else:
        segments = rng.random((count, symbols)).argsort(1)[:, :greatest]
    at = np.arange(length)[None] % period[:, None]
    return torch.from_numpy(np.take_along_axis(segments, at, axis=1)), torch.from_numpy(period)


def repeats_for(n_ctx: int, d_vocab: int) -> tuple[int, int] | None:
    """Returns the least and the greatest period of tokens that repeat within a context.

    The greatest is half of the context, or the vocabulary where that is smaller (no token occurs
    twice in a segment); the least is a quarter of the greatest, and at least 2. None: the context
    or the vocabulary is too small for anything to repeat.
    """
    greatest = min(n_ctx // 2, d_vocab)
    return (max(2, greatest // 4), greatest) if greatest >= 2 else None
