"""Commands that look into a model."""

from __future__ import annotations

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
    PromptOption,
    SeedOption,
    SequencesOption,
    TextOption,
    app,
    load,
    progress_bar,
    say,
    sequences_of,
    written_as_asked,
)
from interp.errors import TokenError

if TYPE_CHECKING:
    from interp.analysis.direct.attribution import LogitAttribution
    from interp.gpt.model import HookedGPT

MANY, LARGEST = 40, 20  # of more rows than MANY, the LARGEST are printed one by one


@app.command(epilog='Example: interp attribute models/shakespeare-char --prompt "ROMEO:" --by head')
def attribute(
    model: ModelArg,
    prompt: PromptOption = None,
    text: TextOption = None,
    by: Annotated[str, typer.Option("--by", help="block, head, source or neuron")] = "block",
    metric: Annotated[
        str, typer.Option("--metric", help="centered, foil, probability or raw")
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

    result = attribution_of(load(model, device), model, prompt, text, by, metric, target, foil)
    if written_as_asked(result, csv, as_json):
        return
    from interp.figures.palette import visible

    assert result.characters is not None  # the passage was text
    characters = result.characters
    shown = [visible(characters[int(t)]) for t in (result.tokens[0, -1], result.targets[0, -1])]
    where = f"the last: after {shown[0]}, towards {shown[1]} ({metric}, logits)"
    print(f"{result.values.shape[2]} positions; {where}")
    rows = sorted(enumerate(result.values[:, 0, -1]), key=lambda row: -abs(row[1]))
    largest = sorted(rows[:LARGEST]) if len(rows) > MANY else sorted(rows)
    for i, value in largest:
        print(f"  {result.components[i]:<10} {value:+9.4f}")
    if others := rows[len(largest) :]:
        print(f"  {f'{len(others):,} others':<10} {sum(value for _, value in others):+9.4f}")
    total, error = result.total[0, -1], result.completeness_error.max()
    print(f"  {'sum':<10} {total:+9.4f}   the model's own; rows miss it by at most {error:.1e}")


@app.command(epilog="Example: interp effects models/shakespeare-char --metric log_prob --by block")
def effects(
    model: ModelArg,
    ablate: Annotated[
        str, typer.Option("--ablate", help="zero, mean or resample: what takes a part's place")
    ] = "mean",
    by: Annotated[str, typer.Option("--by", help="block or head")] = "head",
    metric: Annotated[
        str,
        typer.Option("--metric", help="log_prob, loss, kl, centered, probability, raw or foil"),
    ] = "log_prob",
    foil: Annotated[
        str | None, typer.Option("--foil", help="with --metric foil: the character")
    ] = None,
    text: TextOption = None,
    sequences: SequencesOption = 32,
    seed: SeedOption = 0,
    csv: CsvOption = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Replace each part and run the model on: direct and total effects, with intervals."""
    from interp.analysis.causal.effects import component_effects

    gpt = load(model, device)
    tokens = sequences_of(model, gpt, text, None, sequences)
    with progress_bar("effects") as progress, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        result = component_effects(
            gpt, tokens, ablate=cast(Any, ablate), by=cast(Any, by), metric=metric, foils=foil,
            seed=seed, progress=progress,
        )  # fmt: skip
    for warning in warned:
        say(f"warning: {warning.message}")
    if written_as_asked(result, csv, as_json):
        return
    table = result.to_frame()
    print(
        f"effect on {metric} of replacing each part ({ablate}; reference: {result.reference}); "
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
    from interp.analysis.causal.patching import activation_patching, path_patching
    from interp.figures.palette import visible

    gpt = load(model, device)
    options: dict[str, Any] = {"direction": direction, "target": target, "foil": foil}
    result = (
        activation_patching(gpt, clean, corrupted, cast(Any, site), **options)
        if into is None
        else path_patching(gpt, clean, corrupted, into, **options)
    )
    if written_as_asked(result, csv, as_json):
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


@app.command(epilog="Example: interp check models/shakespeare-char")
def check(
    model: ModelArg,
    prompt: PromptOption = None,
    text: TextOption = None,
    sequences: SequencesOption = 2,
    seed: SeedOption = 0,
    csv: CsvOption = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Self-test of a model: what must not change, does not. Exit status 1 if anything does."""
    from interp.analysis.self_test import check_model

    gpt = load(model, device)
    result = check_model(gpt, sequences_of(model, gpt, text, prompt, sequences), seed=seed)
    if not written_as_asked(result, csv, as_json):
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
    metric: str = "centered",
    target: str | None = None,
    foil: str | None = None,
) -> LogitAttribution:
    """Returns the attribution of one passage."""
    from interp.analysis.direct.attribution import logit_attribution
    from interp.stream.metric import LinearMetric, check_choice
    from interp.stream.reading import By

    check_choice("--by", by, get_args(By))
    check_choice("--metric", metric, get_args(LinearMetric))
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
        gpt,
        activations,
        cast(By, by),
        metric=cast(LinearMetric, metric),
        targets=targets,
        foils=foil,
    )


def _interval(row: dict[Any, Any], name: str, digits: int = 4) -> str:
    if math.isnan(row[f"{name}_low"]):
        return "[unknown]"
    return f"[{row[f'{name}_low']:+.{digits}f}, {row[f'{name}_high']:+.{digits}f}]"
