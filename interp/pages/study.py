"""A study's own page: what was asked, tables, figures, in one file that opens anywhere.

Like the model's report it needs no network and runs no code; its tables lie beside it as CSV.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Number
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from interp import files
from interp.pages import page as html


@dataclass(frozen=True, kw_only=True)
class StudySection:
    """One part of a page. Figures are (name, figure, caption); a table is shown as it is printed.

    `tables` are name → table, written to `tables/<name>.csv` with all their digits; the page
    rounds to `digits`.
    """

    heading: str
    text: Sequence[str] = ()
    figures: Sequence[tuple[str, Figure, str]] = ()
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    digits: int = 4


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
                "figures": [html.figure_of(n, f, c, folder) for n, f, c in section.figures],
                "tables": [_shown(n, t, section.digits) for n, t in section.tables.items()],
            }
        )
    page = html.template("templates/study.html").render(
        title=title, lead=lead, sections=shown, css=html.asset("assets/report.css")
    )
    files.write_text(folder / "report.html", page)
    return folder / "report.html"


def _shown(name: str, table: pd.DataFrame, digits: int) -> dict[str, Any]:
    rows = [
        [(_cell(value, digits), isinstance(value, Number)) for value in row]
        for row in table.itertuples(index=False)
    ]
    return {"name": name, "columns": [str(c) for c in table.columns], "rows": rows}


def _cell(value: Any, digits: int) -> str:
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return ""  # not known
    return f"{value:,.0f}" if value.is_integer() else f"{value:.{digits}f}"
