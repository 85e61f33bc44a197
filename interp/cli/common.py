"""What the commands share: the app, its options, and how a model and its text are found."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interp.errors import ConfigError, TextError, TokenError

if TYPE_CHECKING:
    import torch

    from interp.gpt.model import HookedGPT
    from interp.results.result import Result
    from interp.training.recipe import AnyText

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
OutOption = Annotated[Path | None, typer.Option("--out", help="where to write")]
TextOption = Annotated[Path | None, typer.Option("--text", help="a UTF-8 file to read instead")]
PromptOption = Annotated[str | None, typer.Option("--prompt", help="text to look at instead")]
SeedOption = Annotated[
    int, typer.Option("--seed", min=0, help="the same seed gives the same output")
]
SequencesOption = Annotated[
    int, typer.Option("--sequences", min=1, help="how many, of n_ctx characters")
]
DeviceOption = Annotated[str, typer.Option("--device", help="cpu, cuda, mps, or auto")]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON instead of text")]
CsvOption = Annotated[Path | None, typer.Option("--csv", help="write the whole table here")]
FreshOption = Annotated[bool, typer.Option("--fresh", help="start again if a run is already there")]


def load(folder: Path, device: str) -> HookedGPT:
    from interp.gpt.model import HookedGPT

    return HookedGPT.from_pretrained(folder, device_of(device))


def device_of(name: str) -> torch.device:
    import torch

    if name == "auto":
        name = (
            "cuda"
            if torch.cuda.is_available()
            else "mps"
            if torch.backends.mps.is_available()
            else "cpu"
        )
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"--device {name!r} is not usable here; try cpu, cuda, mps or auto"
        ) from error
    return torch.device(name)


def sequences_of(
    folder: Path, gpt: HookedGPT, text: Path | None, prompt: str | None, n: int
) -> torch.Tensor:
    """Tokens to look at: the prompt, or the start of a file or of the validation text."""
    if prompt is not None:
        return gpt.to_tokens(prompt)
    from interp.data.corpus import cut, load_corpus

    if gpt.tokenizer is None:
        raise TokenError("this model has no tokenizer, so no text can be given to it")
    n_ctx = gpt.config.n_ctx
    if text is not None:
        return gpt.to_tokens(cut(load_corpus(path=text).text, n_ctx, n))
    return gpt.to_tokens(text_of(folder).passages(n_ctx, n))


def text_of(folder: Path) -> AnyText:
    """The text that a model was trained on, by its recipe."""
    from interp.training.recipe import Recipe

    recipe = folder / "recipe.toml"
    if not recipe.is_file():
        raise TextError(f"{folder} has no recipe.toml to tell its text; give --prompt or --text")
    return Recipe.load(recipe).text.load()


def write_csv(path: Path | None, result: Result) -> None:
    """Writes the result's table, if a path was given."""
    from interp import files

    if path is not None:
        files.write_text(path, result.to_frame().to_csv(index=False, lineterminator="\n"))


def written_as_asked(result: Result, csv: Path | None, as_json: bool) -> bool:
    """Writes the table if a path was given, and prints JSON if asked; True if that was all."""
    write_csv(csv, result)
    if as_json:
        print(json.dumps(result.to_document()))
    return as_json


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


@contextmanager
def training_bar() -> Iterator[Callable[[int, int, float, float], None]]:
    """Yields a progress function: a bar on a terminal, a line now and then elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        shown = [-1]

        def line(step: int, steps: int, loss: float, rate: float) -> None:
            if step * 10 // steps > shown[0]:
                shown[0] = step * 10 // steps
                say(f"step {step}/{steps}  loss {loss:.3f}  {rate:,.0f} tokens/s")

        yield line
        return
    columns = (
        TextColumn("training"), BarColumn(), TextColumn("{task.completed}/{task.total}"),
        TextColumn("loss {task.fields[loss]:.3f}"), TextColumn("{task.fields[rate]:,.0f} tokens/s"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("training", total=None, loss=float("nan"), rate=0.0)

        def advance(step: int, steps: int, loss: float, rate: float) -> None:
            bar.update(task, total=steps, completed=step, loss=loss, rate=rate)

        yield advance


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yields a function of (done, of how many): a bar on a terminal, silent elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn(what), BarColumn(), TextColumn("{task.completed}/{task.total}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)

        def advance(done: int, of: int) -> None:
            bar.update(task, total=of, completed=done)

        yield advance
