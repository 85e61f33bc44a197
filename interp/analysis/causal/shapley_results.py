"""Shapley values of components: what is kept and shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from interp.analysis.direct.passage import over_the_passage, with_characters
from interp.figures.marks import Bars
from interp.figures.palette import with_unit
from interp.results.result import Result
from interp.results.shown import Shown, kept


@dataclass(frozen=True, kw_only=True, repr=False)
class ShapleyValues(Result):
    """Shapley values [component, batch, pos], in the units of the metric.

    They sum to `total` − `base` (all components there, none there); `efficiency_error` is by how
    much they miss it, at most `tolerance`. `standard_error` is 0 where every set was evaluated
    (`permutations` = 0), else that of the mean over permutations.
    """

    AXES: ClassVar = {
        "values": ("component", "batch", "pos"),
        "standard_error": ("component", "batch", "pos"),
        "base": ("batch", "pos"),
        "total": ("batch", "pos"),
        "efficiency_error": ("batch", "pos"),
        "tolerance": ("batch", "pos"),
        "tokens": ("batch", "pos"),
        "targets": ("batch", "pos"),
    }
    NAMES: ClassVar = {"components": "component"}
    SECTION: ClassVar = "shapley"
    HEADING: ClassVar = "Fair shares"
    values: np.ndarray
    standard_error: np.ndarray
    base: np.ndarray
    total: np.ndarray
    efficiency_error: np.ndarray
    tolerance: np.ndarray
    tokens: np.ndarray
    targets: np.ndarray
    components: tuple[str, ...]
    characters: tuple[str, ...] | None
    metric: str
    rerun: bool
    baseline: str
    permutations: int

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns columns component, batch, pos, target, value, standard_error; behind the target
        its character.
        """
        n, batch, pos = self.values.shape
        index = pd.MultiIndex.from_product(
            [self.components, range(batch), range(pos)], names=["component", "batch", "pos"]
        )
        columns = with_characters({"target": np.tile(self.targets.ravel(), n)}, self.characters)
        columns |= {"value": self.values.ravel(), "standard_error": self.standard_error.ravel()}
        return pd.DataFrame(columns, index=index).reset_index()

    # ---- what it shows -------------------------------------------------------------------

    def figures(self) -> list[Shown]:
        """Returns each component's value, averaged over all positions."""
        n = self.values.shape[1] * self.values.shape[2]
        how = (
            f"{self.permutations} random orders, each also backwards"
            if self.permutations
            else "every set of components"
        )
        caption = (
            f"Shapley values of {self.metric} through "
            f"{'re-runs of the model' if self.rerun else 'the final LayerNorm'} (absent: "
            f"{self.baseline}), from {how}; means over n = {n} positions. They sum to the metric "
            "with all components minus the metric with none."
        )
        label = f"Shapley value of {with_unit(self.metric)}, mean over positions"
        values = self.values.mean((1, 2))
        mark = Bars(names=self.components, values=values, label=label, digits=3)
        return [Shown(name="shapley", caption=caption, mark=mark)]

    def picture(self, what: str = "") -> Shown:
        """Returns one of its figures, or one component's values over the passage ("L0.mlp").

        Raises:
            ConfigError: there is neither.
        """
        if what not in self.components:
            return super().picture(what)
        mark = over_the_passage(
            what, self.values[self.components.index(what), 0], self.glyphs(self.targets[0]),
            f"Shapley value of {with_unit(self.metric)}", "token predicted at each position",
        )  # fmt: skip
        caption = f"The Shapley value of {what} at each position of one passage."
        return Shown(name=f"shapley-{what}", caption=caption, mark=mark)

    def summary(self) -> str:
        """Returns each component's value, averaged over all positions, and their sum."""
        values, error = self.values.mean((1, 2)), self.standard_error.max()
        n = self.values.shape[1] * self.values.shape[2]
        lines = [f"Shapley values of {with_unit(self.metric)}, means over {n} positions; absent: "
                 f"{self.baseline}; {self.provenance.line()}"]  # fmt: skip
        lines += [f"  {c:<10} {v:+9.4f}" for c, v in zip(self.components, values, strict=True)]
        how = f"standard error at most {error:.1g}" if self.permutations else "every set evaluated"
        lines.append(f"  {'sum':<10} {values.sum():+9.4f}   {how}")
        return "\n".join(lines)
