"""Commands about attention: what heads look at, how they form, and the scale of their scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from interp.cli.common import (
    CsvOption,
    DeviceOption,
    JsonOption,
    ModelArg,
    OutOption,
    RecipeArg,
    SeedOption,
    SequencesOption,
    TextOption,
    app,
    device_of,
    load,
    progress_bar,
    sequences_of,
    write_csv,
    written_as_asked,
)
from interp.errors import ConfigError, TokenError


@app.command(epilog="Example: interp scaling models/shakespeare-char --multipliers 0,0.5,1,2")
def scaling(
    model: ModelArg,
    multipliers: Annotated[
        str, typer.Option("--multipliers", help="numbers with commas between; 1 among them")
    ] = "0,0.25,0.5,1,2,4,8",
    each: Annotated[
        bool, typer.Option("--each", help="multiply one head at a time instead of all")
    ] = False,
    text: TextOption = None,
    sequences: SequencesOption = 16,
    seed: SeedOption = 0,
    csv: CsvOption = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Multiply a model's attention scores: what becomes of entropy and loss?"""
    from interp.analysis.scaling.rescaled import attention_scaling

    values = _numbers("--multipliers", multipliers, float)
    gpt = load(model, device)
    tokens = sequences_of(model, gpt, text, None, sequences)
    with progress_bar("scaling") as progress:
        result = attention_scaling(gpt, tokens, values, each=each, seed=seed, progress=progress)
    if written_as_asked(result, csv, as_json):
        return
    print(
        f"scores multiplied in {'one head at a time' if each else 'all heads'}; n = {len(tokens)} "
        f"sequences; loss in nats per token with a 95 % interval of its difference from ×1, seed "
        f"{seed}; entropy over ln(visible keys)"
    )
    table = result.to_frame()
    by = ["multiplier", "layer", "head"] if each else ["multiplier"]
    means = table.groupby(by, sort=False)[["loss", "low", "high", "entropy_normalised"]].mean()
    for row in means.reset_index().to_dict("records"):
        where = f"  L{row['layer']}.H{row['head']}" if each else ""
        print(
            f"  × {row['multiplier']:<6g}{where}  loss {row['loss']:.4f} [{row['low']:.4f}, "
            f"{row['high']:.4f}]  entropy {row['entropy_normalised']:.3f}"
        )


@app.command(
    epilog="Example: interp scaling-sweep models/recipes/sqrt-dk.toml --jobs 2 "
    "--arms sqrt,unscaled --d-heads 8,64 --seeds 3"
)
def scaling_sweep(
    recipe: RecipeArg,
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
    text: TextOption = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Train a small GPT with its scores scaled in several ways; given again, go on."""
    from interp.analysis.scaling.arms import ARMS
    from interp.analysis.scaling.sweep import scaling_sweep
    from interp.data.corpus import load_corpus
    from interp.training.recipe import Recipe

    settings = Recipe.load(recipe)
    folder = out or Path("reports") / f"{settings.name}-sweep"
    with progress_bar("runs") as progress:
        result = scaling_sweep(
            settings, folder, arms=ARMS if arms == "all" else arms.split(","),
            d_heads=_numbers("--d-heads", d_heads, int),
            learning_rates=_numbers("--learning-rates", learning_rates, float),
            seeds=seeds, jobs=jobs, device=str(device_of(device)),
            corpus=None if text is None else load_corpus(path=text), progress=progress,
        )  # fmt: skip
    if as_json:
        print(json.dumps(result.to_document()))
        return
    columns = ["arm", "d_head", "learning_rate", "loss", "low", "high", "entropy_last"]
    print(
        f"validation loss in nats per token after {result.steps[-1]} steps, at each arm's best "
        f"learning rate, with a 95 % interval over n = {seeds} seeds; entropy over ln(visible keys)"
    )
    print(result.summary()[columns].round(4).to_string(index=False))
    print(f"the whole table: {folder / 'sweep.csv'}")


def _numbers(option: str, given: str, kind: type) -> list[Any]:
    try:
        return [kind(part) for part in given.split(",")]
    except ValueError as error:
        what = "whole numbers" if kind is int else "numbers"
        raise ConfigError(f"{option} {given!r} must be {what} with commas between") from error


@app.command(epilog="Example: interp heads models/shakespeare-char --sequences 256 --csv heads.csv")
def heads(
    model: ModelArg,
    text: TextOption = None,
    sequences: SequencesOption = 128,
    untrained: Annotated[
        int, typer.Option("--untrained", min=0, help="untrained models to compare with")
    ] = 20,
    head: Annotated[
        str | None, typer.Option("--head", help="the card of one head, such as L1.H2")
    ] = None,
    seed: SeedOption = 0,
    csv: CsvOption = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """What does each head look at, beyond chance, and does it matter?"""
    from interp.analysis.heads.cards import head_card
    from interp.analysis.heads.labels import FEWEST, label_heads
    from interp.analysis.heads.scores import head_scores
    from interp.stream.components import component

    gpt = load(model, device)
    if head is not None:
        component(gpt.config, head)  # before the long work
    tokens = sequences_of(model, gpt, text, None, sequences)
    if len(tokens) < FEWEST:
        raise TokenError(
            f"names for heads need at least {FEWEST} sequences of {gpt.config.n_ctx} characters to "
            f"split in two; got {len(tokens)}: raise --sequences, or give a longer --text"
        )
    with progress_bar("scores") as progress:
        scores = head_scores(gpt, tokens, untrained=untrained, seed=seed, progress=progress)
    with progress_bar("effects") as progress:
        labels = label_heads(gpt, scores, seed=seed, progress=progress)
    write_csv(csv, scores)
    if as_json:
        print(json.dumps({"scores": scores.to_document(), "labels": labels.to_document()}))
        return
    if head is not None:
        print(head_card(gpt, head, scores, labels))
        return
    print(
        f"n = {len(tokens)} sequences of {tokens.shape[1]}, {untrained} untrained models, seed "
        f"{seed}. Seen: above every null, q < {labels.level:g}. Effect: nats a token lost without "
        "the head, on the matching and on the control behaviour, 95 % intervals."
    )
    table = labels.to_frame()
    for row in table.sort_values(
        ["layer", "head", "effect"], ascending=[True, True, False]
    ).to_dict("records"):
        print(
            f"  L{row['layer']}.H{row['head']}  {row['label']:<13} score {row['score']:.2f} "
            f"(null {row['null']:.2f})  effect {row['effect']:+.3f} [{row['effect_low']:+.3f}, "
            f"{row['effect_high']:+.3f}]  control {row['control']:+.3f}  "
            f"{'confirmed' if row['confirmed'] else 'not confirmed'}"
        )
    named = {(r["layer"], r["head"]) for r in table.to_dict("records") if r["confirmed"]}
    of = gpt.config.n_layers * gpt.config.n_heads
    print(f"{len(named)} of {of} heads have a confirmed label")


@app.command(epilog="Example: interp formation models/induction-2l --csv formation.csv")
def formation(
    model: ModelArg,
    sequences: Annotated[
        int, typer.Option("--sequences", min=2, help="random repeating sequences")
    ] = 64,
    text: TextOption = None,
    out: OutOption = None,
    seed: SeedOption = 0,
    csv: CsvOption = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """How did the heads form? Scores, paths and losses over a run's checkpoints."""
    from interp.analysis.heads.formation import checkpoints_of, formation as measure

    last = load(list(checkpoints_of(model).values())[-1], device)
    tokens = sequences_of(model, last, text, None, sequences)
    with progress_bar("checkpoints") as progress:
        result = measure(
            model, tokens, sequences=sequences, seed=seed, device=device_of(device),
            progress=progress,
        )  # fmt: skip
    write_csv(csv, result)
    if out is not None:
        from interp.figures.style import save_figure
        from interp.pages.head_figures import formation_curves

        save_figure(formation_curves(result), out)
    if as_json:
        print(json.dumps(result.to_document()))
        return
    found = result.change_point()
    print(
        f"n = {sequences} random repeating sequences, {len(result.steps)} checkpoints, seed {seed}"
    )
    wide = result.to_frame().pivot(index="step", columns="measure", values="value")
    print(f"  {'step':>6}  repeated loss  first copy  best induction score by layer")
    layers = [c for c in wide.columns if c.startswith("induction:")]
    for step, row in wide.iterrows():
        scores = "  ".join(f"{row[name]:.2f}" for name in layers)
        print(f"  {step:>6}  {row['repeated_loss']:13.3f}  {row['first_loss']:10.3f}  {scores}")
    if found.step is None:
        print("no change point: the loss on repeats never halved from one level to the next")
    else:
        print(
            f"change point: step {found.step} [{found.low}, {found.high}]: the loss on repeats is "
            f"{found.before:.3f} on average before it and {found.after:.3f} after"
        )
