"""The app, and the options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import interp

app = typer.Typer(
    name="interp",
    help="See inside a small GPT: train it, cache it, split its logits exactly, report it.",
    epilog="Start here: interp run models/recipes/smoke.toml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ModelArg = Annotated[Path, typer.Argument(metavar="MODEL", help="a model folder")]
RecipeArg = Annotated[
    Path, typer.Argument(metavar="RECIPE", help="a recipe, models/recipes/*.toml")
]
PromptOption = Annotated[str | None, typer.Option("--prompt", help="text to look at instead")]
TextOption = Annotated[Path | None, typer.Option("--text", help="a UTF-8 file to read instead")]
SequencesOption = Annotated[
    int, typer.Option("--sequences", min=1, help="how many, of n_ctx characters")
]
SeedOption = Annotated[
    int, typer.Option("--seed", min=0, help="the same seed gives the same output")
]
OutOption = Annotated[Path | None, typer.Option("--out", help="where to write")]
FreshOption = Annotated[bool, typer.Option("--fresh", help="start again if a run is already there")]
CsvOption = Annotated[Path | None, typer.Option("--csv", help="write the whole table here")]
FiguresOption = Annotated[
    Path | None, typer.Option("--figures", metavar="DIR", help="draw the figures into this folder")
]
DeviceOption = Annotated[str, typer.Option("--device", help="cpu, cuda, mps, or auto")]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON instead of text")]


def _show_version(asked: bool) -> bool:
    if asked:
        print(f"gpt-interp {interp.__version__}")
        raise typer.Exit
    return asked


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="show the version"),
    ] = False,
) -> None:
    pass
