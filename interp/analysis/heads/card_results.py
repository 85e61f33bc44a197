"""The card of one head as a result: its labels, scores, examples and what it writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from interp.analysis.heads.score_results import dots_of_scores
from interp.results.result import Result
from interp.results.shown import Shown, kept

EVIDENCE = ("score", "null", "effect", "effect_low", "effect_high", "control", "confirmed")


@dataclass(frozen=True, kw_only=True)
class HeadCard(Result):
    """Everything that is known of one head. `str()` gives it as text.

    `labels` are the confirmed ones; `tried` all that were tried, with what was found of each in
    `tried_numbers` [label, number] (`EVIDENCE`). `score`, `score_low`, `score_high`, `score_null`
    [score] are those furthest from uniform attention. An example is a query and the key that it
    gives most weight (`example_weight`), `example_back` positions back, with its character
    (`example_key`) and the text up to the query (`example_text`); `example_sequence` and
    `example_pos` say where. A write is what attending to a token (`write_token`) adds to the
    logits: the tokens that it raises most (`write_raised_ids` [write, rank]), by how much
    (`write_raised_by`, logits over the mean, before LayerNorm's scales), and both in words
    (`write_raised`).
    """

    AXES: ClassVar = {
        "tried_numbers": ("label", "number"),
        **dict.fromkeys(("score", "score_low", "score_high", "score_null"), ("score",)),
        **dict.fromkeys(
            ("example_weight", "example_back", "example_sequence", "example_pos"), ("example",)
        ),
        "write_token_ids": ("write",),
        **dict.fromkeys(("write_raised_ids", "write_raised_by"), ("write", "rank")),
    }
    NAMES: ClassVar = {
        "tried": "label", "score_names": "score", "example_key": "example",
        "example_text": "example", "write_token": "write", "write_raised": "write",
    }  # fmt: skip
    SECTION: ClassVar = "heads"
    HEADING: ClassVar = "What the heads look at"
    TABLE_IN_PAGE: ClassVar = False
    VIEWS: ClassVar = ("atlas",)
    head: str
    labels: tuple[str, ...]
    tried: tuple[str, ...]
    tried_numbers: np.ndarray
    score_names: tuple[str, ...]
    score: np.ndarray
    score_low: np.ndarray
    score_high: np.ndarray
    score_null: np.ndarray
    copying: float
    example_weight: np.ndarray
    example_back: np.ndarray
    example_sequence: np.ndarray
    example_pos: np.ndarray
    example_key: tuple[str, ...]
    example_text: tuple[str, ...]
    write_token: tuple[str, ...]
    write_token_ids: np.ndarray
    write_raised: tuple[str, ...]
    write_raised_ids: np.ndarray
    write_raised_by: np.ndarray

    @property
    def name(self) -> str:
        """What its files are called."""
        return f"head-card-{self.head}"

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns score, value, low, high, null (uniform): those furthest from it."""
        return pd.DataFrame(
            {
                "score": self.score_names, "value": self.score, "low": self.score_low,
                "high": self.score_high, "null": self.score_null,
            }
        )  # fmt: skip

    @kept
    def evidence(self) -> pd.DataFrame:
        """Returns label, score, null, effect, effect_low, effect_high, control, confirmed."""
        table = pd.DataFrame(self.tried_numbers, columns=list(EVIDENCE))
        table["confirmed"] = table["confirmed"].astype(bool)
        table.insert(0, "label", self.tried)
        return table

    def figures(self) -> list[Shown]:
        """Returns its scores beside uniform attention."""
        caption = (
            f"Scores of {self.head} furthest from uniform attention, with 95 % intervals. n = "
            f"{self.provenance.sequences} sequences, seed {self.provenance.seed}."
        )
        mark = dots_of_scores(self.to_frame())
        return [Shown(name=self.name, caption=caption, mark=mark, on_page=False, detail=True)]

    def summary(self) -> str:
        """Returns everything as text."""
        return "\n".join(
            [
                f"{self.head}: {', '.join(self.labels) or 'no confirmed label'}",
                *map(_evidence_line, self.evidence().to_dict("records")),
                "  scores furthest from their nulls:",
                *map(_score_line, self.to_frame().to_dict("records")),
                "  attends most, in context (key ← query):",
                *self._examples(),
                f"  writes (OV circuit; copying {self.copying:+.2f}), on attending to a token "
                "(logits over the mean, before LayerNorm's scales):",
                *(
                    f"    {token}: {raised}"
                    for token, raised in zip(self.write_token, self.write_raised, strict=True)
                ),
            ]
        )

    def _examples(self) -> list[str]:
        return [
            f"    {weight:.2f}  {key} at −{back}  …{text}"
            for weight, key, back, text in zip(
                self.example_weight, self.example_key, self.example_back, self.example_text,
                strict=True,
            )
        ]  # fmt: skip


def _evidence_line(row: dict[Any, Any]) -> str:
    return (
        f"  {row['label']}: score {row['score']:.2f} (null {row['null']:.2f}), effect "
        f"{row['effect']:+.3f} [{row['effect_low']:+.3f}, {row['effect_high']:+.3f}] nats, "
        f"control {row['control']:+.3f}, {'' if row['confirmed'] else 'not '}confirmed"
    )


def _score_line(row: dict[Any, Any]) -> str:
    return (
        f"    {row['score']:<14} {row['value']:.3f} [{row['low']:.3f}, {row['high']:.3f}]  "
        f"null {row['null']:.3f}"
    )
