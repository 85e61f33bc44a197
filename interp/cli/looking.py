"""Commands that look into a model."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from interp.cli.common import (
    CsvOption,
    DeviceOption,
    JsonOption,
    ModelArg,
    OutOption,
    PromptOption,
    RecipeArg,
    SeedOption,
    TextOption,
    app,
    device_of,
    load,
    progress_bar,
    say,
    sequences_of,
)
from interp.errors import ConfigError, TokenError

if TYPE_CHECKING:
    from interp.analysis.attribution import LogitAttribution
    from interp.analysis.results import Result
    from interp.gpt.model import HookedGPT

MANY, LARGEST = 40, 20  # of more rows than MANY, the LARGEST are printed one by one


@app.command(epilog='Example: interp attribute models/shakespeare-char --prompt "ROMEO:" --by head')
def attribute(
    model: ModelArg,
    prompt: PromptOption = None,
    text: TextOption = None,
    by: Annotated[str, typer.Option("--by", help="block, head, source or neuron")] = "block",
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
    csv: CsvOption = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Split the logit of each next character into the parts that made it."""

    result = attribution_of(load(model, device), model, prompt, text, by, scalar, target, foil)
    write_csv(csv, result)
    if as_json:
        print(json.dumps(result.to_document()))
        return
    from interp.gpt.tokenizer import visible

    assert result.characters is not None  # the passage was text
    characters = result.characters
    shown = [visible(characters[int(t)]) for t in (result.tokens[0, -1], result.targets[0, -1])]
    where = f"the last: after {shown[0]}, towards {shown[1]} ({scalar}, logits)"
    print(f"{result.values.shape[2]} positions; {where}")
    rows = sorted(enumerate(result.values[:, 0, -1]), key=lambda row: -abs(row[1]))
    largest = sorted(rows[:LARGEST]) if len(rows) > MANY else sorted(rows)
    for i, value in largest:
        print(f"  {result.components[i]:<10} {value:+9.4f}")
    if others := rows[len(largest) :]:
        print(f"  {f'{len(others):,} others':<10} {sum(value for _, value in others):+9.4f}")
    total, error = result.total[0, -1], result.completeness_error.max()
    print(f"  {'sum':<10} {total:+9.4f}   the model's own; rows miss it by at most {error:.1e}")


@app.command(epilog="Example: interp effects models/shakespeare-char --scalar log_prob --by block")
def effects(
    model: ModelArg,
    ablate: Annotated[
        str, typer.Option("--ablate", help="zero, mean or resample: what takes a part's place")
    ] = "mean",
    by: Annotated[str, typer.Option("--by", help="block or head")] = "head",
    scalar: Annotated[
        str,
        typer.Option("--scalar", help="log_prob, loss, kl, centered, probability, raw or foil"),
    ] = "log_prob",
    foil: Annotated[
        str | None, typer.Option("--foil", help="with --scalar foil: the character")
    ] = None,
    text: TextOption = None,
    sequences: Annotated[
        int, typer.Option("--sequences", min=1, help="how many, of n_ctx characters")
    ] = 32,
    seed: SeedOption = 0,
    csv: CsvOption = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Replace each part and run the model on: direct and total effects, with intervals."""
    from interp.analysis.effects import component_effects

    gpt = load(model, device)
    tokens = sequences_of(model, gpt, text, None, sequences)
    with progress_bar("effects") as progress, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        result = component_effects(
            gpt, tokens, ablate=cast(Any, ablate), by=cast(Any, by), scalar=scalar, foils=foil,
            seed=seed, progress=progress,
        )  # fmt: skip
    for warning in warned:
        say(f"warning: {warning.message}")
    write_csv(csv, result)
    if as_json:
        print(json.dumps(result.to_document()))
        return
    table = result.to_frame()
    print(
        f"effect on {scalar} of replacing each part ({ablate}; reference: {result.reference}); "
        f"n = {len(tokens)} sequences × {len(result.positions)} positions; 95 % intervals, "
        f"seed {seed}\n"
        f"{'part':<10} {'direct':>8} {'':<18} {'total':>8} {'':<18} {'LayerNorm':>10} "
        f"{'downstream':>10}"
    )
    for row in table.to_dict("records"):
        flag = "  signs disagree" if row["signs_disagree"] else ""
        print(
            f"{row['component']:<10} {row['direct']:+8.4f} {_interval(row, 'direct'):<18} "
            f"{row['total']:+8.4f} {_interval(row, 'total'):<18} {row['layer_norm_part']:+10.4f} "
            f"{row['downstream_part']:+10.4f}{flag}"
        )
    print("agreement of direct and total, over the parts of a layer:")
    for row in result.agreement().to_dict("records"):
        if row["n"] > 2:
            print(
                f"  layer {row['layer']:<4} n = {row['n']:<3} Pearson {row['pearson']:+.2f} "
                f"{_interval(row, 'pearson', 2)}  Spearman {row['spearman']:+.2f} "
                f"{_interval(row, 'spearman', 2)}"
            )


@app.command(
    epilog='Example: interp patch models/shakespeare-char --clean "the king" --corrupted "the ring"'
)
def patch(
    model: ModelArg,
    clean: Annotated[str, typer.Option("--clean", help="the prompt")],
    corrupted: Annotated[str, typer.Option("--corrupted", help="another of the same length")],
    site: Annotated[
        str,
        typer.Option("--site", help="resid_pre, resid_mid, attn_out, mlp_out or head"),
    ] = "head",
    into: Annotated[
        str | None,
        typer.Option("--into", help="only the paths into this reader: L2.H1.q, L2.mlp, logits …"),
    ] = None,
    direction: Annotated[str, typer.Option("--direction", help="denoise or noise")] = "denoise",
    target: Annotated[
        str | None, typer.Option("--target", help="the character that is right after --clean")
    ] = None,
    foil: Annotated[
        str | None, typer.Option("--foil", help="the character that it is compared with")
    ] = None,
    csv: CsvOption = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Run one prompt with pieces of another: where does the difference sit?"""
    from interp.analysis.patching import activation_patching, path_patching
    from interp.gpt.tokenizer import visible

    gpt = load(model, device)
    options: dict[str, Any] = {"direction": direction, "target": target, "foil": foil}
    result = (
        activation_patching(gpt, clean, corrupted, cast(Any, site), **options)
        if into is None
        else path_patching(gpt, clean, corrupted, into, **options)
    )
    write_csv(csv, result)
    if as_json:
        print(json.dumps(result.to_document()))
        return
    print(
        f"{result.what}, {direction}; logit of {visible(result.target)} − {visible(result.foil)} "
        f"after position {result.position}: clean {result.clean[0]:+.3f}, "
        f"corrupted {result.corrupted[0]:+.3f}\nshare of the difference that each patch moves:"
    )
    rows = sorted(zip(result.shares, result.labels, strict=True), key=lambda row: -abs(row[0]))
    for share, label in rows[:LARGEST]:
        print(f"  {label:<20} {share:+7.3f}")
    if len(rows) > LARGEST:
        print(f"  {len(rows) - LARGEST} more, none larger than {abs(rows[LARGEST][0]):.3f}")


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
    sequences: Annotated[
        int, typer.Option("--sequences", min=1, help="how many, of n_ctx characters")
    ] = 16,
    seed: SeedOption = 0,
    csv: CsvOption = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Multiply a model's attention scores: what becomes of entropy and loss?"""
    from interp.analysis.scaling import attention_scaling

    values = _numbers("--multipliers", multipliers, float)
    gpt = load(model, device)
    tokens = sequences_of(model, gpt, text, None, sequences)
    with progress_bar("scaling") as progress:
        result = attention_scaling(gpt, tokens, values, each=each, seed=seed, progress=progress)
    write_csv(csv, result)
    if as_json:
        print(json.dumps(result.to_document()))
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
    from interp.analysis import scaling_sweep as sweep
    from interp.training.corpus import load_corpus
    from interp.training.recipe import Recipe

    settings = Recipe.load(recipe)
    folder = out or Path("reports") / f"{settings.name}-sweep"
    with progress_bar("runs") as progress:
        result = sweep.scaling_sweep(
            settings, folder, arms=sweep.ARMS if arms == "all" else arms.split(","),
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
    sequences: Annotated[
        int, typer.Option("--sequences", min=1, help="how many, of n_ctx characters")
    ] = 128,
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
    from interp.analysis.components import component
    from interp.analysis.head_cards import head_card
    from interp.analysis.heads import head_scores
    from interp.analysis.labels import FEWEST, label_heads

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
    from interp.analysis.formation import checkpoints_of
    from interp.analysis.formation import formation as measure

    last = load(list(checkpoints_of(model).values())[-1], device)
    tokens = sequences_of(model, last, text, None, sequences)
    with progress_bar("checkpoints") as progress:
        result = measure(
            model, tokens, sequences=sequences, seed=seed, device=device_of(device),
            progress=progress,
        )  # fmt: skip
    write_csv(csv, result)
    if out is not None:
        from interp.report.head_figures import formation_curves
        from interp.report.style import save_figure

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


@app.command(epilog="Example: interp check models/shakespeare-char")
def check(
    model: ModelArg,
    prompt: PromptOption = None,
    text: TextOption = None,
    sequences: Annotated[
        int, typer.Option("--sequences", min=1, help="how many, of n_ctx characters")
    ] = 2,
    seed: SeedOption = 0,
    csv: CsvOption = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Self-test of a model: what must not change, does not. Exit status 1 if anything does."""
    from interp.analysis.checks import check_model

    gpt = load(model, device)
    result = check_model(gpt, sequences_of(model, gpt, text, prompt, sequences), seed=seed)
    write_csv(csv, result)
    if as_json:
        print(json.dumps(result.to_document()))
    else:
        for row in result.to_frame().to_dict("records"):
            how = row["note"] or f"{row['error']:.1e} (tolerance {row['tolerance']:.0e})"
            print(f"{row['outcome']:<15} {row['kind']:<7} {row['check']:<40} {how}")
    if not result.passed:
        raise typer.Exit(1)


def attribution_of(
    gpt: HookedGPT,
    folder: Path,
    prompt: str | None = None,
    text: Path | None = None,
    by: str = "block",
    scalar: str = "centered",
    target: str | None = None,
    foil: str | None = None,
) -> LogitAttribution:
    """Returns the attribution of one passage."""
    from interp.analysis.attribution import logit_attribution
    from interp.analysis.readout import Scalar, check_choice
    from interp.analysis.residual import By

    check_choice("--by", by, get_args(By))
    check_choice("--scalar", scalar, get_args(Scalar))
    tokens = sequences_of(folder, gpt, text, prompt, 1)
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


def write_csv(path: Path | None, result: Result) -> None:
    """Writes the result's table, if a path was given."""
    from interp import files

    if path is not None:
        files.write_text(path, result.to_frame().to_csv(index=False, lineterminator="\n"))


def _interval(row: dict[Any, Any], name: str, digits: int = 4) -> str:
    if math.isnan(row[f"{name}_low"]):
        return "[unknown]"
    return f"[{row[f'{name}_low']:+.{digits}f}, {row[f'{name}_high']:+.{digits}f}]"
