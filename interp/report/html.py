"""Results to one self-contained page, with the figures, tables and numbers beside it.

The page needs no network and runs no code; its Content-Security-Policy forbids both. It is a pure
function of what it is given: the same inputs give the same bytes.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from matplotlib.figure import Figure

from interp import files
from interp.analysis.attention import AttentionPatterns
from interp.analysis.attribution import LogitAttribution, StreamAttribution
from interp.analysis.checks import ModelChecks
from interp.analysis.effects import ComponentEffects
from interp.analysis.lens import LogitLens
from interp.analysis.patching import Patching
from interp.analysis.results import Result
from interp.analysis.scaling import AttentionScaling
from interp.analysis.shapley import ShapleyValues
from interp.errors import CheckpointError, ConfigError, OutputError
from interp.gpt.checkpoint import model_hash
from interp.gpt.model import HookedGPT
from interp.gpt.tokenizer import visible
from interp.report import figures
from interp.training.history import HistoryRow

FORMAT = "gpt-interp-report/1"
PAGE_DPI = 160
CSS_PIXELS_PER_INCH = 96

HEADINGS = {
    LogitLens: ("passage", "What it predicts, and when"),
    AttentionPatterns: ("attention", "Where the heads look"),
    LogitAttribution: ("contributions", "Which part made the prediction"),
    StreamAttribution: ("readers", "What a part of the model reads"),
    ShapleyValues: ("shapley", "Fair shares"),
    ComponentEffects: ("effects", "What happens when a part is removed"),
    Patching: ("patching", "Where the difference between two prompts sits"),
    AttentionScaling: ("scaling", "What the scale of attention scores does"),
    ModelChecks: ("self-test", "What must not change, does not"),
}


@dataclass
class _Section:
    id: str
    heading: str
    text: list[str] = field(default_factory=list)
    figures: list[dict[str, Any]] = field(default_factory=list)
    passage: list[dict[str, Any]] = field(default_factory=list)
    rows: list[tuple[str, str]] = field(default_factory=list)
    table: str = ""
    sample: str = ""


def write_report(
    folder: str | Path,
    model: HookedGPT,
    results: Sequence[Result],
    *,
    title: str | None = None,
    history: Sequence[HistoryRow] = (),
    sample: str = "",
    sample_seed: int | None = None,
) -> Path:
    """Writes `report.html`, `results.json`, `figures/` and `tables/`; returns the page's path.

    The page is written last: while an old one is there, it is whole.

    Args:
        folder: where; an earlier report of the same title there is replaced, anything else refused.
        model: the model that the results are about.
        results: what to show, of one model.
        title: the report's title; by default the folder's name.
        history: the model's training history.
        sample: text that the model wrote.
        sample_seed: the seed it was sampled with.

    Raises:
        OutputError: the folder cannot be written, or holds something else.
        ConfigError: no results, or results that are not of this model.
    """
    folder = Path(folder)
    title = folder.name if title is None else title
    _check_model(model, results)
    _claim(folder, title)
    document = {
        "format": FORMAT,
        "title": title,
        "config": model.config.model_dump(),
        "history": [asdict(row) for row in history],
        "sample": sample,
        "sample_seed": sample_seed,
        "results": [result.to_document() for result in results],
    }
    results_json = json.dumps(document, ensure_ascii=True, allow_nan=False)
    files.write_text(folder / "results.json", results_json + "\n")
    sections = [_training(history, sample, sample_seed, folder)] if history or sample else []
    sections += _result_sections(results, folder)
    sections.append(_provenance(results))
    _remove_stale(folder, sections)
    page = template().render(
        title=title,
        css=asset("assets/report.css"),
        config=model.config,
        n_parameters=sum(p.numel() for p in model.parameters()),
        history=list(history),
        uniform=math.log(model.config.d_vocab),
        sections=sections,
        results_json=results_json.replace("<", "\\u003c"),
    )
    files.write_text(folder / "report.html", page)
    return folder / "report.html"


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


def _claim(folder: Path, title: str) -> None:
    if folder.is_file():
        raise OutputError(f"{folder} is a file; choose another --out")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    try:
        held = read_report(folder / "results.json")["title"]
    except CheckpointError:
        held = None
    if held != title:
        what = f"the report of {held!r}" if held else "something that is not a report"
        raise OutputError(f"{folder} already holds {what}; choose another --out or remove it")


def _training(
    history: Sequence[HistoryRow], sample: str, seed: int | None, folder: Path
) -> _Section:
    section = _Section("training", "How good it is")
    if history:
        last = history[-1]
        caption = (
            f"Loss while training on {last.tokens:,} characters ({last.seconds:.0f} s); the "
            "validation split is read whole, each character predicted once."
        )
        section.figures.append(figure_of("loss", figures.loss_curve(history), caption, folder, ""))
    if sample:
        how = "" if seed is None else f" (sampled with seed {seed})"
        section.text.append(f"Text that it wrote{how}:")
        section.sample = sample
    return section


def _result_sections(results: Sequence[Result], folder: Path) -> list[_Section]:
    sections: dict[str, _Section] = {}
    used: dict[str, int] = {}
    for kind, (id, heading) in HEADINGS.items():
        for result in results:
            if not isinstance(result, kind):
                continue
            section = sections.setdefault(id, _Section(id, heading))
            suffix = _suffix(_table_name(result), used)
            table = _table_name(result) + suffix
            csv = result.to_frame().to_csv(index=False, lineterminator="\n")
            files.write_text(folder / "tables" / f"{table}.csv", csv)
            if isinstance(result, LogitLens):
                section.text = [
                    "The passage. The darker a character, the better the model foresaw it; hold "
                    "the pointer over one to see its probability, its rank and what was likelier."
                ]
                section.passage = _passage(result)
            if isinstance(result, ModelChecks):
                section.rows = [(name, _outcome(result, i)) for i, name in enumerate(result.names)]
                section.table = table
                continue
            for name, (figure, caption) in figures.figures_of(result).items():
                shown = figure_of(name + suffix, figure, caption, folder, table)
                section.figures.append(shown)
    return list(sections.values())


def _suffix(name: str, used: dict[str, int]) -> str:
    """What keeps a second result of the same kind from overwriting the first one's files."""
    used[name] = used.get(name, 0) + 1
    return "" if used[name] == 1 else f"-{used[name]}"


def _remove_stale(folder: Path, sections: Sequence[_Section]) -> None:
    """Removes figures and tables of an earlier report that this one does not have."""
    figures_now = {shown["name"] for section in sections for shown in section.figures}
    tables_now = {shown["table"] for section in sections for shown in section.figures}
    tables_now |= {section.table for section in sections}
    for path in [*(folder / "figures").glob("*.png"), *(folder / "figures").glob("*.svg")]:
        if path.name.rsplit(".", 1)[0] not in figures_now:
            path.unlink()
    for path in (folder / "tables").glob("*.csv"):
        if path.name.removesuffix(".csv") not in tables_now:
            path.unlink()


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
            return f"{name}-{result.ablate}-{result.scalar}"
        case Patching():
            return f"{name}-{result.what}-{result.direction}".replace(" ", "-")
    return name


def _outcome(checks: ModelChecks, i: int) -> str:
    if checks.notes[i]:
        return f"{checks.outcomes[i]}: {checks.notes[i]}"
    return (
        f"{checks.outcomes[i]}: largest relative difference {checks.errors[i]:.1e} "
        f"(tolerance {checks.tolerances[i]:.0e})"
    )


def _passage(lens: LogitLens) -> list[dict[str, Any]]:
    if lens.characters is None:
        return []
    first = lens.characters[int(lens.tokens[0, 0])]
    cells: list[dict[str, Any]] = [_cell(first, 0.0, "position 0: given")]
    for pos, target in enumerate(lens.targets[0]):
        character = lens.characters[int(target)]
        p = math.exp(float(lens.log_prob[-1, 0, pos]))
        top = lens.characters[int(lens.top[-1, 0, pos])]
        tip = (
            f"position {pos + 1}: {visible(character)} had probability {p:.3f} and rank "
            f"{int(lens.rank[-1, 0, pos])}; likeliest: {visible(top)} "
            f"({float(lens.top_prob[-1, 0, pos]):.3f})"
        )
        cells.append(_cell(character, round(p, 3), tip))
    return cells


def _cell(character: str, heat: float, tip: str) -> dict[str, Any]:
    glyph = "⏎" if character == "\n" else "\u00a0" if character == " " else character
    return {"glyph": glyph, "breaks": character == "\n", "heat": heat, "tip": tip}


def _provenance(results: Sequence[Result]) -> _Section:
    p = results[0].provenance
    errors = [
        (f"largest miss of the model's logits, by {r.by}",
         f"{r.completeness_error.max():.1e} logits (tolerance at least {r.tolerance.min():.1e}); "
         f"{r.values.shape[2]} positions × {r.values.shape[0]} components")
        for r in results if isinstance(r, LogitAttribution)
    ]  # fmt: skip
    versions = ", ".join(f"{name} {version}" for name, version in p.versions.items())
    seeds = sorted({r.provenance.seed for r in results if r.provenance.seed is not None})
    section = _Section("provenance", "Checks and provenance")
    section.text = [
        "Every number on this page is in results.json, which is also embedded here: "
        'interp.read_report("report.html") gives the results back.'
    ]
    section.rows = [
        *errors,
        ("model (SHA-256)", p.model),
        ("tokens (SHA-256)", p.tokens),
        ("dtype", p.dtype),
        ("seeds of the results", ", ".join(map(str, seeds)) or "none: nothing in them is sampled"),
        ("versions", versions),
    ]
    return section


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
    return (resources.files("interp.report") / name).read_text(encoding="utf-8")


def template(name: str = "templates/report.html") -> jinja2.Template:
    """Returns a page's template; everything put into it is escaped."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(asset(name))
