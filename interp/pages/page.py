"""Results to one self-contained page that can be explored, with the numbers beside it.

The page needs no network: its Content-Security-Policy forbids every request, and lets run only the
one script and the one style sheet whose hashes it names. It is a pure function of what it is given:
the same inputs give the same bytes.

It knows no kind of result. Each says its section, its figures, its table, its checks and its
finding; what the script draws beyond marks are two instruments, which look themselves for what they
need (`Result.VIEWS` says that there is something for them).
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from interp import files
from interp.errors import ConfigError, OutputError
from interp.figures import palette
from interp.figures.draw import draw, save_figure
from interp.gpt.folder import model_hash
from interp.gpt.model import HookedGPT
from interp.pages import script
from interp.pages.reading import FORMAT, check_free
from interp.results.document import INLINE_IN_PAGE, encode
from interp.results.result import Result, Shown

DIGITS = 7  # of a number in a table or a figure of the page
FINE, COARSE = 1, 10  # quanta to which large maps are rounded
REPLACED = ("figures/*.png", "figures/*.svg", "tables/*.csv")  # an earlier report's
MOST_ROWS = 200_000  # of a table written beside the page
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


def write_report(
    folder: str | Path,
    model: HookedGPT,
    results: Sequence[Result],
    *,
    title: str | None = None,
    sample: str = "",
    sample_seed: int | None = None,
    max_mb: float = 3.0,
) -> Path:
    """Writes `report.html`, `results.json`, `figures/` and `tables/`; returns the page's path.

    Nothing is there before all of it is made, and the page goes there last. Large arrays stand in
    it as two bytes a number (`Result.QUANTA` says how finely), ten times as coarse where the page
    would be too large otherwise; `results.json` has them as they are.

    Args:
        folder: where; an earlier report of the same title there is replaced, anything else refused.
        model: the model that the results are about.
        results: what to show, of one model; sections stand in their order.
        title: the report's title; by default the folder's name.
        sample: text that the model wrote.
        sample_seed: the seed it was sampled with.
        max_mb: the page may not be larger.

    Raises:
        OutputError: the folder cannot be written, or holds something else; the page is too large.
        ConfigError: no results, or results that are not of this model.
    """
    folder = Path(folder)
    title = folder.name if title is None else title
    _check_model(model, results)
    check_free(folder, title)
    document = {
        "format": FORMAT,
        "title": title,
        "config": model.config.model_dump(),
        "sample": sample,
        "sample_seed": sample_seed,
    }
    named = name_results(results)
    with files.write_into(folder, last="report.html", replacing=REPLACED) as stage:
        whole = document | {"results": [result.to_document() for result in results]}
        files.write_text(stage / "results.json", _json(whole) + "\n")
        _write_files(stage, named)
        fixed = {
            "title": title, "lead": _lead(model), "findings": _findings(results),
            "sections": _sections(named), "provenance": _provenance(results),
            "checks": [row for result in results for row in result.checks()],
            "sample": sample, "sample_seed": sample_seed,
        }  # fmt: skip
        embedded = document | {
            "palette": palette.to_document(),
            "tables": {one.name: _table(one.table) for one in named if one.has_table},
            "figures": _marks(named),
        }
        files.write_text(stage / "report.html", _fitting(named, fixed, embedded, max_mb))
    return folder / "report.html"


def name_results(results: Sequence[Result]) -> list[Named]:
    """Returns the results with names of their own for their tables and figures."""
    tables, figures = _Names(), _Names()
    return [
        Named(
            result,
            tables.free(result.name),
            [one.called(figures.free(one.name)) for one in result.shown()],
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


def _write_files(folder: Path, named: Sequence[Named]) -> None:
    """The figures and tables beside the page."""
    for one in named:
        if len(one.table) <= MOST_ROWS:  # of more, results.json has them
            csv = one.table.to_csv(index=False, lineterminator="\n")
            files.write_text(folder / "tables" / f"{one.name}.csv", csv)
        for shown in one.shown:
            save_figure(draw(shown.mark, shown.line), folder / "figures" / shown.name)


def _sections(named: Sequence[Named]) -> list[Section]:
    """The page's sections: those of the instruments first, then in the order of the results."""
    sections: dict[str, Section] = {}
    for view, (id, heading, text) in VIEWS.items():
        if any(view in one.result.VIEWS for one in named):
            sections[id] = Section(id, heading, text, [view])
    for one in named:
        figures = [shown for shown in one.shown if shown.on_page]
        lonely = not one.shown and one.has_table and not one.result.checks()
        if not figures and not lonely:
            continue
        id = one.result.section
        section = sections.setdefault(id, Section(id, one.result.heading))
        table = one.name if one.has_table else ""
        section.figures += [
            {"name": shown.name, "caption": shown.caption, "table": table} for shown in figures
        ]
        if lonely:
            section.tables.append({"name": one.name, "caption": one.result.heading})
    return list(sections.values())


def _marks(named: Sequence[Named]) -> list[dict[str, Any]]:
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


def _fitting(
    named: Sequence[Named], fixed: dict[str, Any], embedded: dict[str, Any], max_mb: float
) -> str:
    """The page of the finest steps that make it small enough."""
    css, code = script.css(), script.script()
    for quanta in (FINE, COARSE):
        rounded = [
            one.result.to_document(quanta=quanta)
            | {"name": one.name, "table": one.name if one.has_table else ""}
            for one in named
        ]
        page = template().render(
            **fixed, css=css, script=code, css_hash=_hash(css), script_hash=_hash(code),
            steps=_steps(rounded),
            results_json=_json(embedded | {"results": rounded}).replace("<", "\\u003c"),
        )  # fmt: skip
        size = len(page.encode("utf-8")) / 1e6
        if size <= max_mb:
            return page
    raise OutputError(
        f"the page would have {size:.1f} MB, more than max_mb = {max_mb:g}; give a shorter passage "
        "or fewer results, or raise max_mb"
    )


def _json(document: Any) -> str:
    return json.dumps(document, ensure_ascii=True, allow_nan=False)


def _hash(text: str) -> str:
    """A source expression of a Content-Security-Policy."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _steps(documents: Sequence[dict[str, Any]]) -> str:
    """How finely large maps stand in the page, in words."""
    found = {
        f"{one['name']}: {value['quantum']:.1g}"
        for one in documents
        for value in one.values()
        if isinstance(value, dict) and "quantum" in value
    }
    return ", ".join(sorted(found))


def _table(frame: pd.DataFrame) -> dict[str, Any]:
    """Columns and rows as JSON has them; what is not known is null."""

    def plain(x: Any) -> Any:
        x = x.item() if isinstance(x, np.generic) else x
        return _digits(x) if isinstance(x, float) else x

    rows = [
        [plain(x) for x in row] for row in frame.astype(object).itertuples(index=False, name=None)
    ]
    return {"columns": [str(column) for column in frame.columns], "rows": rows}


def _check_model(model: HookedGPT, results: Sequence[Result]) -> None:
    if not results:
        raise ConfigError("a report needs at least one result")
    own = model_hash(model)
    for result in results:
        if result.provenance.model not in ("", own):
            raise ConfigError(
                f"a {type(result).__name__} is of the model {result.provenance.model[:8]}…, but "
                f"the report is of {own[:8]}…; make it again with this model"
            )


def _lead(model: HookedGPT) -> str:
    cfg = model.config
    n = sum(p.numel() for p in model.parameters())
    return (
        f"A pre-norm GPT of {n:,} weights: {cfg.n_layers} layers × {cfg.n_heads} heads, width "
        f"{cfg.d_model}, context {cfg.n_ctx}, {cfg.d_vocab} characters. Guessing evenly costs "
        f"{math.log(cfg.d_vocab):.3f} nats per character."
    )


def _findings(results: Sequence[Result]) -> list[dict[str, str]]:
    """The first few findings by their rank, one of each kind, and where their evidence stands."""
    found: dict[type[Result], tuple[int, dict[str, str]]] = {}
    for result in results:
        finding = result.finding()
        if finding is not None:
            row = {"text": finding.text, "section": result.section, "select": finding.select}
            found.setdefault(type(result), (finding.rank, row))
    ranked = sorted(found.values(), key=lambda pair: pair[0])
    return [row for _, row in ranked[:FINDINGS]]


def _provenance(results: Sequence[Result]) -> list[tuple[str, str]]:
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


def template(name: str = "report.html") -> jinja2.Template:
    """Returns a page's template; everything put into it is escaped."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    text = (resources.files("interp.pages") / "templates" / name).read_text(encoding="utf-8")
    return environment.from_string(text)
