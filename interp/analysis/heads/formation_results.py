"""How heads form as a result: table, change point, figure, summary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from interp.analysis.heads.change_points import FEWEST, ChangePoint, change_point
from interp.figures.marks import Lines, Panels, Series, Span
from interp.figures.palette import of_layer, of_series
from interp.results import intervals
from interp.results.result import Result
from interp.results.shown import Shown, kept

DRAWN = ("previous", "induction")  # scores
PATHS = 4  # that are drawn: those that carry most in the end


@dataclass(frozen=True, kw_only=True)
class Formation(Result):
    """What was measured at each checkpoint.

    `repeated_loss` and `first_loss` (nats per token, from the second copy on and in the first),
    [step, sequence]; `values` [score, step, layer, head]; `paths` [sender, receiver, step], nats
    per token of the repeated loss; `icl` [step, text]: late less early loss, NaN without any.
    """

    AXES: ClassVar = {
        "steps": ("step",),
        "repeated_loss": ("step", "sequence"),
        "first_loss": ("step", "sequence"),
        "values": ("score", "step", "layer", "head"),
        "paths": ("sender", "receiver", "step"),
        "icl": ("step", "text"),
    }
    NAMES: ClassVar = {"scores": "score", "senders": "sender", "receivers": "receiver"}
    SECTION: ClassVar = "formation"
    HEADING: ClassVar = "How the heads formed"
    TABLE_IN_PAGE: ClassVar = False
    steps: np.ndarray
    repeated_loss: np.ndarray
    first_loss: np.ndarray
    scores: tuple[str, ...]
    values: np.ndarray
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    paths: np.ndarray
    icl: np.ndarray

    @kept
    def change_point(self) -> ChangePoint:
        """Returns where the repeated loss fell, if it did.

        Raises:
            ConfigError: fewer than three checkpoints.
        """
        return change_point(self.steps, self.repeated_loss, seed=self.provenance.seed or 0)

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns one row per step and measure: step, measure, value, low, high.

        Measures: repeated_loss, first_loss and icl (intervals over sequences); for each score the
        best head of each layer, as induction:L1; for each path its effect, as L0.H1>L1.k.
        """
        tables = [
            pd.DataFrame({"step": self.steps, "measure": measure, "value": value,
                          "low": low, "high": high})
            for measure, value, low, high in self._measures()
        ]  # fmt: skip
        return pd.concat(tables, ignore_index=True)

    def _measures(self) -> Iterator[tuple[str, np.ndarray, object, object]]:
        """Name, value and ends of the interval of each measure, over the steps."""
        for name in ("repeated_loss", "first_loss", "icl"):
            by_sequence = getattr(self, name)
            if by_sequence.shape[1]:
                seed = self.provenance.seed or 0
                yield (name, *intervals.mean_interval(by_sequence, seed=seed))
        for i, score in enumerate(self.scores):
            best = self.values[i].min(-1) if score == "entropy" else self.values[i].max(-1)
            for layer in range(best.shape[1]):
                yield f"{score}:L{layer}", best[:, layer], np.nan, np.nan
        for s, r in np.ndindex(self.paths.shape[:2]):
            if np.isfinite(self.paths[s, r]).all():
                path = f"{self.senders[s]}>{self.receivers[r]}"
                yield path, self.paths[s, r], np.nan, np.nan

    def figures(self) -> list[Shown]:
        """Returns small multiples over training: loss on repeats, scores of every head, paths."""
        panels = [self._losses(), *(self._scores(name) for name in DRAWN if name in self.scores)]
        if self.senders:
            panels.append(self._paths())
        spans = self._spans()
        marks = tuple(replace(panel, spans=spans) for panel in panels)
        n, of = self.repeated_loss.shape[1], len(self.steps)
        caption = (
            "Over training, on random tokens that repeat: loss, scores of every head, and the "
            "paths that carry most in the end. Dashed: the change point of the loss, with its 95 % "
            f"interval over sequences. n = {n} sequences, {of} checkpoints, seed "
            f"{self.provenance.seed}."
        )
        return [Shown(name=self.name, caption=caption, mark=Panels(marks=marks, columns=2))]

    def _spans(self) -> tuple[Span, ...]:
        found = self.change_point() if len(self.steps) >= FEWEST else None
        if found is None or found.step is None or found.low is None or found.high is None:
            return ()
        return (Span(at=found.step, low=found.low, high=found.high, name="change point"),)

    def _lines(self, series: tuple[Series, ...], label: str, **options: Any) -> Lines:
        return Lines(x=np.maximum(self.steps, 0), series=series, x_label="step", y_label=label,
                     **options)  # fmt: skip

    def _losses(self) -> Lines:
        table = self.to_frame()
        series = []
        for measure, name, colour in (
            ("repeated_loss", "from the second copy on", "blue"),
            ("first_loss", "in the first copy", "grey"),
        ):
            rows = table[table["measure"] == measure]
            value, low, high = (rows[what].to_numpy() for what in ("value", "low", "high"))
            series.append(Series(name=name, values=value, low=low, high=high, colour=colour))
        return self._lines(tuple(series), "loss (nats per token)", y_scale="log")

    def _scores(self, score: str) -> Lines:
        """One line per head in its layer's colour; the first of each layer names it."""
        values = self.values[self.scores.index(score)]  # [step layer head]
        layers = values.shape[1]
        series = tuple(
            Series(
                name="" if head else f"layer {layer}", values=values[:, layer, head],
                colour=of_layer(layer, layers),
            )
            for layer, head in np.ndindex(values.shape[1:])
        )  # fmt: skip
        return self._lines(series, f"{score} score", y_low=0.0, y_high=1.02)

    def _paths(self) -> Lines:
        last = np.nan_to_num(self.paths[..., -1])
        most = np.argsort(-last.ravel())[:PATHS]
        series = []
        for i, (s, r) in enumerate(zip(*np.unravel_index(most, last.shape), strict=True)):
            name = f"{self.senders[s]} → {self.receivers[r]}"
            series.append(Series(name=name, values=self.paths[s, r], colour=of_series(i)))
        return self._lines(tuple(series), "loss carried (nats)", zero=True)

    def summary(self) -> str:
        """Returns losses and the best induction score of each layer by step, and the change."""
        lines = [
            f"n = {self.repeated_loss.shape[1]} random repeating sequences, {len(self.steps)} "
            f"checkpoints, seed {self.provenance.seed}"
        ]
        wide = self.to_frame().pivot(index="step", columns="measure", values="value")
        lines.append(f"  {'step':>6}  repeated loss  first copy  best induction score by layer")
        layers = [name for name in wide.columns if name.startswith("induction:")]
        for step, row in wide.iterrows():
            scores = "  ".join(f"{row[name]:.2f}" for name in layers)
            lines.append(
                f"  {step:>6}  {row['repeated_loss']:13.3f}  {row['first_loss']:10.3f}  {scores}"
            )
        return "\n".join([*lines, self._change()])

    def _change(self) -> str:
        if len(self.steps) < FEWEST:
            return f"no change point can be told from fewer than {FEWEST} checkpoints"
        found = self.change_point()
        if found.step is None:
            return "no change point: the loss on repeats never halved from one level to the next"
        return (
            f"change point: step {found.step} [{found.low}, {found.high}]: the loss on repeats is "
            f"{found.before:.3f} on average before it and {found.after:.3f} after"
        )
