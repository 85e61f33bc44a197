"""Commands that make something: a model, a cache, text; or all of it with a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interp.cli.common import (
    DeviceOption,
    FreshOption,
    JsonOption,
    ModelArg,
    OutOption,
    PromptOption,
    RecipeArg,
    SeedOption,
    SequencesOption,
    TextOption,
    app,
    device_of,
    load,
    say,
    sequences_of,
    training_bar,
)
from interp.cli.looking import attribution_of
from interp.cli.reporting import make_report
from interp.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from interp.gpt.model import HookedGPT
    from interp.lesson.loading import Trainable


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
    sequences: SequencesOption = 16,
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
    gpt = load(model, device)
    _cache(
        model, gpt, sequences_of(model, gpt, text, prompt, sequences), out, names, dry_run, as_json
    )


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

    gpt = load(model, device)
    start = gpt.to_tokens(prompt)
    pieces = (gpt.to_string(t[0]) for t in stream(gpt, start, tokens, temperature, top_k, seed))
    if as_json:
        print(json.dumps({"prompt": prompt, "text": "".join(pieces), "seed": seed}))
        return
    print(prompt, end="")
    for piece in pieces:
        print(piece, end="", flush=True)
    print()


@app.command(epilog="Example: interp run models/recipes/smoke.toml")
def run(
    recipe: RecipeArg,
    out: OutOption = None,
    text: TextOption = None,
    device: DeviceOption = "cpu",
    fresh: FreshOption = False,
) -> None:
    """Do all of it: train, cache, attribute, report."""
    from interp.lesson.ladder import LadderModel
    from interp.training.recipe import Recipe

    if "rung" in Recipe.load(recipe).model:
        raise ConfigError(
            f"{recipe} trains a rung of the lesson's ladder, which has nothing to cache or report; "
            "use: interp train"
        )
    folder, gpt = _train(recipe, out, text, None, device, fresh)
    assert not isinstance(gpt, LadderModel)
    say(f"trained: {folder}")
    _cache(
        folder, gpt, sequences_of(folder, gpt, None, None, 16), None, "contributions", False, False
    )
    for by in ("block", "head"):
        result = attribution_of(gpt, folder, by=by)
        say(f"split by {by}: {len(result.components)} rows, missing the model's logits by at most "
             f"{result.completeness_error.max():.1e}")  # fmt: skip
    path = make_report(folder, gpt)
    say("report:")
    print(path.resolve())


def _train(
    recipe: Path, out: Path | None, text: Path | None, seed: int | None, device: str, fresh: bool
) -> tuple[Path, Trainable]:
    from interp.training.loop import train as train_model
    from interp.training.recipe import Recipe, TextSettings

    loaded = Recipe.load(recipe)
    if text is not None:
        loaded = loaded.model_copy(update={"text": TextSettings(path=str(text))})
    if seed is not None:
        loaded = loaded.model_copy(update={"seed": seed})
    folder = out or Path("models") / loaded.name
    with training_bar() as progress:
        model = train_model(
            loaded, folder, device=device_of(device), fresh=fresh, progress=progress
        )
    return folder, model


def _cache(
    folder: Path, gpt: HookedGPT, tokens: torch.Tensor, out: Path | None, names: str,
    dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    from interp.gpt.presets import PRESETS
    from interp.store import cache_bytes_of, check_output, write_cache

    if names not in PRESETS:
        raise ConfigError(f"--names {names!r} is not one of {', '.join(PRESETS)}")
    n, n_pos = tokens.shape
    n_bytes = cache_bytes_of(gpt, tokens, names)
    out = out or Path("caches") / folder.name
    if not dry_run:
        check_output(out, n_bytes)
        say(f"caching {n} × {n_pos} characters, about {n_bytes / 1e6:.1f} MB")
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
