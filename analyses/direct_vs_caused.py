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
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import interp
from interp.pages import figures

SEED = 0
ABLATIONS = ("mean", "zero", "resample")
SCALAR = "log_prob"
LEFT = 5e-4  # nats; where the figure's log scale begins


# %% The verdict on each part, from the intervals alone.
def verdicts(table: pd.DataFrame) -> pd.Series:
    """What became of each part's direct attribution."""

    def one(row: pd.Series) -> str:
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

    return table.apply(one, axis=1)


# %% How much the choice of what takes a part's place matters.
def draw_ablations(tables: dict[str, pd.DataFrame]) -> Figure:
    shown = tables["mean"]["component"].tolist()
    colours = {"mean": figures.BLUE, "zero": figures.ORANGE, "resample": figures.PURPLE}
    markers = {"mean": "s", "zero": "o", "resample": "^"}
    with figures.style():
        figure = Figure(figsize=(5.6, 1.2 + 0.24 * len(shown)))
        axes = figure.subplots()
        for i, (ablate, table) in enumerate(tables.items()):
            rows = table.set_index("component").loc[shown]
            y = np.arange(len(shown)) + 0.22 * (i - 1)
            axes.hlines(y, rows["total_low"].clip(lower=LEFT), rows["total_high"].clip(lower=LEFT),
                        color=colours[ablate], linewidth=1)  # fmt: skip
            on = rows["total"].to_numpy() > LEFT
            axes.plot(rows["total"][on], y[on], markers[ablate], color=colours[ablate],
                      markersize=3.5, label=ablate)  # fmt: skip
            axes.plot(np.full((~on).sum(), LEFT), y[~on], "<", color=colours[ablate],
                      markersize=4, clip_on=False)  # fmt: skip
        axes.set_xlim(left=LEFT)
        figures.log_scale(axes, "x")
        axes.set_yticks(range(len(shown)), shown, fontsize=7)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.grid(axis="x", alpha=0.25)
        axes.set_xlabel("total effect on log p of the true next character (nats, log scale)")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper right", ncols=3,
                      frameon=False, title="replaced by")  # fmt: skip
        return figure


# %% Start to finish.
def main() -> None:
    parser = argparse.ArgumentParser(description="Which direct attributions survive intervention?")
    parser.add_argument("model", type=Path, nargs="?", default=Path("models/shakespeare-char"))
    parser.add_argument("--passages", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("reports/direct-vs-caused"))
    args = parser.parse_args()

    model = interp.HookedGPT.from_pretrained(args.model)
    # Whole contexts of the validation text, none of which the model was trained on.
    text = interp.Recipe.load(args.model / "recipe.toml").text.load()
    tokens = model.to_tokens(text.passages(model.config.n_ctx, args.passages, seed=SEED))
    effects = {
        ablate: interp.component_effects(model, tokens, ablate=ablate, metric=SCALAR, seed=SEED)
        for ablate in ABLATIONS
    }
    _, cache = model.run_with_cache(tokens[:16])
    shares = interp.shapley_values(model, cache, metric=SCALAR)
    checks = interp.check_model(model, tokens[:2], seed=SEED)

    tables = {ablate: result.to_frame() for ablate, result in effects.items()}
    counted = []
    for ablate, table in tables.items():
        table["verdict"] = verdicts(table)
        counts = table["verdict"].value_counts()
        counted.append(f"{ablate}: " + ", ".join(f"{n} “{name}”" for name, n in counts.items()))
    n, positions = effects["mean"].direct.shape[1], len(effects["mean"].positions)
    lead = (
        f"Of {len(tables['mean'])} parts, each replaced in three ways, what becomes of the direct "
        f"attribution: {'; '.join(counted)}. n = {n} passages × {positions} positions."
    )
    page = interp.write_study(
        args.out,
        "Which direct attributions survive intervention?",
        lead,
        [
            interp.StudySection(
                heading="What takes a part's place",
                figures=[
                    ("ablations", draw_ablations(tables),
                     f"Total effect of replacing each part. n = {n} passages × {positions} "
                     f"positions; bars: 95 % intervals over passages, seed {SEED}; an arrow: below "
                     f"{LEFT} nats, or negative."),
                ],
            ),
            interp.StudySection(
                heading="Direct and total, replaced by the mean",
                figures=[(name, *drawn) for name, drawn in
                         figures.figures_of(effects["mean"]).items()],
                tables={"agreement-mean": effects["mean"].agreement()},
            ),
            interp.StudySection(
                heading="Every part",
                tables={f"effects-{ablate}": table for ablate, table in tables.items()},
            ),
            interp.StudySection(
                heading="Shared out, interactions and all",
                text=["Exact Shapley values of the blocks, through the real LayerNorm."],
                figures=[(name, *drawn) for name, drawn in figures.figures_of(shares).items()],
            ),
            interp.StudySection(
                heading="The model's self-test", tables={"checks": checks.to_frame()}
            ),
        ],
    )  # fmt: skip

    columns = ["component", "direct", "total", "total_low", "total_high", "layer_norm_part",
               "downstream_part", "verdict"]  # fmt: skip
    print(tables["mean"][columns].round(4).to_string(index=False))
    print(effects["mean"].agreement().round(2).to_string(index=False))
    print(lead)
    print(f"written to {page}")


if __name__ == "__main__":
    main()
