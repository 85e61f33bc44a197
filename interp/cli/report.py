"""Commands that write a page: about one model, or about several side by side."""

from __future__ import annotations

import csv
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

import interp
from interp.cli.command import Made, Run, command
from interp.cli.options import OutOption


@command(
    'interp report models/shakespeare-char --prompt "O Romeo, Romeo!"',
    prompt=True, text=True, seed=True, writes=False,
)  # fmt: skip
def report(
    run: Run,
    out: OutOption = None,
    sections: Annotated[
        str,
        typer.Option(
            "--sections", help="of text, heads, effects, scaling, training, checks; or all"
        ),
    ] = "all",
    max_mb: Annotated[float, typer.Option("--max-mb", min=0.01, help="refuse a larger page")] = 3.0,
    open_it: Annotated[bool, typer.Option("--open", help="open it in the browser")] = False,
) -> Made:
    """Write one HTML file to explore what the model does, and the figures and numbers beside it."""
    page = interp.report(
        run.model, out, text=run.text, prompt=run.prompt, sections=sections, max_mb=max_mb,
        seed=run.seed, progress=run.bars.of("results"),
    )  # fmt: skip
    if open_it:
        webbrowser.open(page.resolve().as_uri())
    return Made(text=str(page), document={"report": str(page)})


@command(
    "interp compare models/mine models/mine/checkpoints/step-000205 --sequences 32",
    on=None, text=True, seed=True, writes=False,
)  # fmt: skip
def compare(
    run: Run,
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL MODEL...", help="two or more model folders")
    ],
    out: OutOption = None,
    sequences: Annotated[
        int, typer.Option("--sequences", min=10, help="how many, of the shortest context")
    ] = 32,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="and the first model's shape, untrained")
    ] = False,
) -> Made:
    """Show two or more models side by side, on the same text."""
    page = interp.compare(
        models, out, text=run.text, sequences=sequences, untrained=untrained, seed=run.seed,
        device=run.place, progress=run.bars.of("models"),
    )  # fmt: skip
    with (page.parent / "tables" / "summary.csv").open(encoding="utf-8", newline="") as table:
        lines = [
            f"{row['model']}: {float(row['loss']):.4f} nats per token, n = {row['n']}"
            for row in csv.DictReader(table)
        ]
    return Made(text="\n".join([*lines, str(page)]), document={"comparison": str(page)})
