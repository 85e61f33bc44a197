"""Commands that look into a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import interp
from interp.cli.command import Run, command
from interp.cli.options import OutOption, RecipeArg
from interp.cli.progress import say
from interp.errors import ConfigError, TokenError

Target = Annotated[str | None, typer.Option("--target", help="the character that is right")]
Foil = Annotated[str | None, typer.Option("--foil", help="the character to compare it with")]


@command(
    'interp attribute models/shakespeare-char --prompt "ROMEO:" --by head', prompt=True, text=True
)
def attribute(
    run: Run,
    by: Annotated[
        Literal["block", "head", "source", "neuron"], typer.Option("--by", help="what is a part")
    ] = "block",
    metric: Annotated[
        Literal["centered", "foil", "probability", "raw"],
        typer.Option("--metric", help="what is split"),
    ] = "centered",
    target: Target = None,
    foil: Foil = None,
) -> interp.Result:
    """Split the logit of each next character into the parts that made it."""
    model, tokens, targets = run.model, run.tokens, None
    if target is not None:
        targets = tokens.roll(-1, dims=1)
        targets[0, -1] = model.to_single_token(target)
    elif tokens.shape[1] < 2:
        raise TokenError("a prompt of one character has no next one; give more, or give target")
    _, cache = model.run_with_cache(tokens)
    return interp.logit_attribution(model, cache, by, metric=metric, targets=targets, foils=foil)


@command(
    "interp effects models/shakespeare-char --metric log_prob --by block", sequences=32, seed=True
)
def effects(
    run: Run,
    ablate: Annotated[
        Literal["zero", "mean", "resample"],
        typer.Option("--ablate", help="what takes a part's place"),
    ] = "mean",
    by: Annotated[Literal["block", "head"], typer.Option("--by", help="what is a part")] = "head",
    metric: Annotated[
        Literal["log_prob", "loss", "kl", "centered", "probability", "raw", "foil"],
        typer.Option("--metric", help="what is asked of the logits"),
    ] = "log_prob",
    foil: Foil = None,
) -> interp.Result:
    """Replace each part and run the model on: direct and total effects, with intervals."""
    return interp.component_effects(
        run.model, run.tokens, ablate=ablate, by=by, metric=metric, foils=foil, seed=run.seed,
        progress=run.bars.of("effects"),
    )  # fmt: skip


@command('interp patch models/shakespeare-char --clean "the king" --corrupted "the ring"')
def patch(
    run: Run,
    clean: Annotated[str, typer.Option("--clean", help="the prompt")],
    corrupted: Annotated[str, typer.Option("--corrupted", help="another of the same length")],
    site: Annotated[
        Literal["resid_pre", "resid_mid", "attn_out", "mlp_out", "head"],
        typer.Option("--site", help="what is patched"),
    ] = "head",
    into: Annotated[
        str | None,
        typer.Option("--into", help="only the paths into this reader: L2.H1.q, L2.mlp, logits …"),
    ] = None,
    direction: Annotated[
        Literal["denoise", "noise"],
        typer.Option("--direction", help="clean pieces into the corrupted run, or back"),
    ] = "denoise",
    target: Target = None,
    foil: Foil = None,
) -> interp.Result:
    """Run one prompt with pieces of another: where does the difference sit?"""
    options: dict[str, Any] = {"direction": direction, "target": target, "foil": foil}
    if into is not None:
        return interp.path_patching(run.model, clean, corrupted, into, **options)
    return interp.activation_patching(run.model, clean, corrupted, site, **options)


@command(
    "interp heads models/shakespeare-char --sequences 256 --csv heads.csv", sequences=128, seed=True
)
def heads(
    run: Run,
    untrained: Annotated[
        int, typer.Option("--untrained", min=0, help="untrained models to compare with")
    ] = 20,
    head: Annotated[
        str | None, typer.Option("--head", help="the card of one head, such as L1.H2")
    ] = None,
) -> dict[str, interp.Result]:
    """What does each head look at, beyond chance, and does it matter?"""
    from interp.analysis.heads.labels import FEWEST
    from interp.stream.components import component

    model, tokens = run.model, run.tokens
    if head is not None:
        component(model.config, head)  # before the long work
    if len(tokens) < FEWEST:
        raise TokenError(
            f"names for heads need at least {FEWEST} sequences of {model.config.n_ctx} characters "
            f"to split in two; got {len(tokens)}: raise sequences, or give a longer --text"
        )
    scores = interp.head_scores(
        model, tokens, untrained=untrained, seed=run.seed, progress=run.bars.of("scores")
    )
    labels = interp.label_heads(model, scores, seed=run.seed, progress=run.bars.of("effects"))
    if head is not None:
        return {"card": interp.head_card(model, head, scores, labels)}
    return {"scores": scores, "labels": labels}


@command("interp formation models/induction-2l --csv formation.csv", text=True, seed=True)
def formation(
    run: Run,
    sequences: Annotated[
        int, typer.Option("--sequences", min=2, help="random repeating sequences")
    ] = 64,
    out: Annotated[
        Path | None, typer.Option("--out", hidden=True, help="an old form of --figures")
    ] = None,
) -> interp.Result:
    """How did the heads form? Scores, paths and losses over a run's checkpoints."""
    from interp.analysis.heads.formation import checkpoints_of

    run.sequences = sequences
    *_, last = checkpoints_of(run.path).values()
    tokens = run.tokens_of(interp.HookedGPT.from_pretrained(last, run.place))
    result = interp.formation(
        run.path, tokens, sequences=sequences, seed=run.seed, device=run.place,
        progress=run.bars.of("checkpoints"),
    )  # fmt: skip
    if out is not None:
        from interp.figures.draw import save_figure

        save_figure(result.plot(), out)
    return result


@command("interp scaling models/shakespeare-char --multipliers 0,0.5,1,2", sequences=16, seed=True)
def scaling(
    run: Run,
    multipliers: Annotated[
        str, typer.Option("--multipliers", help="numbers with commas between; 1 among them")
    ] = "0,0.25,0.5,1,2,4,8",
    each: Annotated[
        bool, typer.Option("--each", help="multiply one head at a time instead of all")
    ] = False,
) -> interp.Result:
    """Multiply a model's attention scores: what becomes of entropy and loss?"""
    values = _numbers("--multipliers", multipliers, float)
    return interp.attention_scaling(
        run.model, run.tokens, values, each=each, seed=run.seed, progress=run.bars.of("scaling")
    )


@command(
    "interp scaling-sweep models/recipes/sqrt-dk.toml --jobs 2 --arms sqrt,unscaled "
    "--d-heads 8,64 --seeds 3",
    on=RecipeArg, text=True,
)  # fmt: skip
def scaling_sweep(
    run: Run,
    out: OutOption = None,
    arms: Annotated[
        str,
        typer.Option("--arms", help="sqrt, unscaled, inverse, learned, qk-norm, matched; or all"),
    ] = "all",
    d_heads: Annotated[
        str, typer.Option("--d-heads", help="head widths, with commas between")
    ] = "8,32,128,256",
    learning_rates: Annotated[
        str, typer.Option("--learning-rates", help="peaks, with commas between")
    ] = "0.001,0.003,0.01",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="how many")] = 5,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="processes at a time")] = 1,
) -> interp.Result:
    """Train a small GPT with its scores scaled in several ways; given again, go on."""
    from interp.analysis.scaling.arms import ARMS

    recipe = interp.Recipe.load(run.path)
    folder = out or Path("reports") / f"{recipe.name}-sweep"
    result = interp.scaling_sweep(
        recipe, folder, arms=ARMS if arms == "all" else arms.split(","),
        d_heads=_numbers("--d-heads", d_heads, int),
        learning_rates=_numbers("--learning-rates", learning_rates, float),
        seeds=seeds, jobs=jobs, device=str(run.place),
        corpus=None if run.text is None else interp.load_corpus(path=run.text),
        progress=run.bars.of("runs"),
    )  # fmt: skip
    say(f"the whole table: {folder / 'sweep.csv'}")
    return result


@command("interp check models/shakespeare-char", prompt=True, sequences=2, seed=True)
def check(run: Run) -> interp.Result:
    """Self-test of a model: what must not change, does not. Exit status 1 if anything does."""
    return interp.check_model(run.model, run.tokens, seed=run.seed)


def _numbers(flag: str, given: str, kind: type) -> list[Any]:
    try:
        return [kind(part) for part in given.split(",")]
    except ValueError as error:
        what = "whole numbers" if kind is int else "numbers"
        raise ConfigError(f"{flag} {given!r} must be {what} with commas between") from error
