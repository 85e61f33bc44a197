"""The report of a model: its pieces computed once, kept beside it, and written to a page."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import interp
from interp import files
from interp.errors import CheckpointError, ConfigError, TextError, TokenError, nearest
from interp.gpt.folder import model_hash
from interp.gpt.model import HookedGPT
from interp.pages.page import write_report
from interp.pages.passages import tokens_of
from interp.pages.pieces import PIECES, SECTIONS, Piece, Subject
from interp.pages.reading import RESULTS, check_free
from interp.results.provenance import versions
from interp.results.result import Result

CONTEXTS, FEWEST = 48, 10  # of the model's own text; with fewer, what needs them is left out
SAMPLE, SAMPLE_START = 250, 8  # characters
Progress = Callable[[int, int], None]


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
