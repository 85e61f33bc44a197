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
from interp.report import figures

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
def draw_ablations(tables: dict[str, pd.DataFrame], n: int, positions: int) -> Figure:
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
        axes.set_title(
            f"n = {n} passages × {positions} positions; bars: 95 % bootstrap-t, seed {SEED};\n"
            f"an arrow: below {LEFT}, or negative",
            loc="left",
        )
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
        ablate: interp.component_effects(model, tokens, ablate=ablate, scalar=SCALAR, seed=SEED)
        for ablate in ABLATIONS
    }
    _, cache = model.run_with_cache(tokens[:16])
    shares = interp.shapley_values(model, cache, scalar=SCALAR)
    checks = interp.check_model(model, tokens[:2], seed=SEED)

    args.out.mkdir(parents=True, exist_ok=True)
    tables = {ablate: result.to_frame() for ablate, result in effects.items()}
    for ablate, table in tables.items():
        table["verdict"] = verdicts(table)
        table.to_csv(args.out / f"effects-{ablate}.csv", index=False)
        effects[ablate].agreement().to_csv(args.out / f"agreement-{ablate}.csv", index=False)
    n, positions = effects["mean"].direct.shape[1], len(effects["mean"].positions)
    figures.save_figure(draw_ablations(tables, n, positions), args.out / "ablations")
    for result in (effects["mean"], shares):
        for name, (figure, _) in figures.figures_of(result).items():
            figures.save_figure(figure, args.out / name)
    interp.write_report(
        args.out / "report", model, [*effects.values(), shares, checks], title="direct-vs-caused"
    )

    columns = ["component", "direct", "total", "total_low", "total_high", "layer_norm_part",
               "downstream_part", "verdict"]  # fmt: skip
    print(tables["mean"][columns].round(4).to_string(index=False))
    print(effects["mean"].agreement().round(2).to_string(index=False))
    for ablate, table in tables.items():
        counts = table["verdict"].value_counts().to_dict()
        print(f"{ablate:>8}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    print(f"n = {n} passages × {positions} positions; written to {args.out}")


if __name__ == "__main__":
    main()
