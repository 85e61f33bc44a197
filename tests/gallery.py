"""Marks of the sizes that analyses of a real model give, with random numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from interp.figures.marks import Bars, Dots, HeatMap, Lines, Mark, Panels, Points, Series, Span

LINE = (
    "model gpt-small (1a2b3c4d) · text “First␣Citizen:⏎Before␣we…” · "
    "n = 16 sequences × 127 positions · seed 0"
)
TEXT = (
    "First␣Citizen:⏎Before␣we␣proceed␣any␣further,␣hear␣me␣speak.⏎⏎All:⏎Speak,␣speak.⏎⏎First␣"
    "Citizen:⏎You␣are␣all␣resolved␣rather␣to␣die␣than␣to␣famish"
)
COMPONENTS = (
    "embed", "pos_embed", *(f"L{i}.H{j}" for i in range(4) for j in range(6)),
    *(f"L{i}.mlp" for i in range(4)), "b_O", "b_U", "b_V",
)  # fmt: skip
ARMS = (
    ("q·k / √d", "blue", "o"), ("q·k", "vermilion", "s"), ("q·k / d", "green", "^"),
    ("learned scale", "sky", "v"), ("QK-norm", "pink", "D"), ("q·k, start matched", "amber", "P"),
)  # fmt: skip


def contributions() -> HeatMap:
    values = np.random.default_rng(0).normal(size=(33, 127)) ** 3
    high = float(np.abs(values).max())
    return HeatMap(
        values=values, rows=COMPONENTS, columns=tuple(TEXT[:127]), low=-high, high=high,
        label="contribution to logit − mean logit (logits)", scale="root",
        column_label="token predicted at each position", columns_are="positions",
    )  # fmt: skip


def attention(n: int = 127, heads: int = 4) -> Panels:
    marks = []
    for i in range(heads**2):
        scores = np.exp(2 * np.random.default_rng(i).normal(size=(n, n))) * np.tri(n)
        weights = np.where(np.tri(n) > 0, scores / scores.sum(1, keepdims=True), np.nan)
        marks.append(
            HeatMap(
                values=weights, rows=tuple(TEXT[:n]), columns=tuple(TEXT[:n]), low=0, high=1,
                title=f"L{i // heads}.H{i % heads}", label="attention weight", palette="weight",
                scale="root", row_label="query position (attending)",
                column_label="key position (attended to)", columns_are="positions",
            )
        )  # fmt: skip
    return Panels(marks=tuple(marks), columns=heads, share=True)


def one_head() -> Mark:
    return attention(40, 1).marks[0]


def lens() -> HeatMap:
    values = -2 * np.random.default_rng(0).exponential(size=(9, 127))
    numbers = tuple(tuple(TEXT[(7 * i + j) % 127] for j in range(127)) for i in range(9))
    return HeatMap(
        values=values, rows=tuple(f"L{i}.resid_mid" for i in range(9)), columns=tuple(TEXT[:127]),
        label="log-probability of\nthat token (nats)", low=float(values.min()), high=0,
        palette="weight", numbers=numbers, columns_are="positions", column_label="token predicted",
    )  # fmt: skip


def scores() -> HeatMap:
    values = np.random.default_rng(0).uniform(-0.3, 1, size=(9, 16))
    rows = ("previous", "first", "self", "induction", "duplicate", "same line", "start of word",
            "vowel", "punctuation")  # fmt: skip
    return HeatMap(
        values=values, rows=rows, columns=tuple(f"L{i}.H{j}" for i in range(4) for j in range(4)),
        label="(score − uniform) / (1 − uniform)", low=-1, high=1, column_breaks=(4, 8, 12),
        numbers=tuple(tuple(f"{x:.2f}" if abs(x) > 0.1 else "" for x in row) for row in values),
    )  # fmt: skip


def patching() -> HeatMap:
    values = 0.4 * np.random.default_rng(0).normal(size=(4, 24))
    return HeatMap(
        values=values, rows=("L0", "L1", "L2", "L3"), low=-1, high=1, strong_columns=(4, 5),
        columns=tuple(f"{a}\n{b}" for a, b in zip(TEXT[:24], TEXT[3:27], strict=True)),
        label="share of the\ndifference moved", title="denoise: c over e after position 23",
        column_label="position (above: clean, below: corrupted)",
    )  # fmt: skip


def paths() -> HeatMap:
    values = np.random.default_rng(0).normal(size=(3, 5))
    values[0, 1] = np.nan
    return HeatMap(
        values=values, rows=("L0.H1", "L0.H2", "L1.H0"), row_label="head taken away",
        columns=("L1.H0.q", "L1.H0.k", "L2.H1.v", "L3.mlp", "logits"), column_label="reader",
        label="loss that the path carries (nats per token)", low=-2, high=2,
        numbers=tuple(tuple("" if np.isnan(x) else f"{x:.2g}" for x in row) for row in values),
    )  # fmt: skip


def bars() -> Bars:
    values = np.random.default_rng(0).normal(size=40) ** 3
    names = (*COMPONENTS, *(f"L{i}.N{37 * i}" for i in range(6)), "1,234 others")
    return Bars(names=names, values=values, label="contribution to logit − mean logit (logits)",
                title="after d, towards e: they sum to +2.31")  # fmt: skip


def _series(name: str, colour: str, marker: str, seed: int, n: int = 21) -> Series:
    values = np.random.default_rng(seed).normal(size=n)
    values *= np.array([300, 40, *[0.02] * 7, *[1] * (n - 9)])
    error = 0.3 * np.abs(values) + 0.01
    return Series(name=name, values=values, low=values - error, high=values + error, colour=colour,
                  marker=marker, line=False)  # fmt: skip


def effects() -> Dots:
    return Dots(
        names=COMPONENTS[:21], label="effect on log_prob (nats)", scale="symlog",
        series=(_series("direct", "for", "o", 0), _series("total", "blue", "s", 1)),
        linear_within=0.01,
    )  # fmt: skip


def labels() -> Dots:
    matching = _series("matching behaviour", "blue", "o", 0, 12)
    return Dots(
        names=tuple(f"L{i // 4}.H{i % 4}  induction" for i in range(12)), strong=(0, 3),
        series=(matching, _series("control", "amber", "s", 1, 12)),
        label="loss without the head, less with it (nats per token)",
    )  # fmt: skip


def _points(layer: int) -> Points:
    rng = np.random.default_rng(layer)
    x = rng.normal(size=7) * np.array([10, 1, 0.1, 0.05, 0.02, 3, 0.5])
    y = x + 0.3 * np.abs(x) * rng.normal(size=7)
    error = 0.3 * np.abs(x)
    return Points(
        names=(*(f"L{layer}.H{i}" for i in range(6)), f"L{layer}.mlp"), x=x, y=y, x_low=x - error,
        x_high=x + error, y_low=y - error, y_high=y + error, ringed=(1,), scale="symlog",
        title=f"layer {layer}: rank correlation 0.90\n[0.52, 0.98], 7 components",
        x_label="direct effect on log_prob (nats)", y_label="total effect", linear_within=0.01,
    )  # fmt: skip


def points() -> Panels:
    return Panels(marks=tuple(map(_points, range(4))), columns=4)


def one_layer() -> Points:
    return _points(0)


def _arms(title: str, theory: bool) -> Lines:
    x = np.array([8, 16, 32, 64])
    series = [
        Series(name=name, values=0.9 - 0.05 * i + 0 * x, low=0.86 - 0.05 * i + 0 * x,
               high=0.94 - 0.05 * i + 0 * x, colour=colour, marker=marker)
        for i, (name, colour, marker) in enumerate(ARMS)
    ]  # fmt: skip
    if theory:
        series += [Series(name=name, values=0.88 - 0.05 * i + 0 * x, colour=colour, dashed=True)
                   for i, (name, colour, _) in enumerate(ARMS)]  # fmt: skip
    return Lines(
        title=title, x=x, series=tuple(series), x_label="d_head", x_scale="log2", y_low=0,
        y_label="entropy / ln(visible keys)", ticks=tuple((d, str(d)) for d in x.tolist()),
        y_high=1.03, dodge=True,
    )  # fmt: skip


def sweep() -> Panels:
    return Panels(marks=(_arms("step 0; dashed: theory", True), _arms("step 2000", False)),
                  columns=2, share=True)  # fmt: skip


def _gradients(width: int) -> Lines:
    at = np.arange(12)
    series = tuple(
        Series(name=name, values=10.0 ** (-3 - i - 0.1 * at), low=10.0 ** (-5 - i - 0.1 * at),
               high=10.0 ** (-2 - i - 0.1 * at), colour=colour, marker=marker)
        for i, (name, colour, marker) in enumerate(ARMS[:3])
    )  # fmt: skip
    return Lines(title=f"d_head = {width}", x=at, series=series, x_label="step (log-spaced)",
                 y_label="|entry of ∂L/∂W_Q| (nats per unit)", y_scale="log",
                 ticks=tuple((float(i), str(3 * 2**i)) for i in at))  # fmt: skip


def gradients() -> Panels:
    return Panels(marks=tuple(map(_gradients, (8, 16, 32, 64))), columns=4, share=True)


def formation() -> Panels:
    steps = np.unique(np.geomspace(1, 5000, 30).astype(int))
    loss, start = 4 / (1 + steps / 300) + 0.5, np.full(len(steps), 4.0)
    span, x_label = (Span(at=600, low=500, high=800),), "step"
    named = (Span(at=600, low=500, high=800, name="change point, 95 % interval"),)
    colours = ("blue", "vermilion", "green", "pink")
    losses = (
        Series(name="from the second copy on", values=loss, low=0.9 * loss, high=1.1 * loss),
        Series(name="in the first copy", values=start, low=0.97 * start, high=1.03 * start,
               colour="grey"),
    )  # fmt: skip
    heads = tuple(
        Series(name=f"layer {i // 4}", values=(i + 1) / 16 * (steps / 5000) ** 0.3,
               colour=colours[i // 4], faint=True) for i in range(16)
    )  # fmt: skip
    paths = tuple(
        Series(name=f"L0.H{i} → L1.H{i}.k", values=(0.01 * i - 0.3) * (steps / 5000) ** 0.3,
               colour=colours[i], tag=f"L0.H{i}") for i in range(4)
    )  # fmt: skip
    return Panels(
        marks=(
            Lines(x=steps, series=losses, x_label=x_label, y_label="loss (nats per token)",
                  y_scale="log", spans=named),
            Lines(x=steps, series=heads, x_label=x_label, y_label="previous score", y_low=0,
                  y_high=1.02, spans=span),
            Lines(x=steps, series=paths, x_label=x_label, y_label="loss carried (nats)", zero=True,
                  spans=span),
        ),
        columns=2,
    )  # fmt: skip


def history() -> Lines:
    steps = np.arange(0, 5001, 250)
    loss = 4 * np.exp(-steps / 900) + 1.5
    return Lines(
        x=steps, x_label="step", y_label="loss (nats per character)",
        series=(
            Series(name="training batches since the last point", values=loss, colour="grey",
                   marker="o", dashed=True),
            Series(name="whole validation split", values=loss + 0.1, marker="o", tag="1.615"),
        ),
    )  # fmt: skip


def over_the_passage() -> Lines:
    values = np.random.default_rng(0).normal(size=127)
    return Lines(
        x=np.arange(127), series=(Series(name="L1.H2", values=values, marker="o"),),
        x_label="token predicted at each position", y_label="contribution (logits)",
        ticks=tuple((float(at), text) for at, text in enumerate(TEXT[:127])), zero=True,
        title="L1.H2",
    )  # fmt: skip


GALLERY: dict[str, Callable[[], Mark]] = {
    made.__name__: made
    for made in (contributions, attention, one_head, lens, scores, patching, paths, bars, effects,
                 labels, points, one_layer, sweep, gradients, formation, history, over_the_passage)
}  # fmt: skip
