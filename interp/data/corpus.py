"""A text, its split, and the windows of it that are trained and validated on.

The texts are those of `interp.data.sources`; another kind of source, `"repeated-tokens"`, is not a
text: see `interp.data.repeated`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from interp import files
from interp.data.batches import training_batch, validation_windows
from interp.data.sources import OTHER_SOURCES, read_text, shakespeare, tinyshakespeare
from interp.errors import TextError
from interp.gpt.tokenizer import CharTokenizer

TRAIN_SHARE = 0.9


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A text, its name, and its split: the first 90 % train, the last 10 % validate."""

    text: str
    name: str

    @property
    def train(self) -> str:
        return self.text[: int(len(self.text) * TRAIN_SHARE)]

    @property
    def validation(self) -> str:
        return self.text[int(len(self.text) * TRAIN_SHARE) :]

    @property
    def sha256(self) -> str:
        return files.sha256(self.text.encode("utf-8"))

    def tokenizer(self) -> CharTokenizer:
        """Returns the tokenizer of all characters in the text."""
        return CharTokenizer.from_text(self.text)

    @cached_property
    def _tokens(self) -> tuple[Tensor, Tensor]:
        encode = self.tokenizer().encode
        return torch.tensor(encode(self.train)), torch.tensor(encode(self.validation))

    def batch(
        self, n_ctx: int, batch_size: int, *, seed: int, step: int
    ) -> Int[Tensor, "batch pos"]:
        """Returns random windows of n_ctx + 1 training tokens; see `training_batch`."""
        return training_batch(self._tokens[0], n_ctx, batch_size, seed=seed, step=step)

    def windows(self, n_ctx: int, batch_size: int) -> Iterator[Int[Tensor, "batch pos"]]:
        """Yields all of the validation split in order; see `validation_windows`."""
        return validation_windows(self._tokens[1], n_ctx, batch_size)

    def passages(self, n_ctx: int, count: int, *, seed: int | None = None) -> list[str]:
        """Returns up to `count` passages of n_ctx characters of the validation split, in order.

        Without a seed they are its first, beginning after a blank line if there is one; with one,
        whole contexts drawn from all of it, none twice. A shorter text is one passage.
        """
        if seed is not None and len(self.validation) > n_ctx:
            starts = range(0, len(self.validation) - n_ctx, n_ctx)
            size = min(count, len(starts))
            chosen = np.random.default_rng(seed).choice(starts, size=size, replace=False)
            return [self.validation[start : start + n_ctx] for start in sorted(chosen)]
        start = self.validation.find("\n\n") + 2 if "\n\n" in self.validation else 0
        return cut(self.validation[start:], n_ctx, count)

    def check_long_enough(self, n_ctx: int) -> None:
        """Checks that the training split fills one context and validation has a pair.

        Raises:
            TextError: too short, with both lengths.
        """
        if not _is_enough(len(self.text), n_ctx):
            need = next(n for n in itertools.count(n_ctx) if _is_enough(n, n_ctx))
            raise TextError(
                f"the text {self.name!r} has {len(self.text)} characters, too few for "
                f"n_ctx = {n_ctx}: at least {need} are needed; give a longer text or smaller n_ctx"
            )


def cut(text: str, length: int, count: int) -> list[str]:
    """Returns up to `count` pieces of one length from the start of a text; at least one, shorter if
    need be.
    """
    whole = min(count, len(text) // length)
    return [text[i * length : (i + 1) * length] for i in range(whole)] or [text]


def _is_enough(length: int, n_ctx: int) -> bool:
    train = int(length * TRAIN_SHARE)
    return train > n_ctx and length - train >= 2


def load_corpus(source: str | None = "shakespeare", path: str | Path | None = None) -> Corpus:
    """Returns the corpus of a named source or of a file.

    Args:
        source: "shakespeare" or "tinyshakespeare".
        path: a UTF-8 file; takes precedence.

    Raises:
        TextError: missing, empty, binary or not UTF-8; the package or the network is not there.
    """
    if path is not None:
        return Corpus(text=read_text(Path(path)), name=Path(path).name)
    if source == "shakespeare":
        return Corpus(text=shakespeare(), name="shakespeare")
    if source == "tinyshakespeare":
        return Corpus(text=tinyshakespeare(), name="tinyshakespeare")
    raise TextError(f"unknown text source {source!r}; {OTHER_SOURCES}")
