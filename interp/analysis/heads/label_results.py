"""Names for heads as a result: table, figure, summary, finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from interp.figures.marks import Dots, Series
from interp.results.result import Result
from interp.results.shown import Finding, Shown, kept


@dataclass(frozen=True, kw_only=True)
class HeadLabels(Result):
    """Every head and score that was seen (1), with what became of it; one row each.

    `score`, `score_low`, `score_high`, `null` (the highest) on the second half of the sequences;
    `q_values` on the first. `effect` and `control` in nats per token with 95 % intervals over
    sequences; NaN where a sequence had no such query. `confirmed`: all three steps hold.
    `sequences` of both halves; `untrained` models in the nulls; `model_heads` in the whole model.
    """

    AXES: ClassVar = dict.fromkeys(
        (
            "layers", "heads", "score", "score_low", "score_high", "null", "q_values", "effect",
            "effect_low", "effect_high", "control", "control_low", "control_high", "specific_low",
            "confirmed",
        ),
        ("row",),
    )  # fmt: skip
    NAMES: ClassVar = {"labels": "row", "behaviours": "row"}
    SECTION: ClassVar = "heads"
    HEADING: ClassVar = "What the heads look at"
    VIEWS: ClassVar = ("atlas",)
    labels: tuple[str, ...]
    behaviours: tuple[str, ...]
    layers: np.ndarray
    heads: np.ndarray
    score: np.ndarray
    score_low: np.ndarray
    score_high: np.ndarray
    null: np.ndarray
    q_values: np.ndarray
    effect: np.ndarray
    effect_low: np.ndarray
    effect_high: np.ndarray
    control: np.ndarray
    control_low: np.ndarray
    control_high: np.ndarray
    specific_low: np.ndarray
    confirmed: np.ndarray
    level: float
    least: float
    nats: float
    sequences: int
    untrained: int
    model_heads: int

    def of(self, layer: int, head: int) -> list[str]:
        """Returns the confirmed labels of one head; often none."""
        return [
            label
            for i, label in enumerate(self.labels)
            if self.confirmed[i] and (self.layers[i], self.heads[i]) == (layer, head)
        ]

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns layer, head, label, behaviour, score, score_low, score_high, null, q_value,
        effect, effect_low, effect_high, control, control_low, control_high, specific_low (of
        effect − 2 · control), confirmed.
        """
        names = {"layers": "layer", "heads": "head", "q_values": "q_value"}
        columns = {names.get(name, name): getattr(self, name) for name in self.AXES}
        frame = pd.DataFrame(columns)
        frame.insert(2, "label", self.labels)
        frame.insert(3, "behaviour", self.behaviours)
        return frame

    @property
    def named(self) -> set[tuple[int, int]]:
        """Layer and index of the heads that have a confirmed label."""
        ends = zip(self.layers, self.heads, self.confirmed, strict=True)
        return {(int(layer), int(head)) for layer, head, confirmed in ends if confirmed}

    def figures(self) -> list[Shown]:
        """Returns the effect of each head on what its label is about, beside the control's."""
        return [self._shown(self.name, self._in_order())]

    def picture(self, what: str = "") -> Shown:
        """Returns its figure; of a head ("L1.H2") that was seen, the effects of that head alone.

        Raises:
            ConfigError: there is no such figure.
        """
        table = self._in_order()
        own = table[[what == f"L{r.layer}.H{r.head}" for r in table.itertuples()]]
        return super().picture(what) if own.empty else self._shown(f"{self.name}-{what}", own)

    def _in_order(self) -> pd.DataFrame:
        """The table by head, the largest effect first."""
        return self.to_frame().sort_values(
            ["layer", "head", "effect"], ascending=[True, True, False]
        )

    def _shown(self, name: str, table: pd.DataFrame) -> Shown:
        series = tuple(
            Series(
                name=named, values=table[what].to_numpy(), low=table[f"{what}_low"].to_numpy(),
                high=table[f"{what}_high"].to_numpy(), colour=colour, marker=marker, line=False,
            )
            for what, named, colour, marker in (
                ("effect", "matching behaviour", "blue", "o"),
                ("control", "control", "vermilion", "s"),
            )
        )  # fmt: skip
        mark = Dots(
            names=tuple(f"L{r.layer}.H{r.head}  {r.label}" for r in table.itertuples()),
            series=series, label="loss without the head, less with it (nats per token)",
            strong=tuple(int(i) for i in np.flatnonzero(table["confirmed"])),
            empty="no head's score stands above its nulls",
        )  # fmt: skip
        caption = (
            "Heads whose score is above every null, and what replacing them by their mean does to "
            "the behaviour that the label is about and to a control; bold: confirmed. Bars: 95 % "
            f"bootstrap-t over sequences. n = {self.sequences} sequences, seed "
            f"{self.provenance.seed}."
        )
        return Shown(name=name, caption=caption, mark=mark)

    def summary(self) -> str:
        """Returns one line for each head and score that was seen, and how many have a name."""
        lines = [
            f"n = {self.sequences} sequences of {self.provenance.positions}, {self.untrained} "
            f"untrained models, seed {self.provenance.seed}. Seen: above every null, q < "
            f"{self.level:g}. Effect: nats per token lost without the head, on the matching and on "
            "the control behaviour, 95 % intervals."
        ]
        lines += [
            f"  L{row['layer']}.H{row['head']}  {row['label']:<13} score {row['score']:.2f} "
            f"(null {row['null']:.2f})  effect {row['effect']:+.3f} [{row['effect_low']:+.3f}, "
            f"{row['effect_high']:+.3f}]  control {row['control']:+.3f}  "
            f"{'confirmed' if row['confirmed'] else 'not confirmed'}"
            for row in self._in_order().to_dict("records")
        ]
        last = f"{len(self.named)} of {self.model_heads} heads have a confirmed label"
        return "\n".join([*lines, last])

    def finding(self) -> Finding:
        """Returns how many heads have a name that survived, and the one with the largest effect."""
        if not self.named:
            text = (
                f"No head has a name that survives: {len(self.labels)} scores stand above all "
                "their nulls, and none of those heads is needed for what its score is about more "
                "than for a control."
            )
            return Finding(text=text, rank=2)
        best = int(np.where(self.confirmed, self.effect, -np.inf).argmax())
        head = f"L{self.layers[best]}.H{self.heads[best]}"
        text = (
            f"{len(self.named)} head{'s have' if len(self.named) > 1 else ' has'} a name that "
            f"survived intervention; {head}, “{self.labels[best]}”, matters most for what it is "
            f"about: {self.effect[best]:+.2f} nats [{self.effect_low[best]:+.2f}, "
            f"{self.effect_high[best]:+.2f}] without it."
        )
        return Finding(text=text, select=f"head={head}", rank=2)
