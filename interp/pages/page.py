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
import json
import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from interp import files
from interp.errors import ConfigError, OutputError
from interp.figures import palette
from interp.figures.draw import draw, save_figure
from interp.gpt.folder import model_hash
from interp.gpt.model import HookedGPT
from interp.pages import contents, script
from interp.pages.reading import FORMAT, check_free
from interp.results.result import Result

FINE, COARSE = 1, 10  # quanta to which large maps are rounded
REPLACED = ("figures/*.png", "figures/*.svg", "tables/*.csv")  # an earlier report's
MOST_ROWS = 200_000  # of a table written beside the page


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
    named = contents.name_results(results)
    with files.write_into(folder, last="report.html", replacing=REPLACED) as stage:
        whole = document | {"results": [result.to_document() for result in results]}
        files.write_text(stage / "results.json", _json(whole) + "\n")
        _write_files(stage, named)
        fixed = {
            "title": title, "lead": _lead(model), "findings": contents.findings(results),
            "sections": contents.sections(named), "provenance": contents.provenance(results),
            "checks": [row for result in results for row in result.checks()],
            "sample": sample, "sample_seed": sample_seed,
        }  # fmt: skip
        embedded = document | {
            "palette": palette.to_document(),
            "tables": {one.name: contents.table(one.table) for one in named if one.has_table},
            "figures": contents.marks(named),
        }
        files.write_text(stage / "report.html", _fitting(named, fixed, embedded, max_mb))
    return folder / "report.html"


def _write_files(folder: Path, named: Sequence[contents.Named]) -> None:
    """The figures and tables beside the page."""
    for one in named:
        if len(one.table) <= MOST_ROWS:  # of more, results.json has them
            csv = one.table.to_csv(index=False, lineterminator="\n")
            files.write_text(folder / "tables" / f"{one.name}.csv", csv)
        for shown in one.shown:
            save_figure(draw(shown.mark, shown.line), folder / "figures" / shown.name)


def _fitting(
    named: Sequence[contents.Named], fixed: dict[str, Any], embedded: dict[str, Any], max_mb: float
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


def template(name: str = "report.html") -> jinja2.Template:
    """Returns a page's template; everything put into it is escaped."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    text = (resources.files("interp.pages") / "templates" / name).read_text(encoding="utf-8")
    return environment.from_string(text)
