# %% [markdown]
# # Which direct attributions survive intervention?
#
#     python analyses/direct_vs_caused.py models/shakespeare-char
#
# Attribution says what each part adds to the prediction *directly*. Here each part is also taken
# away, by its mean over the other passages (and, to see how much that choice matters, by nothing
# and by another passage's value), and the model is run on. A direct attribution survives if the
# total effect has its sign and between half and twice its size; a part may also do nothing directly
# and matter all the same, through the parts that read it. All are counted, with intervals over
# passages.

# %%
from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pandas as pd

import interp

Ablation = Literal["mean", "zero", "resample"]
SEED = 0
LOOKS: dict[Ablation, tuple[str, str]] = {  # colour and marker
    "mean": ("blue", "s"), "zero": ("for", "o"), "resample": ("against", "^"),
}  # fmt: skip
METRIC = "log_prob"
NEAR_ZERO = 5e-4  # nats; where the figure's axis turns from logarithmic to linear


# %% The verdict on each part, from the intervals alone.
def verdict(row: pd.Series) -> str:
    """What became of a part's direct attribution."""
    direct = row["direct_low"] > 0 or row["direct_high"] < 0
    total = row["total_low"] > 0 or row["total_high"] < 0
    if not direct:
        return "caused, not direct" if total else "neither"
    if not total:
        return "direct, not caused"
    if row["signs_disagree"]:
        return "sign reversed"
    ratio = row["total"] / row["direct"]
    return "survives" if 0.5 <= ratio <= 2 else "understated" if ratio > 2 else "overstated"


def judged(effects: interp.ComponentEffects) -> pd.DataFrame:
    table = effects.to_frame()
    table["verdict"] = table.apply(verdict, axis=1)
    return table


def answer(tables: dict[Ablation, pd.DataFrame], effects: interp.ComponentEffects) -> str:
    counted = [
        f"{ablate}: "
        + ", ".join(f"{n} “{name}”" for name, n in table["verdict"].value_counts().items())
        for ablate, table in tables.items()
    ]
    return (
        f"Of {len(tables['mean'])} parts, each replaced in three ways, what becomes of the direct "
        f"attribution: {'; '.join(counted)}. {size(effects)}."
    )


def size(effects: interp.ComponentEffects) -> str:
    return f"n = {effects.direct.shape[1]} passages × {len(effects.positions)} positions"


# %% How much the choice of what takes a part's place matters.
def draw_ablations(tables: dict[Ablation, pd.DataFrame], n: str) -> interp.Shown:
    parts = tables["mean"]["component"].tolist()
    series = []
    for ablate, table in tables.items():
        colour, marker = LOOKS[ablate]
        rows = table.set_index("component").loc[parts]
        series.append(
            interp.Series(
                name=f"replaced by: {ablate}",
                values=rows["total"].to_numpy(),
                low=rows["total_low"].to_numpy(),
                high=rows["total_high"].to_numpy(),
                colour=colour,
                marker=marker,
            )
        )
    return interp.Shown(
        name="ablations",
        caption=f"Total effect of replacing each part. {n}; bars: 95 % intervals over passages, "
        f"seed {SEED}; within {NEAR_ZERO} nats of zero the axis is linear.",
        mark=interp.Dots(
            names=tuple(parts),
            series=tuple(series),
            label="total effect on log p of the true next character (nats)",
            scale="symlog",
            linear_within=NEAR_ZERO,
        ),
    )


# %% The page.
def sections(
    effects: dict[Ablation, interp.ComponentEffects],
    tables: dict[Ablation, pd.DataFrame],
    shares: interp.ShapleyValues,
    checks: interp.ModelChecks,
) -> Sequence[interp.StudySection]:
    mean = effects["mean"]
    return (
        interp.StudySection(
            heading="What takes a part's place", figures=[draw_ablations(tables, size(mean))]
        ),
        interp.StudySection(
            heading="Direct and total, replaced by the mean",
            figures=mean.shown(),
            tables={"agreement-mean": mean.agreement()},
        ),
        interp.StudySection(
            heading="Every part",
            tables={f"effects-{ablate}": table for ablate, table in tables.items()},
        ),
        interp.StudySection.of(
            shares,
            heading="Shared out, interactions and all",
            text=["Exact Shapley values of the blocks, through the real LayerNorm."],
        ),
        interp.StudySection.of(checks, heading="The model's self-test"),
    )


# %% Start to finish.
def main() -> None:
    parser = argparse.ArgumentParser(description="Which direct attributions survive intervention?")
    parser.add_argument("model", type=Path, nargs="?", default=Path("models/shakespeare-char"))
    parser.add_argument("--passages", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("reports/direct-vs-caused"))
    args = parser.parse_args()

    model = interp.HookedGPT.from_pretrained(args.model)
    tokens = interp.held_out(args.model, args.passages, seed=SEED)
    effects = {
        ablate: interp.component_effects(model, tokens, ablate=ablate, metric=METRIC, seed=SEED)
        for ablate in LOOKS
    }
    tables = {ablate: judged(found) for ablate, found in effects.items()}
    _, cache = model.run_with_cache(tokens[:16])
    shares = interp.shapley_values(model, cache, metric=METRIC)
    checks = interp.check_model(model, tokens[:2], seed=SEED)

    lead = answer(tables, effects["mean"])
    page = interp.write_study(
        args.out,
        "Which direct attributions survive intervention?",
        lead,
        sections(effects, tables, shares, checks),
    )
    columns = ["component", "direct", "total", "total_low", "total_high", "layer_norm_part",
               "downstream_part", "verdict"]  # fmt: skip
    print(tables["mean"][columns].round(4).to_string(index=False))
    print(effects["mean"].agreement().round(2).to_string(index=False))
    print(lead)
    print(f"written to {page}")


if __name__ == "__main__":
    main()
