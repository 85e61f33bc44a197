"""The parts of the logits, and of what a part of the model reads: results of attributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from interp.analysis.direct.parts import Attribution
from interp.analysis.direct.passage import with_characters
from interp.results.shown import kept

METRICS = {
    "centered": "logit − mean logit",
    "foil": "logit − foil's logit",
    "probability": "logit − Σ p·logit",
    "raw": "logit",
}


@dataclass(frozen=True, kw_only=True, repr=False)
class LogitAttribution(Attribution):
    """The parts of one metric of the logits at each position, in logits.

    The row at `pos` explains the prediction of the token after it, `targets` [batch, pos].
    `target_is_next` [batch, pos]: the target is the token that follows in the passage; where it is
    not, it was given, or (by default at the last position, which nothing follows) it is the model's
    own first choice.
    """

    AXES: ClassVar = Attribution.AXES | dict.fromkeys(
        ("targets", "foils", "target_is_next"), ("batch", "pos")
    )
    VIEWS: ClassVar = ("explorer",)
    SECTION: ClassVar = "residual"
    HEADING: ClassVar = "Which part made the prediction"
    targets: np.ndarray
    foils: np.ndarray
    target_is_next: np.ndarray
    metric: str

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns columns batch, pos, target, component, contribution; behind the target its
        character; by source, what `Attribution.to_frame` adds.
        """
        frame = self._frame()
        targets = {"target": np.tile(self.targets.ravel(), len(self.components))}
        for i, (name, column) in enumerate(with_characters(targets, self.characters).items()):
            frame.insert(2 + i, name, column)
        return frame

    @property
    def name(self) -> str:
        """What its files are called."""
        return f"logit-attribution-by-{self.by}"

    @property
    def _of_what(self) -> str:
        return f"{METRICS[self.metric]} (logits)"

    @property
    def _columns(self) -> tuple[np.ndarray, str]:
        return self.targets, "token predicted at each position"

    def _caption(self) -> str:
        if self.target_is_next[0].all():
            return super()._caption()
        where = "the last column's" if self.target_is_next[0, :-1].all() else "some columns'"
        return f"{super()._caption()} Explained is the next token; {where} is not in the passage."

    @property
    def _position(self) -> int:
        following = self.target_is_next[0]
        return int(np.where(following | ~following.any(), self.total[0], -np.inf).argmax())

    def _where(self, pos: int) -> str:
        chosen = "" if self.target_is_next[0, pos] else ", not in the passage"
        return f"{super()._where(pos)}, towards {self.glyphs(self.targets[0])[pos]}{chosen}"

    def checks(self) -> list[tuple[str, str]]:
        """Returns how far the rows missed the model's own logits."""
        n, _, n_pos = self.values.shape
        return [
            (
                f"largest miss of the model's logits, by {self.by}",
                f"{self.completeness_error.max():.1e} logits (tolerance at least "
                f"{self.tolerance.min():.1e}); {n_pos} positions × {n} components",
            )
        ]


@dataclass(frozen=True, kw_only=True, repr=False)
class StreamAttribution(Attribution):
    """The parts of what `into` reads from the residual stream at each position."""

    SECTION: ClassVar = "readers"
    HEADING: ClassVar = "What a part of the model reads"
    into: str

    @property
    def name(self) -> str:
        """What its files are called."""
        return f"stream-attribution-{self.into}-by-{self.by}"

    @property
    def _of_what(self) -> str:
        return f"what {self.into} reads"

    @property
    def _stem(self) -> str:
        return f"into-{self.into}-by-{self.by}"
