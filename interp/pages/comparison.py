"""Several models beside each other, on the same text: seeds, checkpoints, trained and untrained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from interp.analysis.causal.effect_results import ComponentEffects
from interp.analysis.causal.effects import component_effects
from interp.analysis.heads.label_results import HeadLabels
from interp.analysis.heads.labels import label_heads
from interp.analysis.heads.score_results import HeadScores
from interp.analysis.heads.scores import head_scores
from interp.data.corpus import cut, load_corpus
from interp.errors import ConfigError
from interp.figures.marks import Dots, Series
from interp.figures.palette import of_series
from interp.gpt.model import HookedGPT
from interp.pages.study import StudySection, write_study
from interp.results.document import to_numpy
from interp.results.intervals import mean_interval
from interp.results.shown import Shown
from interp.training.held_out import corpus_of

MARKERS = "osD^vP"
UNTRAINED_SEED = 10_000  # and the comparison's own: no recipe's
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What is known of one model: its loss per sequence [sequence], and results on the same text.

    Scores and labels are None where it has no heads.
    """

    losses: np.ndarray
    scores: HeadScores | None
    labels: HeadLabels | None
    effects: ComponentEffects


def compare(
    models: Sequence[HookedGPT | str | Path],
    out: str | Path | None = None,
    *,
    text: str | Path | None = None,
    sequences: int = 32,
    untrained: bool = False,
    seed: int = 0,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Path:
    """Writes a page that shows models side by side, on the same text; returns its path.

    Args:
        models: two or more models, or their folders; checkpoints are folders too.
        out: where to write; by default `reports/comparison`.
        text: a UTF-8 file; by default the text that the first was trained on.
        sequences: how many, of the shortest context among the models.
        untrained: whether to add a model of the first one's shape, untrained.
        seed: of all that is sampled.
        device: where to run models that are given as folders.
        progress: called with (models done, of how many).

    Raises:
        ConfigError: fewer than two different models.
        CheckpointError: a folder holds no model.
        TextError, TokenError: no text, or one that a model cannot read, or too short a one.
        OutputError: the folder cannot be written.
    """
    loaded = _loaded(models, device)
    if untrained and loaded:
        first = next(iter(loaded.values()))
        fresh = HookedGPT(first.config, first.tokenizer, seed=UNTRAINED_SEED + seed)
        loaded["untrained"] = fresh.to(first.device, first.dtype).eval()
    if len(loaded) < 2:
        raise ConfigError(
            f"a comparison needs two or more different models, or untrained=True; got {len(loaded)}"
        )
    n_ctx = min(gpt.config.n_ctx for gpt in loaded.values())
    name, passages = _passages(models[0], text, n_ctx, sequences)
    found: dict[str, Compared] = {}
    for done, (path, gpt) in enumerate(loaded.items(), 1):
        found[path] = _measured(gpt, passages, seed)
        if progress is not None:
            progress(done, len(loaded))
    return write_comparison(Path("reports") / "comparison" if out is None else out, found, name)


def _loaded(
    models: Sequence[HookedGPT | str | Path], device: str | torch.device
) -> dict[str, HookedGPT]:
    """Different models by their names; folders by their paths."""
    loaded: dict[str, HookedGPT] = {}
    for number, model in enumerate(models, 1):
        if not isinstance(model, HookedGPT):
            if str(model) not in loaded:
                loaded[str(model)] = HookedGPT.from_pretrained(model, device)
        elif not any(model is other for other in loaded.values()):
            taken = not model.name or model.name in loaded
            loaded[f"model {number}" if taken else model.name] = model
    return loaded


def _passages(
    first: HookedGPT | str | Path, text: str | Path | None, n_ctx: int, n: int
) -> tuple[str, list[str]]:
    """The name of the text, and passages of it that fit every model."""
    if text is not None:
        return Path(text).name, cut(load_corpus(path=text).text, n_ctx, n)
    corpus = corpus_of(first)
    return corpus.name, corpus.passages(n_ctx, n)


def _measured(model: HookedGPT, passages: list[str], seed: int) -> Compared:
    tokens = model.to_tokens(passages)
    loss = model(tokens, "loss", loss_per_token=True).mean(1)
    scores = head_scores(model, tokens, seed=seed) if model.config.n_layers else None
    return Compared(
        losses=to_numpy(loss),
        scores=scores,
        labels=None if scores is None else label_heads(model, scores, seed=seed),
        effects=component_effects(
            model, tokens, by="head", ablate="mean", metric="log_prob", seed=seed
        ),
    )


def write_comparison(folder: str | Path, models: Mapping[str, Compared], text: str) -> Path:
    """Writes a page that shows the models side by side; returns its path.

    Args:
        folder: where.
        models: name → what is known of it, at least two.
        text: the name of the text.

    Raises:
        ConfigError: fewer than two models.
        OutputError: the folder cannot be written.
    """
    if len(models) < 2:
        raise ConfigError(f"a comparison needs at least two models; got {len(models)}")
    names, base = list(models), next(iter(models.values())).losses
    summary = pd.DataFrame([_row(name, one, base) for name, one in models.items()])
    glance = (
        f"The same {len(base)} sequences of {text} for all. The difference is to {names[0]}, "
        "paired by sequence, with a 95 % interval."
    )
    effects = total_effects(models)
    sections = [
        StudySection(heading="At a glance", text=[glance], tables={"summary": summary}),
        StudySection(
            heading="What each part is needed for",
            figures=[_effects_figure(effects, len(base))],
            tables={"effects": effects.reset_index()},
        ),
        *(_heads(number, name, one) for number, (name, one) in enumerate(models.items())
          if one.scores is not None),
    ]  # fmt: skip
    lead = "; ".join(f"{row.model}: {row.loss:.3f} nats" for row in summary.itertuples())
    return write_study(folder, f"{' · '.join(names)}", f"Loss on {text}. {lead}.", sections)


def _row(name: str, one: Compared, base: np.ndarray) -> dict[str, object]:
    loss, low, high = mean_interval(one.losses)
    difference = mean_interval(one.losses - base)
    row: dict[str, object] = {
        "model": name, "loss": float(loss), "low": float(low), "high": float(high),
        "difference": float(difference[0]), "difference_low": float(difference[1]),
        "difference_high": float(difference[2]), "n": len(one.losses),
    }  # fmt: skip
    if one.scores is not None and one.labels is not None:
        row["mean entropy"] = float(one.scores.of("entropy").mean())
        row["best previous"] = float(one.scores.of("previous").max())
        has = "induction" in one.scores.scores
        row["best induction"] = float(one.scores.of("induction").max()) if has else np.nan
        row["confirmed names"] = int(one.labels.confirmed.sum())
    return row


def total_effects(models: Mapping[str, Compared]) -> pd.DataFrame:
    """Returns the mean total effect, nats, of each part [component] in each model [model].

    NaN where a model has no such part.
    """
    tables = [one.effects.to_frame().assign(model=name) for name, one in models.items()]
    table = pd.concat(tables).pivot_table(
        index="component", columns="model", values="total", sort=False
    )
    wide: pd.DataFrame = table[list(models)]
    return wide


def _effects_figure(effects: pd.DataFrame, n: int) -> Shown:
    series = tuple(
        Series(name=str(name), values=effects[name].to_numpy(), colour=of_series(number),
               marker=MARKERS[number % len(MARKERS)])
        for number, name in enumerate(effects.columns)
    )  # fmt: skip
    dots = Dots(names=tuple(map(str, effects.index)), series=series, label="total effect (nats)")
    caption = (
        "Total effect of replacing each part by its mean on log p of the true next character "
        f"(nats). n = {n} sequences."
    )
    return Shown(name="effects", caption=caption, mark=dots)


def _heads(number: int, name: str, one: Compared) -> StudySection:
    """What a model's heads look at; its files are told from those of the others by a number."""
    assert one.scores is not None
    assert one.labels is not None
    stem = f"model-{number}"
    shown = [*one.scores.shown(), *one.labels.shown()]
    return StudySection(
        heading=f"Heads of {name}",
        figures=[figure.called(f"{stem}-{figure.name}") for figure in shown],
        tables={f"{stem}-labels": one.labels.to_frame()},
    )
