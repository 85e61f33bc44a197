"""What is drawn of a finished sweep, from its tables."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import pandas as pd

from interp.analysis.scaling.styles import ARM_STYLES, ENTROPY, ticks_of
from interp.figures.marks import Lines, Panels, Series
from interp.results.shown import Shown

WEIGHT = "W_Q"  # whose gradients are drawn
MAIN = ("sqrt", "unscaled", "matched")  # the arms whose gradients are


@runtime_checkable
class Sweep(Protocol):
    """What is drawn of a `ScalingSweep`: its axes and its kept tables."""

    @property
    def arms(self) -> tuple[str, ...]: ...
    @property
    def d_heads(self) -> np.ndarray: ...
    @property
    def learning_rates(self) -> np.ndarray: ...
    @property
    def seeds(self) -> np.ndarray: ...
    @property
    def steps(self) -> np.ndarray: ...
    @property
    def predicted_entropy(self) -> np.ndarray: ...
    @property
    def text(self) -> str: ...

    def entropies(self) -> pd.DataFrame:
        """By arm, width and step, with intervals and theory."""

    def gradients(self) -> pd.DataFrame:
        """Quantiles by arm, width and step."""

    def losses(self) -> pd.DataFrame:
        """By arm, width and learning rate, with intervals."""


def sweep_figures(sweep: Sweep) -> list[Shown]:
    """Returns entropy by head width, gradients by step, and losses by learning rate."""
    n = f"n = {len(sweep.seeds)} seeds; trained on {sweep.text}"
    middle = sweep.learning_rates[len(sweep.learning_rates) // 2]
    return [
        Shown(
            name="sweep-entropy", mark=_entropy(sweep),
            caption="Entropy of attention rows by head width, each arm at its best learning rate; "
            "bars: 95 % intervals over seeds. Dashed: independent normal scores of the std that "
            f"the initial weights imply. {n}.",
        ),
        Shown(
            name="sweep-gradients", mark=_gradients(sweep),
            caption=f"Sizes of the entries of ∂L/∂{WEIGHT} on held-out windows: median, and band "
            f"from 5 to 95 %, at learning rate {middle:g}. {n}.",
        ),
        Shown(
            name="sweep-losses", mark=_losses(sweep),
            caption=f"Validation loss after {sweep.steps[-1]} steps by learning rate; bars: 95 % "
            f"intervals over seeds; a run that diverged leaves its point out. {n}.",
        ),
    ]  # fmt: skip


def _entropy(sweep: Sweep) -> Panels:
    """The first and the last step side by side; theory's is of the first."""
    table, marks = sweep.entropies(), []
    for step in (0, -1):
        of_step = table[table["step"] == sweep.steps[step]]
        series = [_of_arm(of_step, arm, "entropy", line=step != 0) for arm in sweep.arms]
        if step == 0:
            series += [
                Series(name="", values=values, colour=ARM_STYLES[arm].colour, dashed=True)
                for arm, values in zip(sweep.arms, sweep.predicted_entropy, strict=True)
            ]
        title = "step 0; dashed: theory" if step == 0 else f"step {sweep.steps[-1]}"
        marks.append(Lines(
            title=title, x=sweep.d_heads, series=tuple(series), x_scale="log2", x_label="d_head",
            y_label=ENTROPY, y_low=0.0, y_high=1.03, ticks=ticks_of(sweep.d_heads), dodge=True,
        ))  # fmt: skip
    return Panels(marks=tuple(marks), columns=2, share=True)


def _of_arm(table: pd.DataFrame, arm: str, column: str, line: bool = True) -> Series:
    """An arm's column of a table, with the interval that stands beside it."""
    style, one = ARM_STYLES[arm], table[table["arm"] == arm]
    values, low, high = (one[name].to_numpy() for name in (column, "low", "high"))
    return Series(name=style.name, values=values, low=low, high=high, colour=style.colour,
                  marker=style.marker, line=line)  # fmt: skip


def _gradients(sweep: Sweep) -> Panels:
    """One panel per head width; the main arms, as far as they were trained."""
    arms = [arm for arm in sweep.arms if arm in MAIN] or list(sweep.arms[:3])
    table = sweep.gradients()
    table = table[table["weight"] == WEIGHT]
    at = np.arange(len(sweep.steps))  # they are log-spaced
    few = at[:: max(1, len(at) // 5)]
    marks = []
    for d_head in sweep.d_heads:
        series = []
        for arm in arms:
            one = table[(table["arm"] == arm) & (table["d_head"] == d_head)]
            low, median, high = (one[name].to_numpy() for name in ("q05", "q50", "q95"))
            style = ARM_STYLES[arm]
            series.append(Series(name=style.name, values=median, low=low, high=high,
                                 colour=style.colour, marker=style.marker))  # fmt: skip
        marks.append(Lines(
            title=f"d_head = {d_head}", x=at, series=tuple(series), x_label="step (log-spaced)",
            y_label=f"|entry of ∂L/∂{WEIGHT}| (nats per unit)", y_scale="log",
            ticks=tuple((float(i), str(sweep.steps[i])) for i in few),
        ))  # fmt: skip
    return Panels(marks=tuple(marks), columns=len(marks), share=True)


def _losses(sweep: Sweep) -> Panels:
    """One panel per head width."""
    table, marks = sweep.losses(), []
    for d_head in sweep.d_heads:
        one = table[table["d_head"] == d_head]
        marks.append(Lines(
            title=f"d_head = {d_head}", x=sweep.learning_rates, x_scale="log",
            series=tuple(_of_arm(one, arm, "loss") for arm in sweep.arms),
            x_label="peak learning rate", y_label="validation loss (nats per character)",
            ticks=ticks_of(sweep.learning_rates), dodge=True,
        ))  # fmt: skip
    return Panels(marks=tuple(marks), columns=len(marks), share=True)
