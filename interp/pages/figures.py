"""Results to matplotlib figures. A figure function takes a result and returns a `Figure`; it
computes nothing and touches no global state. The style is that of `interp.figures.style`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from interp.analysis.causal.effects import ComponentEffects
from interp.analysis.causal.patching import Patching
from interp.analysis.causal.shapley import ShapleyValues
from interp.analysis.circuits.paths import PathEffects
from interp.analysis.direct.attribution import Attribution, LogitAttribution, StreamAttribution
from interp.analysis.direct.lens import LogitLens
from interp.analysis.heads.formation_results import Formation
from interp.analysis.heads.label_results import HeadLabels
from interp.analysis.heads.patterns import AttentionPatterns
from interp.analysis.heads.score_results import HeadScores
from interp.analysis.scaling.rescaled import AttentionScaling
from interp.analysis.scaling.sweep import ScalingSweep
from interp.errors import ConfigError
from interp.figures.old import (
    BLUE,
    GREY,
    ORANGE,
    PURPLE,
    glyph,
    log_scale,
    png,
    save_figure,
    signed_bars,
    style,
)
from interp.pages.effect_figures import (
    effects_bars,
    effects_scatter,
    patching_map,
    shapley_bars,
)
from interp.pages.head_figures import (
    figures_of_heads,
    formation_curves,
    head_labels_bars,
    head_scores_map,
    path_effects_map,
)
from interp.pages.scaling_figures import (
    figures_of_scaling,
    scaling_curves,
    sweep_entropy,
    sweep_gradients,
    sweep_losses,
)
from interp.results.result import Result
from interp.training.history import HistoryRow

__all__ = [
    "BLUE",
    "GREY",
    "ORANGE",
    "PURPLE",
    "attention_grid",
    "contribution_bars",
    "contribution_map",
    "effects_bars",
    "effects_scatter",
    "figures_of",
    "formation_curves",
    "head_labels_bars",
    "head_scores_map",
    "lens_map",
    "log_scale",
    "loss_curve",
    "patching_map",
    "path_effects_map",
    "png",
    "save_figure",
    "scaling_curves",
    "shapley_bars",
    "style",
    "sweep_entropy",
    "sweep_gradients",
    "sweep_losses",
]

MOST_ROWS = 40  # components drawn one by one; the others are drawn as their sum
METRICS = {
    "centered": "logit − mean logit",
    "foil": "logit − foil's logit",
    "probability": "logit − Σ p·logit",
    "raw": "logit",
}


def loss_curve(rows: Sequence[HistoryRow]) -> Figure:
    """Returns training and validation loss against the step.

    Raises:
        ConfigError: no rows.
    """
    if not rows:
        raise ConfigError("there is no training history to draw")
    with style():
        figure = Figure(figsize=(5.2, 3.0))
        axes = figure.subplots()
        steps = [row.step for row in rows]
        train = [row.train_loss for row in rows]
        validation = [row.validation_loss for row in rows]
        axes.plot(
            steps,
            train,
            "o--",
            color=GREY,
            markersize=3,
            label="training batches since the last point",
        )
        axes.plot(steps, validation, "o-", color=BLUE, markersize=3, label="whole validation split")
        axes.annotate(f"{validation[-1]:.3f}", (steps[-1], validation[-1]), (0, 7),
                      textcoords="offset points", ha="right", color=BLUE)  # fmt: skip
        axes.set_xlabel("step")
        axes.set_ylabel("loss (nats per character)")
        axes.set_xlim(0, steps[-1] * 1.02)
        axes.legend(frameon=False)
        axes.grid(axis="y", alpha=0.25)
        return figure


def attention_grid(result: AttentionPatterns) -> Figure:
    """Returns the pattern of every head over the passage, one row a layer."""
    layers, heads, n, _ = result.patterns.shape
    hidden = np.triu(np.ones((n, n), dtype=bool), k=1)
    with style():
        figure = Figure(figsize=(1.2 + 1.9 * heads, 0.9 + 1.9 * layers))
        grid = figure.subplots(layers, heads, squeeze=False, sharex=True, sharey=True)
        for layer in range(layers):
            for head in range(heads):
                axes = grid[layer][head]
                image = axes.imshow(
                    np.ma.masked_array(result.patterns[layer, head], hidden),
                    cmap="cividis", norm=PowerNorm(0.5, 0, 1), interpolation="nearest",
                )  # fmt: skip
                axes.set_title(f"L{layer}.H{head}")
        figure.supxlabel("key position (attended to)")
        figure.supylabel("query position (attending)")
        bar = figure.colorbar(image, ax=grid, shrink=0.5, aspect=30)
        bar.set_label("attention weight (colours on a square-root scale)")
        return figure


def contribution_map(result: Attribution, sequence: int = 0) -> Figure:
    """Returns contributions as a position-by-component map of one sequence.

    Of more than 40 components, the largest are drawn one by one and the others as their sum.
    """
    names, values = _rows_to_draw(result, result.values[:, sequence])
    limit = float(np.abs(values).max()) or 1.0
    n_components, n_pos = values.shape
    with style():
        figure = Figure(figsize=(1.9 + 0.088 * n_pos + 0.8, 0.9 + 0.16 * n_components))
        axes = figure.subplots()
        image = axes.imshow(
            values, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest"
        )
        axes.set_yticks(range(n_components), names, fontsize=7)
        _label_positions(axes, result, sequence)
        bar = figure.colorbar(image, ax=axes, pad=0.01)
        bar.set_label(f"contribution to\n{_what(result)}", fontsize=7)
        return figure


def contribution_bars(result: Attribution, sequence: int = 0, pos: int = -1) -> Figure:
    """Returns the signed contributions at one position, in the order of the model.

    Of more than 40 components, the largest are drawn one by one and the others as their sum.
    """
    names, rows = _rows_to_draw(result, result.values[:, sequence, pos][:, None])
    values = rows[:, 0]
    with style():
        figure = Figure(figsize=(5.2, 0.9 + 0.19 * len(values)))
        axes = figure.subplots()
        signed_bars(axes, names, values, digits=2)
        axes.set_xlabel(f"contribution to {_what(result)}")
        at = f"after {glyph(result.characters, int(result.tokens[sequence, pos]))}"
        if isinstance(result, LogitAttribution):
            target = glyph(result.characters, int(result.targets[sequence, pos]))
            at += f", towards {target}"
        axes.set_title(f"{at}: they sum to {result.total[sequence, pos]:+.2f}")
        return figure


def _rows_to_draw(result: Attribution, values: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Names and values [component, pos], in order; the smallest added up if there are too many."""
    names = list(result.components)
    if len(names) <= MOST_ROWS:
        return names, values
    kept = np.sort(np.argsort(-np.abs(values).mean(1), kind="stable")[: MOST_ROWS - 1])
    others = np.delete(values, kept, axis=0)
    together = f"{len(others):,} others"
    return [*(names[i] for i in kept), together], np.vstack((values[kept], others.sum(0)))


def _what(result: Attribution) -> str:
    if isinstance(result, LogitAttribution):
        return f"{METRICS[result.metric]} (logits)"
    return f"what {result.into} reads" if isinstance(result, StreamAttribution) else "the total"


def lens_map(result: LogitLens, sequence: int = 0) -> Figure:
    """Returns the log-probability of the true next token at each depth; letters: the likeliest."""
    values = result.log_prob[:, sequence]
    n_depths, n_pos = values.shape
    low = float(values.min())
    with style():
        figure = Figure(figsize=(1.9 + 0.088 * n_pos + 0.8, 1.1 + 0.22 * n_depths))
        axes = figure.subplots()
        image = axes.imshow(
            values[::-1], cmap="cividis", vmin=low, vmax=0, aspect="auto", interpolation="nearest"
        )
        for depth in range(n_depths):
            for pos in range(n_pos):
                letter = glyph(result.characters, int(result.top[depth, sequence, pos]))
                colour = "black" if values[depth, pos] > low / 2 else "white"
                axes.text(pos, n_depths - 1 - depth, letter, fontsize=5, color=colour,
                          ha="center", va="center")  # fmt: skip
        axes.set_yticks(range(n_depths), result.depths[::-1], fontsize=7)
        _label_positions(axes, result, sequence)
        bar = figure.colorbar(image, ax=axes, pad=0.01)
        bar.set_label("log-probability of the\ntrue next token (nats)")
        return figure


def figures_of(result: Result) -> dict[str, tuple[Figure, str]]:
    """Returns name → (figure, caption) of everything that is drawn of a result."""
    match result:
        case AttentionPatterns():
            n = result.patterns.shape[2]
            caption = (
                f"Attention patterns of all heads over one passage of n = {n} characters. The "
                "query at t predicts the character at t + 1; keys after it are masked (left empty)."
            )
            return {"attention": (attention_grid(result), caption)}
        case LogitAttribution():
            pos = int(result.total[0].argmax())
            over = (
                "Each component's direct contribution to the true next character, normalisation "
                f"frozen ({METRICS[result.metric]}); {_extent(result)}."
            )
            return _both(result, f"contributions-by-{result.by}", over, pos)
        case StreamAttribution():
            pos = int(np.abs(result.total[0]).argmax())
            over = (
                f"Each component's contribution to what {result.into} reads from the stream, "
                f"normalisation frozen; {_extent(result)}."
            )
            return _both(result, f"into-{result.into}-by-{result.by}", over, pos)
        case ComponentEffects():
            return _figures_of_effects(result)
        case ShapleyValues():
            n = result.values.shape[1] * result.values.shape[2]
            how = (
                "every set of components"
                if not result.permutations
                else f"{result.permutations} random orders, each also backwards"
            )
            caption = (
                f"Shapley values of {result.metric} through "
                f"{'re-runs of the model' if result.rerun else 'the final LayerNorm'} (absent: "
                f"{result.baseline}), from {how}; means over n = {n} positions. They sum to "
                "the metric with all components minus the metric with none."
            )
            return {"shapley": (shapley_bars(result), caption)}
        case AttentionScaling() | ScalingSweep():
            return figures_of_scaling(result)
        case Patching():
            n = result.values.shape[1]
            run, other = ("corrupted", "clean")[:: 1 if result.direction == "denoise" else -1]
            caption = (
                f"Patching {result.what} ({result.direction}): the {run} prompt is run with pieces "
                f"of the {other} run. 0: no change of the metric ({result.metric}, read at "
                f"position {result.position}); 1: as much as the whole other prompt. n = {n} pair"
                f"{'s' if n > 1 else ''} of prompts."
            )
            name = f"patching-{result.what}-{result.direction}".replace(" ", "-")
            return {name: (patching_map(result), caption)}
        case HeadScores() | HeadLabels() | PathEffects() | Formation():
            return figures_of_heads(result)
        case LogitLens():
            n_pos = result.log_prob.shape[2]
            caption = (
                f"Logit lens over n = {n_pos} positions of one passage: what the stream predicts "
                "at each depth, with LayerNorm statistics of its own. Letters are the likeliest "
                "character."
            )
            return {"logit-lens": (lens_map(result), caption)}
    raise ConfigError(f"no figure is known for a {type(result).__name__}")


def _label_positions(axes: Axes, result: Attribution | LogitLens, sequence: int) -> None:
    predicts = isinstance(result, LogitAttribution | LogitLens)
    tokens = result.targets if isinstance(result, LogitAttribution | LogitLens) else result.tokens
    tokens = tokens[sequence]
    if result.characters:
        labels = [glyph(result.characters, int(token)) for token in tokens]
        axes.set_xticks(range(len(tokens)), labels, fontsize=6)
        axes.tick_params(axis="x", length=0)
    axes.set_xlabel("token predicted at each position" if predicts else "token at each position")


def _extent(result: Attribution) -> str:
    error = float(result.completeness_error.max())
    return (
        f"n = {result.values.shape[2]} positions of one passage; rows miss the model's own values "
        f"by at most {error:.1e}"
    )


def _both(result: Attribution, name: str, over: str, pos: int) -> dict[str, tuple[Figure, str]]:
    at = f"The same at position {pos}, where the total is largest."
    return {
        name: (contribution_map(result), over),
        f"{name}-at-one-position": (contribution_bars(result, pos=pos), at),
    }


def _figures_of_effects(result: ComponentEffects) -> dict[str, tuple[Figure, str]]:
    n = result.direct.shape[1]
    draws = f", {result.draws} draws" if result.draws else ""
    how = (
        f"{result.ablate} ablation{draws}, reference: {result.reference}; metric: {result.metric}; "
        f"n = {n} sequences × {len(result.positions)} positions; bars: 95 % bootstrap-t over "
        f"sequences, seed {result.provenance.seed}"
    )
    name = f"effects-{result.ablate}-{result.metric}"
    bars = f"Direct and total effect of replacing each component ({how})."
    scatter = (
        "Direct against total effect, layer by layer; on the line the two are equal. Ringed: "
        f"intervals on different sides of zero ({how})."
    )
    return {
        name: (effects_bars(result), bars),
        f"{name}-by-layer": (effects_scatter(result), scatter),
    }
