"""What a report holds: `PIECES` is all there is in one; a further section is an entry there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

import interp
from interp.data.corpus import Corpus
from interp.errors import ConfigError, TextError
from interp.gpt.cache import ActivationCache
from interp.gpt.model import HookedGPT
from interp.results.result import Result
from interp.training.held_out import corpus_of


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a report is about, and what of it is already made, by name of the piece."""

    model: HookedGPT
    passage: torch.Tensor
    contexts: torch.Tensor | None
    seed: int
    made: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def cache(self) -> ActivationCache:
        """The activations on the passage."""
        cache: ActivationCache = self.model.run_with_cache(self.passage)[1]
        return cache

    @cached_property
    def corpus(self) -> Corpus | None:
        """The text that the model was trained on; None where it is not a text, or not known."""
        try:
            found = corpus_of(self.model)
        except (TextError, ConfigError):
            return None
        return found if isinstance(found, Corpus) else None


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One thing that a report holds.

    `section`: with which others it is chosen; `compute`: a result, or several, or none where there
    is nothing to say, of the subject and tokens [batch, pos]. These are the passage, or the first
    `contexts` of the model's own text. `layers`: it needs heads. `kept`: it takes long, and is kept
    on disk.
    """

    section: str
    name: str
    compute: Callable[[Subject, torch.Tensor], Result | Sequence[Result] | None]
    contexts: int = 0
    layers: bool = False
    kept: bool = False


def _parts(by: str) -> Callable[[Subject, torch.Tensor], Result]:
    return lambda on, _: interp.logit_attribution(on.model, on.cache, by)  # type: ignore[arg-type]


def _cards(on: Subject, _: torch.Tensor) -> list[Result]:
    shape = on.model.config
    heads = [f"L{i}.H{h}" for i in range(shape.n_layers) for h in range(shape.n_heads)]
    known = (on.made["heads"], on.made["labels"])
    return [interp.head_card(on.model, head, *known) for head in heads]


def _baselines(on: Subject, _: torch.Tensor) -> Result | None:
    """Losses of count models on the model's text."""
    if on.corpus is None or not _has_history(on):
        return None
    encode = on.corpus.tokenizer().encode
    return interp.ngram_losses(
        encode(on.corpus.train), encode(on.corpus.validation), len(on.corpus.tokenizer())
    )


def _history(on: Subject, _: torch.Tensor) -> Result | None:
    folder = on.model.folder
    if folder is None or not _has_history(on):
        return None
    return interp.training_history(folder, on.model, on.made["baselines"])


def _has_history(on: Subject) -> bool:
    folder = on.model.folder
    return folder is not None and (folder / "history.csv").is_file()


PIECES = (
    Piece(section="text", name="predictions",
          compute=lambda on, _: interp.predictions(on.model, on.cache)),
    Piece(section="text", name="lens", compute=lambda on, _: interp.logit_lens(on.model, on.cache)),
    Piece(section="text", name="patterns", layers=True,
          compute=lambda on, _: interp.attention_patterns(on.model, on.cache)),
    Piece(section="text", name="by-block", compute=_parts("block")),
    Piece(section="text", name="by-head", compute=_parts("head"), layers=True),
    Piece(section="text", name="by-source", compute=_parts("source"), layers=True),
    Piece(section="heads", name="heads", contexts=48, layers=True, kept=True,
          compute=lambda on, tokens: interp.head_scores(on.model, tokens, seed=on.seed)),
    Piece(section="heads", name="labels", contexts=48, layers=True, kept=True,
          compute=lambda on, _: interp.label_heads(on.model, on.made["heads"], seed=on.seed)),
    Piece(section="heads", name="cards", contexts=48, layers=True, compute=_cards),
    Piece(section="effects", name="effects", contexts=32, kept=True,
          compute=lambda on, tokens: interp.component_effects(
              on.model, tokens, ablate="mean", metric="log_prob", seed=on.seed)),
    Piece(section="scaling", name="scaling", contexts=16, layers=True, kept=True,
          compute=lambda on, tokens: interp.attention_scaling(on.model, tokens, seed=on.seed)),
    Piece(section="training", name="baselines", compute=_baselines, kept=True),
    Piece(section="training", name="history", compute=_history),
    Piece(section="checks", name="checks", kept=True,
          compute=lambda on, tokens: interp.check_model(on.model, tokens, seed=on.seed)),
)  # fmt: skip
SECTIONS = tuple(dict.fromkeys(piece.section for piece in PIECES))
