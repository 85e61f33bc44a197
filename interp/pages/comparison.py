"""Several models beside each other, on the same text: seeds, checkpoints, trained and untrained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from interp.analysis.causal.effects import ComponentEffects
from interp.analysis.heads.label_results import HeadLabels
from interp.analysis.heads.score_results import HeadScores
from interp.errors import ConfigError
from interp.figures.style import style
from interp.pages import figures
from interp.pages.study import StudySection, write_study
from interp.results import intervals

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What is known of one model: its loss a sequence [sequence], and results on the same text."""

    losses: np.ndarray
    scores: HeadScores | None
    labels: HeadLabels | None
    effects: ComponentEffects


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
    names = list(models)
    n = len(models[names[0]].losses)
    first = models[names[0]].losses
    summary = pd.DataFrame([_row(name, one, first) for name, one in models.items()])
    effects = pd.concat([one.effects.to_frame().assign(model=name) for name, one in models.items()])
    wide = effects.pivot_table(index="component", columns="model", values="total", sort=False)
    sections = [
        StudySection(
            heading="At a glance",
            text=[
                f"The same {n} sequences of {text} for all. The difference is to {names[0]}, "
                "paired by sequence, with a 95 % interval."
            ],
            tables={"summary": summary},
        ),
        StudySection(
            heading="What each part is needed for",
            figures=[
                ("effects", draw_effects(wide), "Total effect of replacing each part by its mean "
                 f"on log p of the true next character (nats). n = {n} sequences.")
            ],
            tables={"effects": wide.reset_index()},
        ),
    ]  # fmt: skip
    for name, one in models.items():
        if one.scores is not None and one.labels is not None:
            drawn = figures.figures_of(one.scores) | figures.figures_of(one.labels)
            stem = _file_name(name, names)
            sections.append(
                StudySection(
                    heading=f"Heads of {name}",
                    figures=[(f"{stem}-{kind}", *pair) for kind, pair in drawn.items()],
                    tables={f"{stem}-labels": one.labels.to_frame()},
                )
            )
    lead = "; ".join(f"{row.model}: {row.loss:.3f} nats" for row in summary.itertuples())
    return write_study(folder, f"{' · '.join(names)}", f"Loss on {text}. {lead}.", sections)


def _file_name(name: str, names: Sequence[str]) -> str:
    return f"model-{names.index(name)}"


def _row(name: str, one: Compared, base: np.ndarray) -> dict[str, object]:
    loss, low, high = intervals.mean_interval(one.losses)
    difference = intervals.mean_interval(one.losses - base)
    row: dict[str, object] = {
        "model": name, "loss": float(loss), "low": float(low), "high": float(high),
        "difference": float(difference[0]), "difference_low": float(difference[1]),
        "difference_high": float(difference[2]),
    }  # fmt: skip
    if one.scores is not None and one.labels is not None:
        row["mean entropy"] = float(one.scores.of("entropy").mean())
        row["best previous"] = float(one.scores.of("previous").max())
        has = "induction" in one.scores.scores
        row["best induction"] = float(one.scores.of("induction").max()) if has else np.nan
        row["confirmed names"] = int(one.labels.confirmed.sum())
    return row


def draw_effects(wide: pd.DataFrame) -> Figure:
    """Returns a dot a model for each component's total effect."""
    with style():
        figure = Figure(figsize=(6.2, 1.3 + 0.2 * len(wide)))
        axes = figure.subplots()
        y = np.arange(len(wide))
        for i, name in enumerate(wide.columns):
            axes.plot(wide[name], y, "osD^vP"[i % 6], color=COLOURS[i % 6], markersize=4,
                      label=str(name), alpha=0.85)  # fmt: skip
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks(y, wide.index, fontsize=7)
        axes.set_ylim(len(wide) - 0.4, -0.6)
        axes.set_xlabel("total effect (nats)")
        axes.grid(axis="x", alpha=0.25)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper right",
                      ncols=min(3, len(wide.columns)), frameon=False)  # fmt: skip
        return figure
