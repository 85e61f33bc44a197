"""Results to one self-contained page that can be explored, with the numbers beside it.

The page needs no network: its Content-Security-Policy forbids every request, and lets run only the
one script and the one style sheet whose hashes it names. It is a pure function of what it is given:
the same inputs give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from interp import files
from interp.analysis.causal.effects import ComponentEffects
from interp.analysis.causal.patching import Patching
from interp.analysis.causal.shapley import ShapleyValues
from interp.analysis.circuits.circuits import CopyingScores, PathEffects
from interp.analysis.direct.attribution import LogitAttribution, StreamAttribution
from interp.analysis.direct.lens import LogitLens, Predictions
from interp.analysis.heads.cards import HeadCard
from interp.analysis.heads.formation import Formation
from interp.analysis.heads.labels import HeadLabels
from interp.analysis.heads.patterns import AttentionPatterns
from interp.analysis.heads.scores import HeadScores
from interp.analysis.scaling.rescaled import AttentionScaling
from interp.analysis.self_test import ModelChecks
from interp.errors import CheckpointError, ConfigError, OutputError
from interp.gpt.folder import model_hash
from interp.gpt.model import HookedGPT
from interp.lesson.ngrams import NGramLosses
from interp.pages import figures
from interp.pages.findings import findings
from interp.results.result import Result
from interp.training.history import HistoryRow

FORMAT = "gpt-interp-report/2"
RESULTS = "results"  # where the command keeps what it computed, to use it again
DIGITS = 7  # of a number in a table of the page
FINE, COARSE = 1, 10  # quanta to which large maps are rounded
REPLACED = ("figures/*.png", "figures/*.svg", "tables/*.csv")  # an earlier report's
MOST_ROWS = 200_000  # of a table written beside the page
PAGE_DPI = 160
CSS_PIXELS_PER_INCH = 96

VIEWS = {  # what the script draws, from the first result of each kind
    LogitLens: "lens",
    Predictions: "explorer",
    AttentionPatterns: "attention",
    LogitAttribution: "contributions",
    ComponentEffects: "effects",
    AttentionScaling: "scaling",
    HeadScores: "head-scores",
    HeadLabels: "head-labels",
}
HEADINGS = {  # what is shown as a figure
    StreamAttribution: ("readers", "What a part of the model reads"),
    ShapleyValues: ("shapley", "Fair shares"),
    ComponentEffects: ("more-effects", "Effects by other replacements"),
    PathEffects: ("paths", "Who reads whom"),
    Patching: ("patching", "Where the difference between two prompts sits"),
    AttentionScaling: ("more-scaling", "The scale of attention scores, in other ways"),
    Formation: ("formation", "How the heads formed"),
}
LONG = (
    LogitLens,
    Predictions,
    AttentionPatterns,
    LogitAttribution,
    Formation,
)  # no table in the page


@dataclass
class _Section:
    id: str
    heading: str
    figures: list[dict[str, Any]] = field(default_factory=list)


def write_report(
    folder: str | Path,
    model: HookedGPT,
    results: Sequence[Result],
    *,
    title: str | None = None,
    history: Sequence[HistoryRow] = (),
    baselines: NGramLosses | None = None,
    cards: Sequence[HeadCard] = (),
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
        results: what to show, of one model.
        title: the report's title; by default the folder's name.
        history: the model's training history.
        baselines: losses of count models on the same text.
        cards: of heads.
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
        "history": [asdict(row) for row in history],
        "baselines": None if baselines is None else asdict(baselines),
        "sample": sample,
        "sample_seed": sample_seed,
    }
    whole = document | {"results": [result.to_document() for result in results]}
    with files.write_into(folder, last="report.html", replacing=REPLACED) as stage:
        files.write_text(stage / "results.json", _json(whole) + "\n")
        captions, sections, tables = _results(results, stage)
        if history:
            last = history[-1]
            captions["training"] = (
                f"Loss while training on {last.tokens:,} characters ({last.seconds:.0f} s); the "
                "validation split is read whole, each character predicted once."
            )
            if baselines is not None:
                captions["training"] += (
                    " Dashed: counts of the characters before, up to order "
                    f"{max(baselines.orders)} (add-{baselines.constant:g})."
                )
            figures.save_figure(figures.loss_curve(history), stage / "figures" / "loss")
        embedded = document | {
            "tables": {name: _table(frame) for name, frame in tables.items() if len(frame) <= 2000},
            "cards": {card.head: _card(card) for card in cards},
        }
        css, script = asset("assets/report.css"), asset("assets/report.js")

        def page_of(rounded: list[dict[str, Any]]) -> str:
            return template().render(
                title=title, css=css, script=script, css_hash=_hash(css),
                script_hash=_hash(script), config=model.config,
                n_parameters=sum(p.numel() for p in model.parameters()),
                history=list(history), uniform=math.log(model.config.d_vocab),
                counts=[] if baselines is None else
                list(zip(baselines.orders, baselines.losses, strict=True)),
                findings=findings(results, history, baselines), captions=captions,
                sections=sections, checks=_checks(results), provenance=_provenance(results),
                steps=_steps(rounded), sample=sample, sample_seed=sample_seed,
                results_json=_json(embedded | {"results": rounded}).replace("<", "\\u003c"),
            )  # fmt: skip

        files.write_text(stage / "report.html", _fitting(results, page_of, max_mb))
    return folder / "report.html"


def _fitting(
    results: Sequence[Result], page_of: Callable[[list[dict[str, Any]]], str], max_mb: float
) -> str:
    """The page of the finest steps that make it small enough."""
    for quanta in (FINE, COARSE):
        page = page_of([result.to_document(quanta=quanta) for result in results])
        size = len(page.encode("utf-8")) / 1e6
        if size <= max_mb:
            return page
    raise OutputError(
        f"the page would have {size:.1f} MB, more than {max_mb:g}; give a shorter passage or fewer "
        "sections, or raise --max-mb"
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
        f"{one['kind']}{' by ' + one['by'] if 'by' in one else ''}: {field['quantum']:.1g}"
        for one in documents
        for field in one.values()
        if isinstance(field, dict) and "quantum" in field
    }
    return ", ".join(sorted(found))


def _table(frame: pd.DataFrame) -> dict[str, Any]:
    """Columns and rows as JSON has them; what is not known is null."""

    def plain(x: Any) -> Any:
        x = x.item() if isinstance(x, np.generic) else x
        if not isinstance(x, float):
            return x
        return float(f"{x:.{DIGITS}g}") if math.isfinite(x) else None

    rows = [
        [plain(x) for x in row] for row in frame.astype(object).itertuples(index=False, name=None)
    ]
    return {"columns": [str(column) for column in frame.columns], "rows": rows}


def _card(card: HeadCard) -> dict[str, Any]:
    return {
        "copying": card.copying,
        "examples": [
            {"weight": one.weight, "key": card.text(one.sequence, one.key, one.key + 1),
             "back": one.query - one.key,
             "text": card.text(one.sequence, max(0, one.query - 12), one.query + 1)}
            for one in card.examples
        ],
        "writes": [
            {"token": card.glyph(one.token), "raises": card.raised(one)} for one in card.writes
        ],
    }  # fmt: skip


def read_report(path: str | Path) -> dict[str, Any]:
    """Returns what a report holds: title, config, history, sample, and `results` as `Result`s.

    Args:
        path: a `report.html` or `results.json`.

    Raises:
        CheckpointError: missing, damaged, or not a report.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".html":
            found = re.search(
                r'<script type="application/json" id="results">(.*?)</script>', text, re.S
            )
            text = found[1] if found else ""
        document = json.loads(text)
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']!r}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is not a report of this package: {error}") from error
    document["results"] = [Result.from_document(one) for one in document["results"]]
    found_document: dict[str, Any] = document
    return found_document


def _check_model(model: HookedGPT, results: Sequence[Result]) -> None:
    if not results:
        raise ConfigError("a report needs at least one result")
    own = model_hash(model)
    for result in results:
        if result.provenance.model != own:
            raise ConfigError(
                f"a {type(result).__name__} is of the model {result.provenance.model[:8]}…, but "
                f"the report is of {own[:8]}…; make it again with this model"
            )


def check_free(folder: Path, title: str) -> None:
    """Checks that a report of this title may be written into `folder`.

    Raises:
        OutputError: it is a file, or holds something else.
    """
    if folder.is_file():
        raise OutputError(f"{folder} is a file; choose another --out")
    if not folder.is_dir() or not {p.name for p in folder.iterdir()} - {RESULTS}:
        return
    try:
        held = read_report(folder / "results.json")["title"]
    except CheckpointError:
        held = None
    if held != title:
        what = f"the report of {held!r}" if held else "something that is not a report"
        raise OutputError(f"{folder} already holds {what}; choose another --out or remove it")


def _results(
    results: Sequence[Result], folder: Path
) -> tuple[dict[str, str], list[_Section], dict[str, pd.DataFrame]]:
    """Captions of the script's views, sections of figures, and the tables; writes their files."""
    captions: dict[str, str] = {}
    sections: dict[str, _Section] = {}
    tables: dict[str, pd.DataFrame] = {}
    used: dict[str, int] = {}
    for result in results:
        kind = type(result)
        suffix = _suffix(_table_name(result), used)
        name = _table_name(result) + suffix
        frame = result.to_frame()
        if len(frame) <= MOST_ROWS:  # of more, results.json has them
            csv = frame.to_csv(index=False, lineterminator="\n")
            files.write_text(folder / "tables" / f"{name}.csv", csv)
        view = VIEWS.get(kind)
        first = view is not None and view not in captions
        if isinstance(result, AttentionScaling) and result.each:
            first = False
        if not isinstance(result, LONG):
            tables[view if first and view else name] = frame
        for figure_name, (figure, caption) in _drawn(result).items():
            if kind in HEADINGS and not first:
                shown = figure_of(figure_name + suffix, figure, caption, folder, name)
                id, heading = HEADINGS[kind]
                sections.setdefault(id, _Section(id, heading)).figures.append(shown)
                continue
            figures.save_figure(figure, folder / "figures" / (figure_name + suffix))
            if first and view is not None:
                captions.setdefault(view, caption)
        if first and view is not None:
            captions.setdefault(view, "")
    return captions, list(sections.values()), tables


def _drawn(result: Result) -> dict[str, tuple[Figure, str]]:
    """The figures of a result; none of a kind that is a table only, nor of what the page draws for
    any position and head: bars at one position, thousands of rows by source."""
    by_source = isinstance(result, LogitAttribution) and result.by == "source"
    if by_source or isinstance(result, ModelChecks | CopyingScores | Predictions):
        return {}
    drawn = figures.figures_of(result).items()
    return {name: pair for name, pair in drawn if not name.endswith("-at-one-position")}


def _suffix(name: str, used: dict[str, int]) -> str:
    """What keeps a second result of the same kind from overwriting the first one's files."""
    used[name] = used.get(name, 0) + 1
    return "" if used[name] == 1 else f"-{used[name]}"


def _table_name(result: Result) -> str:
    name = type(result).__name__
    match result:
        case StreamAttribution():
            return f"{name}-{result.into}-by-{result.by}"
        case LogitAttribution():
            return f"{name}-by-{result.by}"
        case AttentionScaling():
            return f"{name}-{'each' if result.each else 'all'}-{result.inputs.replace(' ', '-')}"
        case ComponentEffects():
            return f"{name}-{result.ablate}-{result.metric}"
        case Patching():
            return f"{name}-{result.what}-{result.direction}".replace(" ", "-")
    return name


def _checks(results: Sequence[Result]) -> list[tuple[str, str]]:
    """The self-test, and how far each attribution missed the model's own logits."""
    rows = [
        (f"largest miss of the model's logits, by {r.by}",
         f"{r.completeness_error.max():.1e} logits (tolerance at least {r.tolerance.min():.1e}); "
         f"{r.values.shape[2]} positions × {r.values.shape[0]} components")
        for r in results if isinstance(r, LogitAttribution)
    ]  # fmt: skip
    for r in results:
        if isinstance(r, ModelChecks):
            rows += [(name, _outcome(r, i)) for i, name in enumerate(r.names)]
    return rows


def _outcome(checks: ModelChecks, i: int) -> str:
    if checks.notes[i]:
        return f"{checks.outcomes[i]}: {checks.notes[i]}"
    return (
        f"{checks.outcomes[i]}: largest relative difference {checks.errors[i]:.1e} "
        f"(tolerance {checks.tolerances[i]:.0e})"
    )


def _provenance(results: Sequence[Result]) -> list[tuple[str, str]]:
    p = results[0].provenance
    seeds = sorted({r.provenance.seed for r in results if r.provenance.seed is not None})
    tokens = dict.fromkeys(r.provenance.tokens for r in results)
    return [
        ("model (SHA-256)", p.model),
        ("tokens (SHA-256)", ", ".join(tokens)),
        ("dtype", p.dtype),
        ("seeds of the results", ", ".join(map(str, seeds)) or "none: nothing in them is sampled"),
        ("versions", ", ".join(f"{name} {version}" for name, version in p.versions.items())),
    ]


def figure_of(
    name: str, figure: Figure, caption: str, folder: Path, table: str = ""
) -> dict[str, Any]:
    """Returns a figure as the page shows it; writes it to `figures/` too."""
    figures.save_figure(figure, folder / "figures" / name)
    data = base64.b64encode(figures.png(figure, PAGE_DPI)).decode("ascii")
    width = round(figure.get_figwidth() * CSS_PIXELS_PER_INCH)
    return {"name": name, "png": data, "caption": caption, "width": width, "table": table}


def asset(name: str) -> str:
    """Returns a file that comes with the package."""
    return (resources.files("interp.pages") / name).read_text(encoding="utf-8")


def template(name: str = "templates/report.html") -> jinja2.Template:
    """Returns a page's template; everything put into it is escaped."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(asset(name))
