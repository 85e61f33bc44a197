"""The parts of any number at each position of a passage: what is kept, checked and shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from torch import Tensor

from interp.analysis.direct.passage import MANY, largest_rows, over_the_passage, with_characters
from interp.errors import ConfigError, nearest
from interp.figures.marks import Bars, HeatMap
from interp.gpt.folder import AnyModel
from interp.results.document import to_numpy
from interp.results.provenance import Provenance
from interp.results.result import Result
from interp.results.shown import Shown, kept
from interp.stream.tolerance import TOLERANCE, check_complete

LARGEST = 20  # one by one in a summary, if there are many


@dataclass(frozen=True, kw_only=True, repr=False)
class Attribution(Result):
    """The parts of one number at each position.

    `values` [component, batch, pos]; `total` [batch, pos] is the number as the model itself
    computed it; `completeness_error` = |Σ values − total|, at most `tolerance`.
    """

    AXES: ClassVar[dict[str, tuple[str, ...]]] = {
        "values": ("component", "batch", "pos"),
        "total": ("batch", "pos"),
        "completeness_error": ("batch", "pos"),
        "tolerance": ("batch", "pos"),
        "tokens": ("batch", "pos"),
    }
    NAMES: ClassVar = {"components": "component"}
    QUANTA: ClassVar = {"values": 1e-4}
    values: np.ndarray
    total: np.ndarray
    completeness_error: np.ndarray
    tolerance: np.ndarray
    tokens: np.ndarray
    components: tuple[str, ...]
    characters: tuple[str, ...] | None
    by: str
    TABLE_IN_PAGE: ClassVar = False

    @classmethod
    def checked(
        cls,
        model: AnyModel,
        tokens: Int[Tensor, "batch all_pos"],
        rows: tuple[list[str], Float[Tensor, "component batch pos"]],
        total: Float[Tensor, "batch pos"],
        **fields: Any,
    ) -> Self:
        """Returns the attribution, if its rows sum to the total.

        Raises:
            CompletenessError: they do not, within 1e-5·(1 + Σ|row|) in float32 or
                1e-12·(1 + Σ|row|) in float64.
        """
        labels, values = rows
        tolerance = TOLERANCE[model.dtype] * (1 + values.abs().sum(0))
        error = (values.sum(0) - total).abs()
        check_complete(error, tolerance)
        return cls(
            values=to_numpy(values),
            total=to_numpy(total),
            completeness_error=to_numpy(error),
            tolerance=to_numpy(tolerance),
            tokens=to_numpy(tokens[:, : total.shape[1]]),
            components=tuple(labels),
            characters=None if model.tokenizer is None else model.tokenizer.characters,
            provenance=Provenance.of(model, tokens),
            **fields,
        )

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns columns batch, pos, component, contribution.

        By source also source and source_token: the position that the row came from and the token
        there, −1 for rows that have none; and source_token_char, its character.
        """
        return self._frame()

    def _frame(self) -> pd.DataFrame:
        n, batch, pos = self.values.shape
        b, p = np.meshgrid(np.arange(batch), np.arange(pos), indexing="ij")
        frame = pd.DataFrame(
            {
                "batch": np.tile(b.ravel(), n),
                "pos": np.tile(p.ravel(), n),
                "component": np.repeat(np.array(self.components), batch * pos),
                "contribution": self.values.ravel(),
            }
        )
        if self.by == "source":
            source = np.repeat(self._sources(), batch * pos)
            token = self.tokens[frame["batch"], np.maximum(source, 0)]
            columns = {"source_token": np.where(source < 0, -1, token)}
            frame = frame.assign(source=source, **with_characters(columns, self.characters))
        return frame

    def by_source(self) -> np.ndarray:
        """Returns [key, batch, pos]: what came from each source position, through all heads.

        Raises:
            ConfigError: the attribution does not tell sources apart.
        """
        if self.by != "source":
            raise ConfigError(f"these rows are by {self.by}; make the attribution by='source'")
        out = np.zeros((self.tokens.shape[1], *self.values.shape[1:]), dtype=self.values.dtype)
        sources = self._sources()
        np.add.at(out, sources[sources >= 0], self.values[sources >= 0])
        return out

    def _sources(self) -> np.ndarray:
        """Each row's source position; −1 where it has none."""
        found = (re.search(r"(?:^|\.)S(\d+)$", name) for name in self.components)
        return np.array([-1 if one is None else int(one[1]) for one in found])

    def row(self, component: str) -> np.ndarray:
        """Returns one component's contributions, [batch, pos].

        Raises:
            ConfigError: there is no such component.
        """
        if component not in self.components:
            raise ConfigError(
                f"no component {component!r} here{nearest(component, self.components)}"
            )
        row: np.ndarray = self.values[self.components.index(component)]
        return row

    # ---- what it shows -------------------------------------------------------------------

    @property
    def _of_what(self) -> str:
        return "the total"

    @property
    def _stem(self) -> str:
        """What names of figures begin with."""
        return f"contributions-by-{self.by}"

    @property
    def _columns(self) -> tuple[np.ndarray, str]:
        """The tokens [batch, pos] that stand below a map, and what they are."""
        return self.tokens, "token at each position"

    @property
    def _position(self) -> int:
        """The position of the first sequence whose total is the largest."""
        return int(np.abs(self.total[0]).argmax())

    def _caption(self) -> str:
        many = f" (the first of {len(self.tokens)})" if len(self.tokens) > 1 else ""
        return (
            f"Each {'source position' if self.by == 'source' else 'component'}'s direct "
            f"contribution to {self._of_what}, normalisation frozen; n = {self.values.shape[2]} "
            f"positions of one passage{many}; rows miss the model's own values by at most "
            f"{self.completeness_error.max():.1e}."
        )

    def figures(self) -> list[Shown]:
        """Returns a map position × component (by source: × source position, summed over heads), and
        the same at one position as bars.

        Of more than 40 components, the largest are drawn one by one and the others as their sum.
        """
        mark = self._source_map() if self.by == "source" else self._component_map()
        over = f"The same at position {self._position}, where the total is largest."
        return [
            Shown(name=self._stem, caption=self._caption(), mark=mark),
            Shown(name=f"{self._stem}-at-one-position", caption=over, mark=self._bars(),
                  on_page=False, detail=True),
        ]  # fmt: skip

    def _component_map(self) -> HeatMap:
        names, values = largest_rows(self.components, self.values[:, 0])
        return self._map(values, names, "")

    def _source_map(self) -> HeatMap:
        values = self.by_source()[:, 0].copy()  # [key pos]
        values[np.tril_indices(len(values), k=-1)] = np.nan  # keys after the query are masked
        return self._map(values, self.glyphs(self.tokens[0]), "source position")

    def _map(self, values: np.ndarray, rows: Sequence[str], row_label: str) -> HeatMap:
        limit = float(np.nanmax(np.abs(values))) or 1.0
        tokens, what = self._columns
        return HeatMap(
            values=values, rows=tuple(rows), columns=tuple(self.glyphs(tokens[0])),
            row_label=row_label, column_label=what, columns_are="positions",
            label=f"contribution to\n{self._of_what}", low=-limit, high=limit,
        )  # fmt: skip

    def _bars(self) -> Bars:
        pos = self._position
        names, values = largest_rows(self.components, self.values[:, 0, pos][:, None])
        return Bars(
            names=tuple(names), values=values[:, 0], label=f"contribution to {self._of_what}",
            title=f"{self._where(pos)}: they sum to {self.total[0, pos]:+.2f}",
        )  # fmt: skip

    def _where(self, pos: int) -> str:
        return f"after {self.glyphs(self.tokens[0])[pos]}"

    def picture(self, what: str = "") -> Shown:
        """Returns one of its figures, or one component's row over the passage ("L1.H2").

        Raises:
            ConfigError: there is neither.
        """
        if what not in self.components:
            return super().picture(what)
        tokens, x_label = self._columns
        label = f"contribution to {self._of_what}"
        mark = over_the_passage(what, self.row(what)[0], self.glyphs(tokens[0]), label, x_label)
        caption = f"What {what} contributes to {self._of_what} at each position of one passage."
        return Shown(name=f"{self._stem}-{what}", caption=caption, mark=mark)

    def summary(self) -> str:
        """Returns the rows at the last position of the first sequence, and their sum."""
        n = self.values.shape[2]
        where = f"the last: {self._where(n - 1)} ({self._of_what})"
        lines = [f"{n} positions; {where}; {self.provenance.line()}"]
        rows = sorted(enumerate(self.values[:, 0, -1]), key=lambda row: -abs(row[1]))
        largest = sorted(rows[:LARGEST] if len(rows) > MANY else rows)
        lines += [f"  {self.components[i]:<10} {value:+9.4f}" for i, value in largest]
        if others := rows[len(largest) :]:
            together = sum(value for _, value in others)
            lines.append(f"  {f'{len(others):,} others':<10} {together:+9.4f}")
        error = self.completeness_error.max()
        lines.append(f"  {'sum':<10} {self.total[0, -1]:+9.4f}   the model's own; rows miss it by "
                     f"at most {error:.1e}")  # fmt: skip
        return "\n".join(lines)
