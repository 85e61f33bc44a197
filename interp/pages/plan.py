"""The report of a model: what it holds, computed once and kept beside it.

`PIECES` is all there is in a report; a further section is an entry there.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

import interp
from interp import files
from interp.data.corpus import Corpus
from interp.errors import CheckpointError, ConfigError, TextError, TokenError, nearest
from interp.gpt.cache import ActivationCache
from interp.gpt.folder import model_hash
from interp.gpt.model import HookedGPT
from interp.pages.page import write_report
from interp.pages.passages import tokens_of
from interp.pages.reading import RESULTS, check_free
from interp.results.provenance import versions
from interp.results.result import Result
from interp.training.held_out import corpus_of

CONTEXTS, FEWEST = 48, 10  # of the model's own text; with fewer, what needs them is left out
SAMPLE, SAMPLE_START = 250, 8  # characters
Progress = Callable[[int, int], None]


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


def report(
    model: HookedGPT | str | Path,
    out: str | Path | None = None,
    *,
    text: str | Path | None = None,
    prompt: str | None = None,
    sections: str | Sequence[str] = "all",
    max_mb: float = 3.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Computes what a report of a model holds, writes it, and returns the page's path.

    What takes long is kept in `out/results`, named by all that it depends on (weights, tokens,
    seed, versions): the same report again takes seconds. See `write_report` for the page.

    Args:
        model: a model, or its folder. Only of one from a folder are training and text known.
        out: where to write; by default `reports/<name of the model>`.
        text: a UTF-8 file to look at instead of the text that the model was trained on.
        prompt: the passage to explore; by default the start of the text.
        sections: of `"text"`, `"heads"`, `"effects"`, `"scaling"`, `"training"`, `"checks"`, as a
            sequence or with commas between; or "all".
        max_mb: the page may not be larger.
        seed: of all that is sampled.
        progress: called with (pieces done, of how many).

    Warns:
        UserWarning: without ten contexts of text, heads, effects and scaling are left out.

    Raises:
        CheckpointError: the folder holds no model.
        ConfigError: an unknown section.
        TextError, TokenError: no passage, or one that the model cannot read.
        OutputError: the folder cannot be written, or holds something else; the page is too large.
    """
    wanted = _chosen(sections)
    gpt = model if isinstance(model, HookedGPT) else HookedGPT.from_pretrained(model)
    title = gpt.name or "model"
    out = Path("reports") / title if out is None else Path(out)
    passage = tokens_of(gpt, 1, text=text, prompt=prompt)
    if passage.shape[1] < 2:
        raise TokenError("a report needs a passage of at least two characters; got 1, give more")
    check_free(out, title)
    subject = Subject(model=gpt, passage=passage, contexts=_contexts(gpt, text), seed=seed)
    results = _computed([p for p in PIECES if p.section in wanted], subject, out, progress)
    return write_report(
        out, gpt, results, title=title, sample=_sample(subject) if "training" in wanted else "",
        sample_seed=seed, max_mb=max_mb,
    )  # fmt: skip


def _chosen(sections: str | Sequence[str]) -> tuple[str, ...]:
    given = sections.split(",") if isinstance(sections, str) else sections
    if tuple(given) == ("all",):
        return SECTIONS
    for name in given:
        if name not in SECTIONS:
            raise ConfigError(
                f"sections = {name!r} is not one of {', '.join(SECTIONS)}{nearest(name, SECTIONS)}"
            )
    return tuple(given)


def _contexts(model: HookedGPT, text: str | Path | None) -> torch.Tensor | None:
    """Whole contexts to measure heads and effects on; None where there is no such text."""
    try:
        found = tokens_of(model, CONTEXTS, text=text)
    except (TextError, TokenError, ConfigError):
        found = None
    if found is None or len(found) < FEWEST:
        warnings.warn(
            f"heads, effects and scaling are left out: they need {FEWEST} contexts of text; give "
            "text",
            stacklevel=3,
        )
        return None
    return found


def _computed(
    pieces: Sequence[Piece], on: Subject, out: Path, progress: Progress | None
) -> list[Result]:
    """The results of all pieces that apply, computed or kept from before."""
    kept = Kept(out / RESULTS, on)
    results: list[Result] = []
    for done, piece in enumerate(pieces):
        if progress is not None:
            progress(done, len(pieces))
        if (piece.layers and not on.model.config.n_layers) or (
            piece.contexts and on.contexts is None
        ):
            continue
        tokens = on.contexts[: piece.contexts] if piece.contexts else on.passage  # type: ignore[index]
        made = kept.result(piece, tokens) if piece.kept else piece.compute(on, tokens)
        on.made[piece.name] = made
        results += [made] if isinstance(made, Result) else made or []
    if progress is not None:
        progress(len(pieces), len(pieces))
    kept.forget_others()
    return results


class Kept:
    """Results on disk, named by all that they depend on."""

    def __init__(self, folder: Path, on: Subject) -> None:
        self.folder, self.on = folder, on
        self.used: set[Path] = set()

    def result(self, piece: Piece, tokens: torch.Tensor) -> Any:
        """Returns the kept result, or computes and keeps it."""
        path = self.folder / f"{piece.name}-{self._key(piece, tokens)}.json"
        self.used.add(path)
        try:
            return Result.load(path)
        except CheckpointError:
            result = piece.compute(self.on, tokens)
            if isinstance(result, Result):
                result.save(path)
            return result

    def _key(self, piece: Piece, tokens: torch.Tensor) -> str:
        on = self.on
        corpus = on.corpus.sha256 if piece.section == "training" and on.corpus is not None else ""
        depends = [
            model_hash(on.model), on.seed, str(on.model.dtype), versions(), piece.name, corpus,
            list(tokens.shape), tokens.cpu().numpy().tobytes().hex(),
        ]  # fmt: skip
        return files.sha256(json.dumps(depends).encode())[:12]

    def forget_others(self) -> None:
        """Removes what earlier reports kept and this one has no use for."""
        for path in self.folder.glob("*.json"):
            if path not in self.used:
                path.unlink()


def _sample(on: Subject) -> str:
    """Text that the model writes after the start of the passage."""
    start = on.passage[:1, : min(SAMPLE_START, on.passage.shape[1])]
    written: str = on.model.to_string(interp.generate(on.model, start, SAMPLE, seed=on.seed)[0])
    return written
