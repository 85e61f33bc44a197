"""Commands that make something: all of it, a model, text, a cache."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

import interp
from interp.cli.command import Made, Run, command
from interp.cli.options import FreshOption, OutOption, RecipeArg
from interp.cli.progress import say
from interp.errors import ConfigError

Names = Literal["all", "contributions", "residual", "attention"]


@command("interp run models/recipes/smoke.toml", on=RecipeArg, text=True, writes=False)
def run(run: Run, out: OutOption = None, fresh: FreshOption = False) -> Made:
    """Do all of it: train, cache, attribute, report."""
    recipe = interp.Recipe.load(run.path)
    if "rung" in recipe.model:
        raise ConfigError(
            f"{run.path} trains a rung of the lesson's ladder, which has nothing to cache or "
            "report; use: interp train"
        )
    folder = _train(run, recipe, out, fresh)
    say(f"trained: {folder}")
    trained = Run(path=folder, sequences=16, device=run.device, bars=run.bars)
    kept = _cached(trained, Path("caches") / folder.name, "contributions", dry_run=False)
    (say if run.as_json else print)(kept.text)
    one = Run(path=folder, device=run.device)
    _, cache = trained.model.run_with_cache(one.tokens_of(trained.model))
    for by in ("block", "head"):
        parts = interp.logit_attribution(trained.model, cache, by)
        say(f"split by {by}: {len(parts.components)} rows, missing the model's logits by at most "
            f"{parts.completeness_error.max():.1e}")  # fmt: skip
    page = interp.report(trained.model, progress=run.bars.of("results")).resolve()
    say("report:")
    return Made(text=str(page), document={"model": str(folder), "report": str(page)})


@command(
    "interp train models/recipes/shakespeare-char.toml --seed 7",
    on=RecipeArg, text=True, writes=False,
)  # fmt: skip
def train(
    run: Run,
    out: OutOption = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="instead of the recipe's")
    ] = None,
    fresh: FreshOption = False,
) -> Made:
    """Train a model; given again after a stop, go on where it stopped."""
    recipe = interp.Recipe.load(run.path)
    if seed is not None:
        recipe = recipe.model_copy(update={"seed": seed})
    folder = _train(run, recipe, out, fresh)
    from interp.training.history import read_history

    last = read_history(folder / "history.csv")[-1]
    said = f"validation loss {last.validation_loss:.4f} nats per character, step {last.step}"
    return Made(text=f"{said}\n{folder}", document={"folder": str(folder), **vars(last)})


@command(
    'interp generate models/shakespeare-char --prompt "ROMEO:" --tokens 300',
    seed=True, writes=False,
)  # fmt: skip
def generate(
    run: Run,
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
) -> Made:
    """Write text."""
    from interp.gpt.generate import stream

    start = run.model.to_tokens(prompt)
    written = ""
    for token in stream(run.model, start, tokens, temperature, top_k, run.seed):
        piece = run.model.to_string(token[0])
        if not run.as_json:
            print(piece if written else prompt + piece, end="", flush=True)
        written += piece
    document = {"prompt": prompt, "text": written, "seed": run.seed}
    return Made(text="" if written else prompt, document=document)


@command(
    "interp cache models/shakespeare-char --sequences 64 --dry-run",
    prompt=True, sequences=16, writes=False,
)  # fmt: skip
def cache(
    run: Run,
    out: OutOption = None,
    names: Annotated[Names, typer.Option("--names", help="which activations")] = "contributions",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only say how large it would be")
    ] = False,
) -> Made:
    """Run a model over text and keep its activations on disk."""
    return _cached(run, out or Path("caches") / run.path.name, names, dry_run=dry_run)


def _train(run: Run, recipe: interp.Recipe, out: Path | None, fresh: bool) -> Path:
    """Trains, on the text given instead of the recipe's if there is one; returns the folder."""
    if run.text is not None:
        from interp.training.recipe import TextSettings

        recipe = recipe.model_copy(update={"text": TextSettings(path=str(run.text))})
    folder = out or Path("models") / recipe.name
    interp.train(recipe, folder, device=run.place, fresh=fresh, progress=run.bars.training())
    return folder


def _cached(run: Run, out: Path, names: Names, *, dry_run: bool) -> Made:
    """Writes the activations, or only says how many bytes they would take."""
    from interp.store import cache_bytes_of, check_output

    tokens = run.tokens
    n, n_pos = tokens.shape
    n_bytes = cache_bytes_of(run.model, tokens, names)
    if not dry_run:
        check_output(out, n_bytes)
        say(f"caching {n} × {n_pos} characters, about {n_bytes / 1e6:.1f} MB")
        n_bytes = interp.write_cache(out, run.model, tokens, names=names).nbytes
    said = f"{'would take' if dry_run else 'cached:'} {n_bytes / 1e6:.1f} MB in {out}"
    document = {
        "cache": str(out), "sequences": n, "pos": n_pos, "bytes": n_bytes, "written": not dry_run,
    }  # fmt: skip
    return Made(text=said, document=document)
