"""The scores of heads as a result: p-values, table, figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float

from interp.analysis.heads.attention_targets import ROW_SCORES, is_positional
from interp.analysis.heads.significance import above, benjamini_hochberg, outlying
from interp.errors import ConfigError
from interp.figures.marks import Dots, HeatMap, Series
from interp.results import intervals
from interp.results.result import Result
from interp.results.shown import Shown, kept

LOWER = ("entropy", "span")  # less than chance is what counts
UNDIRECTED = ("distance",)  # neither
COUNTS = ("span", "distance")  # of keys and of positions: no shares of attention
WRITTEN = 0.1  # a share of the way from uniform attention that is worth a number in the map


@dataclass(frozen=True, kw_only=True)
class HeadScores(Result):
    """Scores of every head, one number per sequence, beside what chance gives.

    `values`, `uniform` and `permuted` [score, layer, head, sequence], `untrained` [score, layer,
    null], each null a head of an untrained model. NaN: the sequence has no eligible query, or the
    score has no such null.
    """

    AXES: ClassVar = {
        "values": ("score", "layer", "head", "sequence"),
        "permuted": ("score", "layer", "head", "sequence"),
        "uniform": ("score", "layer", "head", "sequence"),
        "untrained": ("score", "layer", "null"),
        "queries": ("score",),
        "tokens": ("sequence", "pos"),
    }
    NAMES: ClassVar = {"scores": "score"}
    SECTION: ClassVar = "heads"
    HEADING: ClassVar = "What the heads look at"
    VIEWS: ClassVar = ("atlas",)
    scores: tuple[str, ...]
    values: np.ndarray
    uniform: np.ndarray
    permuted: np.ndarray
    untrained: np.ndarray
    queries: np.ndarray
    tokens: np.ndarray

    @property
    def heads(self) -> tuple[str, ...]:
        """The labels of all heads, layer by layer."""
        layers, heads = self.values.shape[1:3]
        return tuple(f"L{layer}.H{head}" for layer, head in np.ndindex(layers, heads))

    @property
    def untrained_models(self) -> int:
        """How many models that null is of."""
        return int(self.untrained.shape[-1] // self.values.shape[2])

    def of(self, score: str) -> Float[np.ndarray, "layer head"]:
        """Returns a score's mean over sequences.

        Raises:
            ConfigError: it was not measured on this model and text.
        """
        if score not in self.scores:
            raise ConfigError(f"no score {score!r} here; there are {', '.join(self.scores)}")
        i = self.scores.index(score)
        mean: np.ndarray = self.values[i][..., self.usable(i)].mean(-1, dtype=np.float64)
        return mean

    def usable(self, score: int) -> np.ndarray:
        """Returns which sequences have an eligible query of this score."""
        finite: np.ndarray = np.isfinite(self.values[score, 0, 0])
        return finite

    def p_values(
        self, sequences: np.ndarray | None = None
    ) -> Float[np.ndarray, "score layer head"]:
        """Returns the p-values on some of the sequences (by default all); NaN: not tested."""
        out = np.full(self.values.shape[:3], np.nan)
        chosen = np.ones(self.values.shape[-1], bool) if sequences is None else sequences
        for i, name in enumerate(self.scores):
            use = self.usable(i) & chosen
            if name not in UNDIRECTED and use.sum() >= 2:
                out[i] = np.max(self._tests(i, use, -1.0 if name in LOWER else 1.0), axis=0)
        return out

    def _tests(self, i: int, use: np.ndarray, sign: float) -> list[np.ndarray]:
        """The p of a score against each null that it has, [layer head]."""
        values = sign * self.values[i][..., use]
        tests = [above(values - sign * self.uniform[i][..., use])]
        if not is_positional(self.scores[i]):
            both = np.isfinite(self.permuted[i]).all((0, 1))[use]
            if both.sum() >= 2:
                tests.append(above((values - sign * self.permuted[i][..., use])[..., both]))
        if self.untrained.shape[-1] > 1:
            tests.append(outlying(values.mean(-1), sign * self.untrained[i]))
        return tests

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns layer, head, score, value, low, high (95 %, over sequences), null (uniform),
        null_permuted, null_untrained (mean), p_value, q_value, n (sequences), queries.
        """
        p = self.p_values()
        q = benjamini_hochberg(p)
        layers, heads = self.values.shape[1:3]
        index = pd.MultiIndex.from_product([range(layers), range(heads)], names=["layer", "head"])
        tables = []
        for i, name in enumerate(self.scores):
            columns = {**self._beside_nulls(i), "p_value": p[i], "q_value": q[i]}
            frame = pd.DataFrame({k: v.ravel() for k, v in columns.items()}, index=index)
            frame = frame.reset_index()
            frame.insert(2, "score", name)
            frame["n"], frame["queries"] = int(self.usable(i).sum()), int(self.queries[i])
            tables.append(frame)
        return pd.concat(tables, ignore_index=True)

    def _beside_nulls(self, i: int) -> dict[str, np.ndarray]:
        """The mean of a score, its interval, and its nulls, [layer head] each."""
        use = self.usable(i)
        mean, low, high = intervals.mean_interval(
            self.values[i][..., use], seed=self.provenance.seed or 0
        )
        permuted = untrained = np.full(mean.shape, np.nan)
        if not is_positional(self.scores[i]):
            finite = np.isfinite(self.permuted[i]).all((0, 1))
            permuted = self.permuted[i][..., finite].mean(-1) if finite.any() else permuted
        if self.untrained.shape[-1]:
            of_layer = self.untrained[i].mean(-1, keepdims=True)
            untrained = np.broadcast_to(of_layer, mean.shape)
        return {
            "value": mean, "low": low, "high": high, "null": self.uniform[i][..., use].mean(-1),
            "null_permuted": permuted, "null_untrained": untrained,
        }  # fmt: skip

    def figures(self) -> list[Shown]:
        """Returns a map: the share of the way from uniform attention to all of it."""
        table = self.to_frame()
        names = tuple(name for name in self.scores if name not in ROW_SCORES)
        heads = self.values.shape[2]
        value, null = (
            np.stack([table.loc[table["score"] == name, what].to_numpy() for name in names])
            for what in ("value", "null")
        )
        share = (value - null) / (1 - null)
        mark = HeatMap(
            values=share, rows=names, columns=self.heads, low=-1.0, high=1.0,
            label="(score − uniform) / (1 − uniform)",
            numbers=tuple(
                tuple(f"{x:.2f}" if abs(s) >= WRITTEN else "" for x, s in zip(*rows, strict=True))
                for rows in zip(value, share, strict=True)
            ),
            column_breaks=tuple(range(heads, len(self.heads), heads)),
        )  # fmt: skip
        caption = (
            "Attention of every head to each kind of key (numbers; means over the queries that can "
            "choose), coloured by how far it is from uniform attention (0) towards all of it (1). "
            f"n = {self.values.shape[-1]} sequences, seed {self.provenance.seed}."
        )
        return [Shown(name=self.name, caption=caption, mark=mark)]

    def picture(self, what: str = "") -> Shown:
        """Returns one of its figures; of a head ("L1.H2"), its scores beside their nulls.

        Raises:
            ConfigError: there is no such figure.
        """
        if what not in self.heads:
            return super().picture(what)
        layer, head = divmod(self.heads.index(what), self.values.shape[2])
        table = self.to_frame()
        own = table[(table["layer"] == layer) & (table["head"] == head)]
        caption = (
            f"Scores of {what} with 95 % intervals over n = {self.values.shape[-1]} sequences, "
            f"beside what chance gives. Seed {self.provenance.seed}."
        )
        return Shown(name=f"{self.name}-{what}", caption=caption, mark=dots_of_scores(own))

    def summary(self) -> str:
        """Returns, for each head, the kind of key that it looks at furthest beyond chance."""
        table = self.to_frame()
        table = table[~table["score"].isin(ROW_SCORES)]
        share = (table["value"] - table["null"]) / (1 - table["null"])
        best = table.loc[share.groupby([table["layer"], table["head"]]).idxmax()]
        lines = [
            f"n = {self.values.shape[-1]} sequences of {self.tokens.shape[1]}, "
            f"{self.untrained_models} untrained models, seed {self.provenance.seed}. The kind of "
            "key furthest above uniform attention, 95 % intervals."
        ]
        lines += [
            f"  L{row['layer']}.H{row['head']}  {row['score']:<13} {row['value']:.3f} "
            f"[{row['low']:.3f}, {row['high']:.3f}]  uniform {row['null']:.3f}"
            for row in best.to_dict("records")
        ]
        return "\n".join([*lines, f"{len(self.scores)} scores of each head: to_frame()"])


def dots_of_scores(table: pd.DataFrame) -> Dots:
    """Returns one head's scores beside their nulls; not those that are no shares of attention.

    Args:
        table: score, value, low, high, null, and null_permuted and null_untrained if known.
    """
    own = table[~table["score"].isin(COUNTS)]
    nulls = (("null", "uniform attention", "grey", "s"),
             ("null_permuted", "tokens permuted", "vermilion", "^"),
             ("null_untrained", "untrained", "green", "v"))  # fmt: skip
    value, low, high = (own[name].to_numpy() for name in ("value", "low", "high"))
    score = Series(
        name="score", values=value, low=low, high=high, colour="blue", marker="o", line=False
    )
    chance = [
        Series(name=name, values=own[of].to_numpy(), colour=colour, marker=marker, line=False)
        for of, name, colour, marker in nulls
        if of in own
    ]
    return Dots(
        names=tuple(own["score"]), series=(score, *chance), label="share of attention",
        empty="no score was measured",
    )  # fmt: skip
