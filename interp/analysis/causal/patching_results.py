"""What patches do to a prediction: what is kept and shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from interp.figures.marks import Bars, HeatMap, Mark
from interp.figures.palette import visible
from interp.results import intervals
from interp.results.result import Result
from interp.results.shown import Shown, kept

LARGEST = 20  # shares in a summary


@dataclass(frozen=True, kw_only=True, repr=False)
class Patching(Result):
    """The metric after each patch, `values` [patch, sequence], and of both prompts unpatched.

    `labels` name the patches: components (`L1.H2`), a head's query (`L1.H2.q`), or a site at a
    position (`L1.resid_pre at 5`); `layers` and `places` are their coordinates (places: positions
    or heads).
    """

    AXES: ClassVar = {
        "values": ("patch", "sequence"),
        "clean": ("sequence",),
        "corrupted": ("sequence",),
        "layers": ("patch",),
        "places": ("patch",),
        "clean_tokens": ("sequence", "pos"),
        "corrupted_tokens": ("sequence", "pos"),
    }
    NAMES: ClassVar = {"labels": "patch"}
    SECTION: ClassVar = "patching"
    HEADING: ClassVar = "Where the difference between two prompts sits"
    values: np.ndarray
    clean: np.ndarray
    corrupted: np.ndarray
    layers: np.ndarray
    places: np.ndarray
    clean_tokens: np.ndarray
    corrupted_tokens: np.ndarray
    labels: tuple[str, ...]
    characters: tuple[str, ...] | None
    what: str
    direction: str
    metric: str
    position: int
    target: str
    foil: str

    @property
    def shares(self) -> np.ndarray:
        """(patched − unpatched) / (other prompt − unpatched), means over sequences, [patch].

        NaN where the two prompts do not differ in the metric.
        """
        start, goal = self.corrupted.mean(), self.clean.mean()
        if self.direction == "noise":
            start, goal = goal, start
        difference = goal - start
        if abs(difference) <= 4 * np.finfo(self.values.dtype).eps * (abs(goal) + abs(start)):
            difference = np.nan  # equal but for rounding
        share: np.ndarray = (self.values.mean(1) - start) / difference
        return share

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns patch, layer, place, value, low, high (95 %, over sequences), share, n."""
        seed = self.provenance.seed or 0
        mean, low, high = intervals.mean_interval(self.values, seed=seed)
        return pd.DataFrame(
            {
                "patch": self.labels,
                "layer": self.layers,
                "place": self.places,
                "value": mean,
                "low": low,
                "high": high,
                "share": self.shares,
                "n": self.values.shape[1],
            }
        )

    # ---- what it shows -------------------------------------------------------------------

    @property
    def name(self) -> str:
        """What its files are called."""
        return f"patching-{self.what}-{self.direction}".replace(" ", "-")

    def figures(self) -> list[Shown]:
        """Returns the share of the difference that each patch moves: a map, or bars of paths."""
        n = self.values.shape[1]
        run, other = ("corrupted", "clean")[:: 1 if self.direction == "denoise" else -1]
        caption = (
            f"Patching {self.what} ({self.direction}): the {run} prompt is run with pieces of the "
            f"{other} run. 0: no change of the metric ({self.metric}, read at position "
            f"{self.position}); 1: as much as the whole other prompt. n = {n} pair"
            f"{'s' if n > 1 else ''} of prompts."
        )
        mark: Mark
        if self.what.endswith("position"):
            caption += " Columns: the clean prompt above the corrupted one; bold where they differ."
            mark = self._by_position()
        elif self.what.endswith("by head"):
            mark = self._by_head()
        else:
            mark = Bars(names=self.labels, values=self.shares, title=self._question(),
                        label=f"share of the difference moved ({self.what})")  # fmt: skip
        return [Shown(name=self.name, caption=caption, mark=mark)]

    def _by_position(self) -> HeatMap:
        rows = [label.split(" at ")[0] for label in self.labels]  # L1.resid_pre, or L1.H2
        names, columns, grid = self._grid(rows)
        if "head" not in self.what:
            names = [name.split(".")[0] for name in names]
        both = [self.glyphs(tokens[0][columns]) for tokens in (self.clean_tokens,
                                                               self.corrupted_tokens)]  # fmt: skip
        differs = self.clean_tokens[0] != self.corrupted_tokens[0]
        return self._map(
            grid, names, [f"{above}\n{below}" for above, below in zip(*both, strict=True)],
            column_label="position (above: clean, below: corrupted)",
            strong_columns=tuple(i for i, p in enumerate(columns) if differs[p]),
        )  # fmt: skip

    def _by_head(self) -> HeatMap:
        names, columns, grid = self._grid([f"L{layer}" for layer in self.layers])
        numbers = tuple(tuple(f"{share:.2f}" for share in row) for row in grid)
        heads = [f"H{head}" for head in columns]
        return self._map(grid, names, heads, column_label="head", numbers=numbers)

    def _grid(self, rows: Sequence[str]) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Names of rows, places, and the shares [row, place] of patches in those rows."""
        names, places = list(dict.fromkeys(rows)), np.unique(self.places)
        grid = np.full((len(names), len(places)), np.nan)
        at = [names.index(row) for row in rows]
        grid[at, np.searchsorted(places, self.places)] = self.shares
        return names, places, grid

    def _map(
        self, grid: np.ndarray, names: Sequence[str], columns: Sequence[str], **more: Any
    ) -> HeatMap:
        limit = max(1.0, float(np.nanmax(np.abs(grid)))) if np.isfinite(grid).any() else 1.0
        return HeatMap(
            values=grid, rows=tuple(names), columns=tuple(columns), low=-limit, high=limit,
            label="share of the\ndifference moved", title=self._question(), **more,
        )  # fmt: skip

    def _question(self) -> str:
        return f"{self.direction}: {self._target()} after position {self.position}"

    def _target(self, over: str = "over") -> str:
        target, foil = ("".join(map(visible, text)) for text in (self.target, self.foil))
        return f"{target} {over} {foil}" if foil else target

    def summary(self) -> str:
        """Returns the shares of the patches that move most."""
        asked = f"logit of {self._target('−')}" if self.metric == "foil" else self.metric
        clean, corrupted = self.clean.mean(), self.corrupted.mean()
        lines = [
            f"{self.what}, {self.direction}; {asked} after position {self.position}: clean "
            f"{clean:+.3f}, corrupted {corrupted:+.3f}; model "
            f"{self.provenance.name or self.provenance.model[:8]}, n = {len(self.clean)}",
            "share of the difference that each patch moves:",
        ]
        order = np.argsort(-np.abs(self.shares), kind="stable")
        lines += [f"  {self.labels[i]:<20} {self.shares[i]:+7.3f}" for i in order[:LARGEST]]
        if len(order) > LARGEST:
            largest = abs(self.shares[order[LARGEST]])
            lines.append(f"  {len(order) - LARGEST} more, none larger than {largest:.3f}")
        return "\n".join(lines)
