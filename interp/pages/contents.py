"""What stands where on a model's page: sections, figures, tables, findings, provenance."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from interp.results.document import INLINE_IN_PAGE, encode
from interp.results.result import Result
from interp.results.shown import Shown

DIGITS = 7  # of a number in a table or a figure of the page
ROWS_IN_PAGE = 2000
FINDINGS = 3
VIEWS = {  # the instruments: id of their section, its heading, what to know
    "explorer": (
        "text",
        "The text, position by position",
        "Choose a character by a click or with the arrow keys. The query at position t predicts "
        "the character at t + 1. Everything on this page follows the position and the head that "
        "are selected; both stand in the address.",
    ),
    "atlas": (
        "heads",
        "What the heads look at",
        "A name is given only where a score stands above every null on two halves of the text, and "
        "where taking the head away hurts the behaviour that the name is about, and at least twice "
        "as much as a control. Most heads have none, and that is an answer.",
    ),
}


@dataclass
class Section:
    """A part of the page: instruments, figures, and tables of results without figures."""

    id: str
    heading: str
    text: str = ""
    views: list[str] = field(default_factory=list)
    figures: list[dict[str, str]] = field(default_factory=list)
    tables: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Named:
    """A result, the name of its files here, its figures and its table."""

    result: Result
    name: str
    shown: list[Shown]
    table: pd.DataFrame

    @property
    def has_table(self) -> bool:
        """True when its table stands in the page."""
        return self.result.TABLE_IN_PAGE and len(self.table) <= ROWS_IN_PAGE


def name_results(results: Sequence[Result]) -> list[Named]:
    """Returns the results with names of their own for their tables and figures."""
    tables, figures = _Names(), _Names()
    return [
        Named(
            result,
            tables.free(result.name),
            [one.called(figures.free(one.name)) for one in result.shown() if not one.detail],
            result.to_frame(),
        )
        for result in results
    ]


class _Names:
    """Names that were given out."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def free(self, name: str) -> str:
        """Returns the name, or, if it was given out before, the first free one with a number."""
        numbered = (f"{name}-{k}" for k in itertools.count(2))
        found = next(one for one in itertools.chain([name], numbered) if one not in self.used)
        self.used.add(found)
        return found


def sections(named: Sequence[Named]) -> list[Section]:
    """The page's sections: those of the instruments first, then in the order of the results."""
    found: dict[str, Section] = {}
    for view, (id, heading, text) in VIEWS.items():
        if any(view in one.result.VIEWS for one in named):
            found[id] = Section(id, heading, text, [view])
    for one in named:
        figures = [shown for shown in one.shown if shown.on_page]
        lonely = not one.shown and one.has_table and not one.result.checks()
        if not figures and not lonely:
            continue
        id = one.result.section
        section = found.setdefault(id, Section(id, one.result.heading))
        table = one.name if one.has_table else ""
        section.figures += [
            {"name": shown.name, "caption": shown.caption, "table": table} for shown in figures
        ]
        if lonely:
            section.tables.append({"name": one.name, "caption": one.result.heading})
    return list(found.values())


def marks(named: Sequence[Named]) -> list[dict[str, Any]]:
    """What the script draws."""
    return [
        {
            "section": one.result.section, "name": shown.name, "caption": shown.caption,
            "table": one.name if one.has_table else "",
            "mark": shown.mark.to_document(_array_of_mark),
        }
        for one in named for shown in one.shown if shown.on_page
    ]  # fmt: skip


def _array_of_mark(array: np.ndarray) -> Any:
    """An array of a mark, rounded for the eye; NaN is null, or a NaN where it is compressed."""
    if array.size > INLINE_IN_PAGE:
        return encode(array.astype("<f4"), INLINE_IN_PAGE, 1e-12)
    values = [_digits(float(x)) for x in array.ravel()]
    return {"dtype": "<f8", "shape": list(array.shape), "values": values}


def _digits(x: float) -> float | None:
    return float(f"{x:.{DIGITS}g}") if math.isfinite(x) else None


def table(frame: pd.DataFrame) -> dict[str, Any]:
    """Columns and rows as JSON has them; what is not known is null."""

    def plain(x: Any) -> Any:
        x = x.item() if isinstance(x, np.generic) else x
        return _digits(x) if isinstance(x, float) else x

    rows = [
        [plain(x) for x in row] for row in frame.astype(object).itertuples(index=False, name=None)
    ]
    return {"columns": [str(column) for column in frame.columns], "rows": rows}


def findings(results: Sequence[Result]) -> list[dict[str, str]]:
    """The first few findings by their rank, one of each kind, and where their evidence stands."""
    found: dict[type[Result], tuple[int, dict[str, str]]] = {}
    for result in results:
        finding = result.finding()
        if finding is not None:
            row = {"text": finding.text, "section": result.section, "select": finding.select}
            found.setdefault(type(result), (finding.rank, row))
    ranked = sorted(found.values(), key=lambda pair: pair[0])
    return [row for _, row in ranked[:FINDINGS]]


def provenance(results: Sequence[Result]) -> list[tuple[str, str]]:
    p = next((r.provenance for r in results if r.provenance.model), results[0].provenance)
    seeds = sorted({r.provenance.seed for r in results if r.provenance.seed is not None})
    tokens = dict.fromkeys(r.provenance.tokens for r in results)
    return [
        ("model (SHA-256)", p.model),
        ("tokens (SHA-256)", ", ".join(tokens)),
        ("dtype", p.dtype),
        ("seeds of the results", ", ".join(map(str, seeds)) or "none: nothing in them is sampled"),
        ("versions", ", ".join(f"{name} {version}" for name, version in p.versions.items())),
    ]
