"""One mark of every kind, with everything that it can say, for tests of what draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import torch

import interp
from interp.figures.marks import (
    Bars,
    Dots,
    HeatMap,
    Lines,
    Mark,
    Panels,
    Points,
    Series,
    Span,
)
from interp.results.shown import Shown

HEADS = ("L0.H0", "L0.H1", "L0.H2", "L1.H0", "L1.H1", "L1.H2")
NAN = float("nan")


def characters(n: int) -> tuple[str, ...]:
    return tuple(("the cat␣sat⏎on'\"<é😀" * 40)[:n])


def signed_map(n: int = 128) -> HeatMap:
    values = np.sin(np.outer(np.arange(1, 17), np.arange(n))) * np.linspace(3, 0.01, n)
    values[2, 3] = NAN
    heads = (f"L{i // 6}.H{i % 6}" for i in range(12))
    rows = (*heads, "L0.mlp", "L1.mlp", "embed", "b_U")
    return HeatMap(
        values=values, rows=rows, columns=characters(n), label="contribution (logits)", low=-2.0,
        high=2.0, row_label="component", column_label="position: the character there",
        scale="root", row_breaks=(6, 12), columns_are="positions",
    )  # fmt: skip


def numbers_map() -> HeatMap:
    values = np.arange(24.0).reshape(4, 6) / 24
    numbers = tuple(tuple(f"{v:.2f}" for v in row) for row in values)
    return HeatMap(
        values=values, rows=("duplicate", "previous", "induction", "first"), columns=HEADS,
        label="score", low=0.0, high=1.0, palette="weight", numbers=numbers, column_label="head",
        row_label="what it looks at", strong_columns=(1, 4), column_breaks=(3,),
    )  # fmt: skip


def attention_map(head: str, n: int = 48) -> HeatMap:
    weights = np.tril(np.random.default_rng(len(head)).random((n, n)) ** 4)
    weights = weights / weights.sum(1, keepdims=True)
    weights[np.triu_indices(n, 1)] = NAN
    return HeatMap(
        title=head, values=weights, rows=characters(n), columns=characters(n), label="weight",
        low=0.0, high=1.0, palette="weight", row_label="query", column_label="key",
        columns_are="positions", scale="root",
    )  # fmt: skip


def paths_map() -> HeatMap:
    names = tuple(f"L{i // 8}.H{i % 8}.{kind}" for i in range(16) for kind in "qkv")
    values = np.random.default_rng(0).standard_normal((16, 48)) ** 3
    values[8:, :24] = NAN
    return HeatMap(
        values=values, rows=tuple(f"L{i // 8}.H{i % 8}" for i in range(16)), columns=names,
        label="effect (nats)", low=-9.0, high=9.0, scale="symlog", row_label="sender",
        column_label="receiver",
    )  # fmt: skip


def bars() -> Bars:
    values = np.array([2.31, -0.4, 0.02, NAN, -1.7, 0.6, 0.0, -0.001])
    return Bars(names=(*HEADS, "embed", "L0.b_O"), values=values, label="contribution (logits)")


def dots() -> Dots:
    total = np.array([1.2, -0.004, 0.03, 0.5, NAN, 0.0002])
    direct = total / 3
    return Dots(
        names=HEADS,
        series=(
            Series(name="total", values=total, low=total - 0.1, high=total + 0.2, marker="o"),
            Series(name="direct", values=direct, low=direct - 0.05, high=direct + 0.05,
                   colour="vermilion", marker="D"),
        ),
        label="effect on log_prob of the true next character (nats)",
        scale="symlog", linear_within=0.001, strong=(0, 3),
    )  # fmt: skip


def no_dots() -> Dots:
    return Dots(names=(), series=(Series(name="score", values=np.zeros(0)),), label="score",
                empty="no score stands above its nulls")  # fmt: skip


def points() -> Points:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.standard_normal(30) * 0.01, [0.9, 0.5, -0.3, 0.1]])
    y = x * 1.3 + rng.standard_normal(34) * 0.02
    names = (*(f"L{i // 6}.H{i % 6}" for i in range(30)), "embed", "L0.mlp", "L1.mlp", "b_U")
    return Points(
        names=names, x=x, y=y, x_low=x - 0.02, x_high=x + 0.02, y_low=y - 0.05, y_high=y + 0.05,
        x_label="direct effect (nats)", y_label="total effect (nats)", ringed=(31, 2),
        scale="symlog", linear_within=0.01,
    )  # fmt: skip


def loss_lines() -> Lines:
    step = np.array([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], dtype=float)
    loss = 4.1 * step**-0.15
    return Lines(
        x=step,
        series=(
            Series(name="validation", values=loss, low=loss - 0.1, high=loss + 0.1),
            Series(name="training", values=loss - 0.06, colour="vermilion"),
            Series(name="", tag="bigram", values=np.full(10, 2.5), colour="grey", dashed=True),
            Series(name="", tag="trigram", values=np.full(10, 2.47), colour="grey", dashed=True),
            Series(name="", tag="4-gram", values=np.full(10, 2.43), colour="grey", dashed=True),
        ),
        x_label="step", y_label="loss (nats per character)", x_scale="log",
        spans=(Span(at=60.0, low=40.0, high=90.0, name="change"), Span(at=300.0, name="end")),
    )  # fmt: skip


def dodged_lines() -> Lines:
    x = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    series = tuple(
        Series(name=name, values=np.array([0.1, 0.4, NAN, 0.8, 1.0]) * f, low=x * 0.1 * f,
               high=x * 0.3 * f, colour=colour, marker=marker, line=line)
        for name, f, colour, marker, line in (("one", 1.0, "blue", "o", True),
                                              ("two", 0.7, "green", "s", False),
                                              ("three", -0.4, "pink", "^", False))
    )  # fmt: skip
    return Lines(
        x=x, series=series, x_label="scores multiplied by", y_label="change of loss (nats)",
        ticks=((0, "0"), (1, "1/4"), (2, "1/2"), (3, "1 (as it is)"), (4, "2")), zero=True,
        dodge=True,
    )  # fmt: skip


def head_lines(title: str = "", f: float = 1.0) -> Lines:
    x = np.array([0.25, 0.5, 1, 2, 4])
    series = tuple(
        Series(name="", tag=head, values=f * np.array([1, 0.9, 0.7, 0.5, 0.3 + 0.001 * i]),
               colour="#224466", faint=i % 2 == 0)
        for i, head in enumerate(HEADS)
    )  # fmt: skip
    return Lines(
        title=title, x=x, series=series, x_label="multiplier", x_scale="log2", legend=False,
        y_label="entropy / ln(visible keys)", y_low=0.0, y_high=1.05,
    )  # fmt: skip


MARKS: dict[str, Mark] = {
    "signed-map": signed_map(),
    "short-map": signed_map(12),
    "numbers-map": numbers_map(),
    "paths-map": paths_map(),
    "attention-map": attention_map("", 96),
    "bars": bars(),
    "dots": dots(),
    "no-dots": no_dots(),
    "points": points(),
    "loss-lines": loss_lines(),
    "dodged-lines": dodged_lines(),
    "head-lines": head_lines(),
    "attention-panels": Panels(
        marks=tuple(attention_map(head) for head in HEADS), columns=3, share=True
    ),
    "line-panels": Panels(
        marks=tuple(head_lines(f"layer {i}", 0.5 + i / 8) for i in range(4)), columns=4, share=True
    ),
    "mixed-panels": Panels(marks=(dots(), points(), bars()), columns=2),
}


@dataclass(frozen=True, kw_only=True)
class Showing(interp.Result):
    """A result whose figures are some of the marks above."""

    SECTION: ClassVar[str] = "marks"
    HEADING: ClassVar[str] = "Marks"
    marks: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame({"mark": list(self.marks)})

    def figures(self) -> list[Shown]:
        return [
            Shown(name=name, caption=f"This is {name}.", mark=MARKS[name]) for name in self.marks
        ]


def showing(model: interp.HookedGPT, *marks: str) -> Showing:
    tokens = torch.zeros(1, 4, dtype=torch.long)
    return Showing(marks=marks, provenance=interp.Provenance.of(model, tokens))
