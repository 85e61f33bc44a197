"""Results to matplotlib figures. A figure function takes a result and returns a `Figure`; it
computes nothing and touches no global state.

Contributions use a diverging scale, symmetric about zero and shared by all that is compared;
attention a sequential one from 0 to 1, with the masked half left empty. Both are safe for the
colour-blind (matplotlib's PuOr and cividis).
"""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager, get_font

from interp import files
from interp.analysis.attention import AttentionPatterns
from interp.analysis.attribution import LogitAttribution
from interp.analysis.lens import LogitLens
from interp.analysis.results import Result
from interp.errors import ConfigError
from interp.gpt.tokenizer import visible
from interp.training.history import HistoryRow

FONT = "DejaVu Sans"  # comes with matplotlib, and has ␣ and ⏎
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "font.family": FONT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "figure.constrained_layout.use": True,
    "text.parse_math": False,  # a $ is a character like any other
    "svg.hashsalt": "gpt-interp",
    "svg.fonttype": "path",
    "savefig.facecolor": "white",
}
ORANGE, PURPLE, BLUE, GREY = "#b35806", "#542788", "#0072b2", "#666666"
SCALARS = {
    "centered": "logit − mean logit",
    "foil": "logit − foil's logit",
    "probability": "logit − Σ p·logit",
    "raw": "logit",
}


@contextmanager
def style() -> Iterator[None]:
    """Applies the one style inside a `with` block only."""
    with mpl.rc_context(STYLE):
        yield


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


def contribution_map(result: LogitAttribution, sequence: int = 0) -> Figure:
    """Returns contributions as a position-by-component map of one sequence."""
    values = result.values[:, sequence]
    limit = float(np.abs(values).max()) or 1.0
    n_components, n_pos = values.shape
    with style():
        figure = Figure(figsize=(1.9 + 0.088 * n_pos + 0.8, 0.9 + 0.16 * n_components))
        axes = figure.subplots()
        image = axes.imshow(
            values, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest"
        )
        axes.set_yticks(range(n_components), result.components, fontsize=7)
        _label_positions(axes, result, sequence, "token predicted at each position")
        bar = figure.colorbar(image, ax=axes, pad=0.01)
        bar.set_label(f"contribution to {SCALARS[result.scalar]}\n(logits)")
        return figure


def contribution_bars(result: LogitAttribution, sequence: int = 0, pos: int = -1) -> Figure:
    """Returns the signed contributions at one position, in the order of the model."""
    values = result.values[:, sequence, pos]
    with style():
        figure = Figure(figsize=(5.2, 0.9 + 0.19 * len(values)))
        axes = figure.subplots()
        colours = [ORANGE if value > 0 else PURPLE for value in values]
        axes.barh(range(len(values)), values, color=colours, height=0.75)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks(range(len(values)), result.components, fontsize=7)
        axes.set_ylim(len(values) - 0.4, -0.6)
        span = float(np.abs(values).max()) or 1.0
        axes.set_xlim(min(values.min(), 0) - 0.2 * span, max(values.max(), 0) + 0.2 * span)
        for i, value in enumerate(values):
            side = "left" if value >= 0 else "right"
            offset = (3 if value >= 0 else -3, 0)
            axes.annotate(f"{value:+.2f}", (value, i), offset, textcoords="offset points",
                          ha=side, va="center", fontsize=6.5, color=GREY)  # fmt: skip
        axes.set_xlabel(f"contribution to {SCALARS[result.scalar]} (logits)")
        before = _character(result, int(result.tokens[sequence, pos]))
        target = _character(result, int(result.targets[sequence, pos]))
        axes.set_title(
            f"after {before}, towards {target}: they sum to {result.total[sequence, pos]:+.2f}"
        )
        return figure


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
                letter = _character(result, int(result.top[depth, sequence, pos]))
                colour = "black" if values[depth, pos] > low / 2 else "white"
                axes.text(pos, n_depths - 1 - depth, letter, fontsize=5, color=colour,
                          ha="center", va="center")  # fmt: skip
        axes.set_yticks(range(n_depths), result.depths[::-1], fontsize=7)
        _label_positions(axes, result, sequence, "true next token at each position")
        bar = figure.colorbar(image, ax=axes, pad=0.01)
        bar.set_label("log-probability of the\ntrue next token (nats)")
        return figure


def save_figure(figure: Figure, stem: Path) -> None:
    """Writes `stem`.png (300 dpi) and `stem`.svg; the same figure gives the same bytes."""
    files.write_file(stem.with_suffix(".png"), lambda path: path.write_bytes(png(figure, 300)))
    out = io.BytesIO()
    with style():
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    files.write_file(stem.with_suffix(".svg"), lambda path: path.write_bytes(out.getvalue()))


def png(figure: Figure, dpi: int) -> bytes:
    """Returns the figure as PNG bytes."""
    out = io.BytesIO()
    with style():
        figure.savefig(out, format="png", dpi=dpi, metadata={"Software": None})
    return out.getvalue()


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
            n_pos = result.values.shape[2]
            pos = int(result.total[0].argmax())
            error = float(result.completeness_error.max())
            over = (
                "Each component's direct contribution to the true next character, normalisation "
                f"frozen ({SCALARS[result.scalar]}); n = {n_pos} positions of one passage; rows "
                f"miss the model's own logits by at most {error:.1e}."
            )
            at = f"The same at position {pos}, where the total is largest."
            return {
                f"contributions-by-{result.by}": (contribution_map(result), over),
                f"contributions-by-{result.by}-at-one-position": (
                    contribution_bars(result, pos=pos),
                    at,
                ),
            }
        case LogitLens():
            n_pos = result.log_prob.shape[2]
            caption = (
                f"Logit lens over n = {n_pos} positions of one passage: what the stream predicts "
                "at each depth, with LayerNorm statistics of its own. Letters are the likeliest "
                "character."
            )
            return {"logit-lens": (lens_map(result), caption)}
    raise ConfigError(f"no figure is known for a {type(result).__name__}")


def _character(result: LogitAttribution | LogitLens, token: int) -> str:
    if not result.characters:
        return str(token)
    glyph = visible(result.characters[token])
    return glyph if all(ord(c) in _drawable() for c in glyph) else "□"


@functools.cache
def _drawable() -> frozenset[int]:
    """The code points that the figures' font has."""
    return frozenset(get_font(fontManager.findfont(FONT)).get_charmap())


def _label_positions(
    axes: Axes, result: LogitAttribution | LogitLens, sequence: int, what: str
) -> None:
    targets = result.targets[sequence]
    if result.characters:
        labels = [_character(result, int(token)) for token in targets]
        axes.set_xticks(range(len(targets)), labels, fontsize=6)
        axes.tick_params(axis="x", length=0)
    axes.set_xlabel(what)
