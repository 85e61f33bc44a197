"""A report that lies on disk: read back, or left alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from interp.errors import CheckpointError, OutputError
from interp.results.result import Result

FORMAT = "gpt-interp-report/3"
RESULTS = "results"  # the folder where `interp.report` keeps what it computed, to use it again


def read_report(path: str | Path) -> dict[str, Any]:
    """Returns what a report holds: title, config, sample, and `results` as `Result`s.

    Args:
        path: a `report.html` or `results.json`.

    Raises:
        CheckpointError: missing, damaged, or not a report.
    """
    path = Path(path)
    document = _read(path)
    document["results"] = [Result.from_document(one) for one in document["results"]]
    return document


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".html":
            found = re.search(
                r'<script type="application/json" id="results">(.*?)</script>', text, re.S
            )
            text = found[1] if found else ""
        document: dict[str, Any] = json.loads(text)
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']!r}, expected {FORMAT!r}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is not a report of this package: {error}") from error
    return document


def check_free(folder: Path, title: str) -> None:
    """Checks that a report of this title may be written into `folder`.

    Raises:
        OutputError: it is a file, or holds something else.
    """
    if folder.is_file():
        raise OutputError(f"{folder} is a file; choose another folder")
    if not folder.is_dir() or not {p.name for p in folder.iterdir()} - {RESULTS}:
        return
    try:
        held = _read(folder / "results.json")["title"]
    except CheckpointError:
        held = None
    if held != title:
        what = f"the report of {held!r}" if held else "something that is not a report"
        raise OutputError(f"{folder} already holds {what}; choose another folder or remove it")
