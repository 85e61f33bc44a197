"""What makes one library call a command: shared options, and what becomes of what it returns.

    @command("interp effects models/mine --by block", sequences=32, seed=True)
    def effects(run: Run, by: ByOption = "head") -> interp.Result:
        \"\"\"The help.\"\"\"
        return interp.component_effects(run.model, run.tokens, by=by, seed=run.seed, …)

The command has the options of the function and those asked for here. A result's summary is printed
(or, as asked, its JSON; its table and figures are written); warnings are lines on stderr; errors
name flags. A result that says of itself that it has not `passed` makes the exit status 1.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from inspect import Parameter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

import interp
from interp.cli import options
from interp.cli.flags import in_flags
from interp.cli.progress import Bars, said_warnings
from interp.errors import ConfigError, InterpError

if TYPE_CHECKING:
    import torch

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(kw_only=True)
class Run:
    """What a command is run on. The model and its text are loaded when first asked for."""

    path: Path = Path()
    prompt: str | None = None
    text: Path | None = None
    sequences: int = 1
    seed: int = 0
    device: str = "cpu"
    as_json: bool = False
    bars: Bars = field(default_factory=Bars)

    @cached_property
    def model(self) -> interp.HookedGPT:
        """The model in the folder given."""
        return interp.HookedGPT.from_pretrained(self.path, self.place)

    @cached_property
    def place(self) -> torch.device:
        """The device asked for, if it can be used."""
        return device_of(self.device)

    @property
    def tokens(self) -> torch.Tensor:
        """Tokens [batch, pos]: the prompt, or the start of the file or of the validation text."""
        return self.tokens_of(self.model)

    def tokens_of(self, model: interp.HookedGPT) -> torch.Tensor:
        """Returns the same for another model of this folder."""
        from interp.pages.passages import tokens_of

        return tokens_of(model, self.sequences, text=self.text, prompt=self.prompt)


@dataclass(frozen=True, kw_only=True)
class Made:
    """What a command says that returns no result: as text, and as JSON."""

    text: str
    document: dict[str, Any]


def command(
    example: str,
    *,
    on: Any = options.ModelArg,
    prompt: bool = False,
    text: bool = False,
    sequences: int | None = None,
    seed: bool = False,
    writes: bool = True,
) -> Callable[[Command], Command]:
    """Makes a function of a `Run` and of options of its own a command of that name.

    Args:
        example: for the help.
        on: the argument that becomes `run.path`; None: the function has its own.
        prompt: whether there is `--prompt`.
        text: whether there is `--text`.
        sequences: the default of `--sequences`, which comes with `--text`; None: there is neither.
        seed: whether there is `--seed`.
        writes: whether it returns results, which `--csv` and `--figures` write.
    """
    shared = {
        "path": (on, Parameter.empty, on is not None),
        "prompt": (options.PromptOption, None, prompt),
        "text": (options.TextOption, None, text or sequences is not None),
        "sequences": (options.SequencesOption, sequences, sequences is not None),
        "seed": (options.SeedOption, 0, seed),
        "csv": (options.CsvOption, None, writes),
        "figures": (options.FiguresOption, None, writes),
        "device": (options.DeviceOption, "cpu", True),
        "as_json": (options.JsonOption, False, True),
    }

    def register(function: Command) -> Command:
        own = _parameters(function)
        ours = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default, wanted) in shared.items()
            if wanted and name not in own
        ]
        every = ours[:1] * (on is not None) + [*own.values()] + ours[on is not None :]
        called = _call(function, own)
        called.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        called.__annotations__ = {one.name: one.annotation for one in every}
        called.__name__, called.__doc__ = function.__name__, function.__doc__
        options.app.command(epilog=f"Example: {example}")(called)
        return function

    return register


def _parameters(function: Callable[..., Any]) -> dict[str, Parameter]:
    """A function's parameters but the first, as options; `--scalar` is an old name of `--metric`.

    The annotation of what is returned is not looked at: results are slow to import.
    """
    plain: Any = inspect.unwrap(function)
    hints = {name: hint for name, hint in plain.__annotations__.items() if name != "return"}
    hints = get_type_hints(
        SimpleNamespace(__annotations__=hints), plain.__globals__, include_extras=True
    )
    _, *own = inspect.signature(plain).parameters.values()
    found = {
        one.name: one.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[one.name])
        for one in own
    }
    if "metric" in found:
        choices: Any = hints["metric"].__origin__
        hidden = Annotated[choices | None, typer.Option("--scalar", hidden=True)]
        found["scalar"] = Parameter(
            "scalar", Parameter.KEYWORD_ONLY, default=None, annotation=hidden
        )
    return found


def _call(function: Callable[..., Any], own: Mapping[str, Parameter]) -> Callable[..., None]:
    """What runs when the command is given."""

    def called(**given: Any) -> None:
        names = list(given)
        if (metric := given.pop("scalar", None)) is not None:
            given["metric"] = metric
        mine = {name: given.pop(name) for name in own if name != "scalar"}
        csv, figures = given.pop("csv", None), given.pop("figures", None)
        with _in_flags(names):
            with Bars() as bars:
                made = function(Run(bars=bars, **given), **mine)
            _deliver(made, csv, figures, given["as_json"])

    return called


@contextmanager
def _in_flags(names: list[str]) -> Iterator[None]:
    """Warnings and errors of the library, in the words of the command line."""
    try:
        with said_warnings(lambda message: in_flags(message, names)):
            yield
    except InterpError as error:
        error.args = (in_flags(str(error), names),)
        raise


def _deliver(made: Any, csv: Path | None, figures: Path | None, as_json: bool) -> None:
    """Writes and prints what a command returned: a result, several by name, what was made."""
    if made is None:
        return
    if isinstance(made, Made):
        print(json.dumps(made.document) if as_json else made.text)
        return
    results: dict[str, interp.Result] = made if isinstance(made, dict) else {"": made}
    _write(list(results.values()), csv, figures)
    if as_json:
        documents = {name: result.to_document() for name, result in results.items()}
        print(json.dumps(documents.get("", documents)))
    else:
        print("\n\n".join(result.summary() for result in results.values()))
    if not all(getattr(result, "passed", True) for result in results.values()):
        raise typer.Exit(1)


def _write(results: list[interp.Result], csv: Path | None, figures: Path | None) -> None:
    """Writes the first one's table and the figures of all, where a path was given."""
    if csv is not None:
        from interp import files

        table = results[0].to_frame()
        files.write_text(csv, table.to_csv(index=False, lineterminator="\n"))
    if figures is not None:
        from interp.figures.draw import draw, save_figure

        for shown in (one for result in results for one in result.shown()):
            save_figure(draw(shown.mark, shown.line), figures / shown.name)


def device_of(name: str) -> torch.device:
    """Returns the device of a name, or, of "auto", the fastest there is.

    Raises:
        ConfigError: it cannot be used here.
    """
    import torch

    if name == "auto":
        has = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
        name = next((kind for kind, there in has.items() if there), "cpu")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"--device {name!r} is not usable here; try cpu, cuda, mps or auto"
        ) from error
    return torch.device(name)
