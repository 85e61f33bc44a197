"""A study's own page: what was asked, tables, figures, in one file that opens anywhere.

Like the model's report it needs no network and runs no code; its tables lie beside it as CSV.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Number
from pathlib import Path
from typing import Any, Self

import pandas as pd

from interp import files
from interp.figures.draw import draw, png, save_figure
from interp.pages import script
from interp.pages.contents import name_results
from interp.pages.page import template
from interp.results.result import Result
from interp.results.shown import Shown

PAGE_DPI = 160
CSS_PIXELS_PER_INCH = 96
LONGEST = 60  # rows of a table that stands in the page


@dataclass(frozen=True, kw_only=True)
class StudySection:
    """One part of a page: text, figures, tables.

    `tables` are name → table, written to `tables/<name>.csv` with all their digits; the page
    rounds to `digits`.
    """

    heading: str
    text: Sequence[str] = ()
    figures: Sequence[Shown] = ()
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    digits: int = 4

    @classmethod
    def of(
        cls, *results: Result, heading: str | None = None, text: Sequence[str] = (), digits: int = 4
    ) -> Self:
        """Returns the section of one or more results: their figures, and their tables."""
        named = name_results(results)
        return cls(
            heading=results[0].heading if heading is None else heading,
            text=text,
            figures=[shown for one in named for shown in one.shown],
            tables={one.name: one.table for one in named},
            digits=digits,
        )


def write_study(
    folder: str | Path, title: str, lead: str, sections: Sequence[StudySection]
) -> Path:
    """Writes `report.html`, `figures/` and `tables/` into `folder`; returns the page's path.

    The page is a pure function of its arguments: the same inputs give the same bytes.

    Args:
        folder: where.
        title: of the page.
        lead: a paragraph: what was asked and what was found.
        sections: the rest.

    Raises:
        OutputError: the folder cannot be written.
    """
    folder = Path(folder)
    shown = []
    for number, section in enumerate(sections):
        for name, table in section.tables.items():
            csv = table.to_csv(index=False, lineterminator="\n")
            files.write_text(folder / "tables" / f"{name}.csv", csv)
        shown.append(
            {
                "id": f"part-{number}",
                "heading": section.heading,
                "text": list(section.text),
                "figures": [_figure(one, folder) for one in section.figures],
                "tables": [_shown(n, t, section.digits) for n, t in section.tables.items()],
            }
        )
    page = template("study.html").render(
        title=title, lead=lead, sections=shown, css=script.css(), longest=LONGEST
    )
    files.write_text(folder / "report.html", page)
    return folder / "report.html"


def _figure(shown: Shown, folder: Path) -> dict[str, Any]:
    """A figure as the page shows it; written to `figures/` too."""
    figure = draw(shown.mark, shown.line)
    data = base64.b64encode(png(figure, PAGE_DPI)).decode("ascii")
    width = round(figure.get_figwidth() * CSS_PIXELS_PER_INCH)
    save_figure(figure, folder / "figures" / shown.name)
    return {"name": shown.name, "png": data, "caption": shown.caption, "width": width}


def _shown(name: str, table: pd.DataFrame, digits: int) -> dict[str, Any]:
    rows = [
        [(_cell(value, digits), isinstance(value, Number)) for value in row]
        for row in table.head(LONGEST).itertuples(index=False)
    ]
    columns = [str(c) for c in table.columns]
    return {"name": name, "columns": columns, "rows": rows, "n": len(table)}


def _cell(value: Any, digits: int) -> str:
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return ""  # not known
    return f"{value:,.0f}" if value.is_integer() else f"{value:.{digits}f}"
