"""Predictions at each position, and at each depth: what is kept and shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pandas as pd

from interp.analysis.direct.passage import over_the_passage, with_characters
from interp.figures.marks import HeatMap
from interp.results.result import Result
from interp.results.shown import Shown, kept

PREDICTED = "token predicted at each position"


@dataclass(frozen=True, kw_only=True, repr=False)
class LogitLens(Result):
    """Predictions read off the stream at each depth and position.

    `log_prob` of the target in nats; its `rank` (0 is best); the prediction's `entropy` in nats;
    the likeliest token `top` and its probability `top_prob`. All [depth, batch, pos]. The target is
    the true next token; at the last position, which has none, the model's own first choice.
    """

    AXES: ClassVar = dict.fromkeys(
        ("log_prob", "rank", "entropy", "top", "top_prob"), ("depth", "batch", "pos")
    ) | {"tokens": ("batch", "pos"), "targets": ("batch", "pos")}
    NAMES: ClassVar = {"depths": "depth"}
    SECTION: ClassVar = "lens"
    HEADING: ClassVar = "What the stream predicts, and when"
    TABLE_IN_PAGE: ClassVar = False
    QUANTA: ClassVar = {"log_prob": 1e-3, "entropy": 1e-3, "top_prob": 1 / 32767}
    log_prob: np.ndarray
    rank: np.ndarray
    entropy: np.ndarray
    top: np.ndarray
    top_prob: np.ndarray
    tokens: np.ndarray
    targets: np.ndarray
    depths: tuple[str, ...]
    characters: tuple[str, ...] | None

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns columns depth, batch, pos, target, log_prob, rank, entropy, top, top_prob; behind
        target and top their characters.
        """
        n, batch, pos = self.log_prob.shape
        index = pd.MultiIndex.from_product(
            [self.depths, range(batch), range(pos)], names=["depth", "batch", "pos"]
        )
        targets = {"target": np.tile(self.targets.ravel(), n)}
        columns = with_characters(targets, self.characters)
        columns |= {name: getattr(self, name).ravel() for name in ("log_prob", "rank", "entropy")}
        columns |= with_characters({"top": self.top.ravel()}, self.characters)
        columns["top_prob"] = self.top_prob.ravel()
        return pd.DataFrame(columns, index=index).reset_index()

    def figures(self) -> list[Shown]:
        """Returns the log-probability of the target at each depth; letters: the likeliest."""
        values = self.log_prob[::-1, 0].astype(np.float64)
        finite = values[np.isfinite(values)]
        low = float(finite.min()) if finite.size else 0.0
        numbers = tuple(tuple(self.glyphs(row)) for row in self.top[::-1, 0])
        mark = HeatMap(
            values=values, rows=self.depths[::-1], columns=tuple(self.glyphs(self.targets[0])),
            column_label=PREDICTED, columns_are="positions", numbers=numbers, palette="weight",
            low=min(low, -1e-9), high=0.0, label="log-probability of\nthat token (nats)",
        )  # fmt: skip
        n_pos = values.shape[1]
        caption = (
            f"Logit lens over n = {n_pos} positions of one passage: what the stream predicts at "
            "each depth, with LayerNorm statistics of its own. Letters are the likeliest character."
        )
        return [Shown(name="logit-lens", caption=caption, mark=mark)]

    def summary(self) -> str:
        """Returns what the stream predicts at each depth at the last position."""
        n_pos = self.tokens.shape[1]
        target = self.glyphs(self.targets[0])[-1]
        lines = [f"what the stream predicts after the last of {n_pos} positions, "
                 f"{self.glyphs(self.tokens[0])[-1]}; {self.provenance.line()}"]  # fmt: skip
        tops = self.glyphs(self.top[:, 0, -1])
        for i, (depth, top) in enumerate(zip(self.depths, tops, strict=True)):
            lines.append(
                f"  {depth:<8} {top}  probability {self.top_prob[i, 0, -1]:.3f}; {target}: rank "
                f"{int(self.rank[i, 0, -1])}, log-probability {self.log_prob[i, 0, -1]:+.3f}"
            )
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True, repr=False)
class Predictions(Result):
    """What the model predicts at every position: the likeliest tokens.

    `top` and `top_prob` [batch, pos, choice], likeliest first; of the true next token its
    probability `prob` and `rank` (0 is best), [batch, pos]: NaN and −1 at the last position, which
    has none.
    """

    AXES: ClassVar = {
        "top": ("batch", "pos", "choice"),
        "top_prob": ("batch", "pos", "choice"),
        "prob": ("batch", "pos"),
        "rank": ("batch", "pos"),
        "tokens": ("batch", "pos"),
    }
    VIEWS: ClassVar = ("explorer",)
    SECTION: ClassVar = "text"
    HEADING: ClassVar = "The text, position by position"
    TABLE_IN_PAGE: ClassVar = False
    top: np.ndarray
    top_prob: np.ndarray
    prob: np.ndarray
    rank: np.ndarray
    tokens: np.ndarray
    characters: tuple[str, ...] | None

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns columns batch, pos, choice, token, prob, one row per choice; behind the token its
        character.
        """
        index = pd.MultiIndex.from_product(
            [range(n) for n in self.top.shape], names=["batch", "pos", "choice"]
        )
        columns = with_characters({"token": self.top.ravel()}, self.characters)
        columns["prob"] = self.top_prob.ravel()
        return pd.DataFrame(columns, index=index).reset_index()

    def figures(self) -> list[Shown]:
        """Returns the probability of the true next character over the passage."""
        prob = self.prob[0, :-1]
        if not len(prob):
            return []
        mark = replace(
            over_the_passage("the true next token", prob, self.glyphs(self.tokens[0, 1:]),
                             "probability of the true next token", PREDICTED),
            y_low=0.0, y_high=1.02, title="", zero=False,
        )  # fmt: skip
        caption = (
            f"Probability of the true next token at n = {len(prob)} positions of one passage; mean "
            f"{prob.mean():.3f}. Each stands above the token that is predicted there."
        )
        return [Shown(name="predictions", caption=caption, mark=mark, on_page=False)]

    def summary(self) -> str:
        """Returns what comes after the passage, and how well its own characters were predicted."""
        after = zip(self.glyphs(self.top[0, -1]), self.top_prob[0, -1], strict=True)
        likeliest = ", ".join(f"{character} {prob:.3f}" for character, prob in after)
        lines = [f"what comes after {self.tokens.shape[1]} positions: {likeliest}; "
                 f"{self.provenance.line()}"]  # fmt: skip
        if self.prob.shape[1] > 1:
            prob, first = self.prob[:, :-1], (self.rank[:, :-1] == 0).mean()
            lines.append(f"true next token: mean probability {prob.mean():.3f}, the model's first "
                         f"choice at {first:.1%} of {prob.size} positions")  # fmt: skip
        return "\n".join(lines)
