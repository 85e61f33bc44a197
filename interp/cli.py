"""The command line: load, one library call, write."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from interp.errors import ConfigError, InterpError, TextError, TokenError, TrainingInterrupted

if TYPE_CHECKING:
    import torch

    from interp.gpt.model import HookedGPT
    from interp.training.corpus import Corpus

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
DeviceOption = Annotated[str, typer.Option("--device", help="cpu, cuda, mps, or auto")]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON instead of text")]
FreshOption = Annotated[bool, typer.Option("--fresh", help="start again if a run is already there")]


_UsageError: Any = typer.BadParameter.__mro__[1]  # the parent: any wrong use of the command line


def main() -> None:
    """Runs the command line. Mistakes are one line and exit status 2; Ctrl-C is 130."""
    try:
        app(standalone_mode=len(sys.argv) < 2)  # alone, it shows the help
    except _UsageError as error:
        _fail(f"error: {error.format_message()}; see interp --help", 2)
    except typer.Abort:
        _fail("interrupted", 130)
    except TrainingInterrupted as stopped:
        _fail(str(stopped), 130)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except InterpError as error:
        _fail(f"error: {error}", 2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)


def _fail(message: str, status: int) -> None:
    print(" ".join(message.split("\n")), file=sys.stderr)
    sys.exit(status)


@app.command(epilog="Example: interp train models/recipes/shakespeare-char.toml --seed 7")
def train(
    recipe: RecipeArg,
    out: OutOption = None,
    text: TextOption = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="instead of the recipe's")
    ] = None,
    device: DeviceOption = "cpu",
    fresh: FreshOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train a model; given again after a stop, go on where it stopped."""
    folder, _ = _train(recipe, out, text, seed, device, fresh)
    from interp.training.history import read_history

    last = read_history(folder / "history.csv")[-1]
    if as_json:
        print(json.dumps({"folder": str(folder), **vars(last)}))
    else:
        print(f"validation loss {last.validation_loss:.4f} nats per character, step {last.step}")
        print(folder)


@app.command(epilog="Example: interp cache models/shakespeare-char --sequences 64 --dry-run")
def cache(
    model: ModelArg,
    out: OutOption = None,
    text: TextOption = None,
    prompt: PromptOption = None,
    sequences: Annotated[
        int, typer.Option("--sequences", min=1, help="how many, of n_ctx characters")
    ] = 16,
    names: Annotated[
        str, typer.Option("--names", help="all, contributions, residual or attention")
    ] = "contributions",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only say how large it would be")
    ] = False,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Run a model over text and keep its activations on disk."""
    gpt = _load(model, device)
    _cache(
        model, gpt, _sequences(model, gpt, text, prompt, sequences), out, names, dry_run, as_json
    )


@app.command(epilog='Example: interp attribute models/shakespeare-char --prompt "ROMEO:" --by head')
def attribute(
    model: ModelArg,
    prompt: PromptOption = None,
    text: TextOption = None,
    by: Annotated[str, typer.Option("--by", help="block or head")] = "block",
    scalar: Annotated[
        str, typer.Option("--scalar", help="centered, foil, probability or raw")
    ] = "centered",
    target: Annotated[
        str | None,
        typer.Option("--target", help="the next character to explain at the last position"),
    ] = None,
    foil: Annotated[
        str | None, typer.Option("--foil", help="the character to compare with")
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="write the whole table here")] = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Split the logit of each next character into the parts that made it."""
    from interp import files

    result = _attribute(_load(model, device), model, prompt, text, by, scalar, target, foil)
    if csv is not None:
        files.write_text(csv, result.to_frame().to_csv(index=False, lineterminator="\n"))
    if as_json:
        print(json.dumps(result.to_document()))
        return
    from interp.gpt.tokenizer import visible

    characters = result.characters
    shown = [visible(characters[int(t)]) for t in (result.tokens[0, -1], result.targets[0, -1])]
    where = f"the last: after {shown[0]}, towards {shown[1]} ({scalar}, logits)"
    print(f"{result.values.shape[2]} positions; {where}")
    for name, value in zip(result.components, result.values[:, 0, -1], strict=True):
        print(f"  {name:<10} {value:+9.4f}")
    total, error = result.total[0, -1], result.completeness_error.max()
    print(f"  {'sum':<10} {total:+9.4f}   the model's own; rows miss it by at most {error:.1e}")


@app.command(
    epilog='Example: interp generate models/shakespeare-char --prompt "ROMEO:" --tokens 300'
)
def generate(
    model: ModelArg,
    prompt: Annotated[str, typer.Option("--prompt", help="text to go on from")] = "\n",
    tokens: Annotated[
        int, typer.Option("--tokens", min=0, help="how many characters to add")
    ] = 300,
    temperature: Annotated[
        float, typer.Option("--temperature", min=0.0, help="0: always the likeliest")
    ] = 1.0,
    top_k: Annotated[
        int | None, typer.Option("--top-k", min=1, help="only the k likeliest")
    ] = None,
    seed: SeedOption = 0,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Write text."""
    from interp.gpt.generate import stream

    gpt = _load(model, device)
    start = gpt.to_tokens(prompt)
    pieces = (gpt.to_string(t[0]) for t in stream(gpt, start, tokens, temperature, top_k, seed))
    if as_json:
        print(json.dumps({"prompt": prompt, "text": "".join(pieces), "seed": seed}))
        return
    print(prompt, end="")
    for piece in pieces:
        print(piece, end="", flush=True)
    print()


@app.command(epilog='Example: interp report models/shakespeare-char --prompt "O Romeo, Romeo!"')
def report(
    model: ModelArg,
    out: OutOption = None,
    text: TextOption = None,
    prompt: PromptOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Write one HTML file that shows what the model does, and the figures and numbers beside it."""
    path = _report(model, _load(model, device), out, text, prompt, seed)
    print(json.dumps({"report": str(path)}) if as_json else path)


@app.command(epilog="Example: interp run models/recipes/smoke.toml")
def run(
    recipe: RecipeArg,
    out: OutOption = None,
    text: TextOption = None,
    device: DeviceOption = "cpu",
    fresh: FreshOption = False,
) -> None:
    """Do all of it: train, cache, attribute, report."""
    folder, gpt = _train(recipe, out, text, None, device, fresh)
    _say(f"trained: {folder}")
    _cache(
        folder, gpt, _sequences(folder, gpt, None, None, 16), None, "contributions", False, False
    )
    for by in ("block", "head"):
        result = _attribute(gpt, folder, None, None, by, "centered", None, None)
        _say(f"split by {by}: {len(result.components)} rows, missing the model's logits by at most "
             f"{result.completeness_error.max():.1e}")  # fmt: skip
    path = _report(folder, gpt, None, None, None, 0)
    _say("report:")
    print(path.resolve())


# ---- shared steps ----------------------------------------------------------------------------


def _train(
    recipe: Path, out: Path | None, text: Path | None, seed: int | None, device: str, fresh: bool
) -> tuple[Path, HookedGPT]:
    from interp.training.loop import train as train_model
    from interp.training.recipe import Recipe, TextSettings

    loaded = Recipe.load(recipe)
    if text is not None:
        loaded = loaded.model_copy(update={"text": TextSettings(path=str(text))})
    if seed is not None:
        loaded = loaded.model_copy(update={"seed": seed})
    folder = out or Path("models") / loaded.name
    with _training_bar() as progress:
        model = train_model(loaded, folder, device=_device(device), fresh=fresh, progress=progress)
    return folder, model


def _cache(
    folder: Path, gpt: HookedGPT, tokens: torch.Tensor, out: Path | None, names: str,
    dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    from interp.cache.store import cache_bytes_of, check_output, write_cache
    from interp.gpt.activations import PRESETS

    if names not in PRESETS:
        raise ConfigError(f"--names {names!r} is not one of {', '.join(PRESETS)}")
    n, n_pos = tokens.shape
    n_bytes = cache_bytes_of(gpt, tokens, names)
    out = out or Path("caches") / folder.name
    if not dry_run:
        check_output(out, n_bytes)
        _say(f"caching {n} × {n_pos} characters, about {n_bytes / 1e6:.1f} MB")
        n_bytes = write_cache(out, gpt, tokens, names=names).nbytes
    done = {
        "cache": str(out),
        "sequences": n,
        "pos": n_pos,
        "bytes": n_bytes,
        "written": not dry_run,
    }
    if as_json:
        print(json.dumps(done))
    else:
        print(f"{'would take' if dry_run else 'cached:'} {n_bytes / 1e6:.1f} MB in {out}")


def _attribute(
    gpt: HookedGPT, folder: Path, prompt: str | None, text: Path | None, by: str, scalar: str,
    target: str | None, foil: str | None,
) -> Any:  # fmt: skip
    from interp.analysis.attribution import logit_attribution
    from interp.analysis.readout import Scalar, check_choice
    from interp.analysis.residual import By

    check_choice("--by", by, get_args(By))
    check_choice("--scalar", scalar, get_args(Scalar))
    tokens = _sequences(folder, gpt, text, prompt, 1)
    targets = None
    if target is not None:
        import torch

        last = torch.tensor([[gpt.to_single_token(target)]], device=tokens.device)
        targets = torch.cat((tokens[:, 1:], last), dim=1)
    elif tokens.shape[1] < 2:
        raise TokenError("a prompt of one character has no next one; give more, or --target")
    _, activations = gpt.run_with_cache(tokens)
    return logit_attribution(
        gpt, activations, cast(By, by), scalar=cast(Scalar, scalar), targets=targets, foils=foil
    )


def _report(
    folder: Path, gpt: HookedGPT, out: Path | None, text: Path | None, prompt: str | None, seed: int
) -> Path:
    from interp.analysis.attention import attention_patterns
    from interp.analysis.attribution import logit_attribution
    from interp.analysis.lens import logit_lens
    from interp.gpt.generate import generate as generate_tokens
    from interp.report.html import write_report
    from interp.training.history import read_history

    tokens = _sequences(folder, gpt, text, prompt, 1)
    if tokens.shape[1] < 2:
        raise TokenError("a report needs a passage of at least two characters")
    _, activations = gpt.run_with_cache(tokens)
    results: list[Any] = [logit_lens(gpt, activations)]
    if gpt.config.n_layers:
        results.append(attention_patterns(gpt, activations))
    results.append(logit_attribution(gpt, activations, "block"))
    if gpt.config.n_layers:
        results.append(logit_attribution(gpt, activations, "head"))
    start = tokens[:1, : min(8, tokens.shape[1])]
    sample = gpt.to_string(generate_tokens(gpt, start, 400, seed=seed)[0])
    history = folder / "history.csv"
    return write_report(
        out or Path("reports") / folder.name, gpt, results, title=folder.name,
        history=read_history(history) if history.is_file() else (), sample=sample, sample_seed=seed,
    )  # fmt: skip


def _load(folder: Path, device: str) -> HookedGPT:
    from interp.gpt.checkpoint import from_pretrained

    return from_pretrained(folder, _device(device))


def _device(name: str) -> torch.device:
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


def _sequences(
    folder: Path, gpt: HookedGPT, text: Path | None, prompt: str | None, n: int
) -> torch.Tensor:
    """Tokens to look at: the prompt, or the start of a file or of the validation text."""
    if prompt is not None:
        return gpt.to_tokens(prompt)
    if gpt.tokenizer is None:
        raise TokenError("this model has no tokenizer, so no text can be given to it")
    corpus = _corpus(folder, text)
    passage = corpus.text if text is not None else corpus.validation
    start = passage.find("\n\n") + 2 if text is None and "\n\n" in passage else 0
    n_ctx = gpt.config.n_ctx
    passage = passage[start : start + n * n_ctx]
    if len(passage) < n_ctx or n == 1:
        return gpt.to_tokens(passage[:n_ctx])
    whole = len(passage) // n_ctx
    return gpt.to_tokens([passage[i * n_ctx : (i + 1) * n_ctx] for i in range(whole)])


def _corpus(folder: Path, text: Path | None) -> Corpus:
    from interp.training.corpus import load_corpus
    from interp.training.recipe import Recipe

    if text is not None:
        return load_corpus(path=text)
    recipe = folder / "recipe.toml"
    if not recipe.is_file():
        raise TextError(f"{folder} has no recipe.toml to tell its text; give --prompt or --text")
    return Recipe.load(recipe).text.load()


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


@contextmanager
def _training_bar() -> Iterator[Callable[[int, int, float, float], None]]:
    """Yields a progress function: a bar on a terminal, a line now and then elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        shown = [-1]

        def line(step: int, steps: int, loss: float, rate: float) -> None:
            if step * 10 // steps > shown[0]:
                shown[0] = step * 10 // steps
                _say(f"step {step}/{steps}  loss {loss:.3f}  {rate:,.0f} tokens/s")

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
