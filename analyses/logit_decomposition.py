# %% [markdown]
# # Which block makes this prediction?
#
#     python analyses/logit_decomposition.py models/shakespeare-char
#
# Splits the logit of the true next character, relative to the mean logit, into embeddings,
# attention, MLPs and constants, over passages of the validation text; asks which block contributes
# most, with intervals over passages; and shows one passage in full.
#
# The contributions are direct ones, with the final LayerNorm's scale as it was: what a block writes
# for a later block to use is counted where the later block writes it.

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


# %% The statistic: each component's mean contribution, with an interval over passages.
def mean_contributions(parts: interp.LogitAttribution) -> pd.DataFrame:
    by_passage = parts.values.mean(axis=2)  # [component, passage]
    mean, low, high = interp.mean_interval(by_passage, seed=SEED)
    return pd.DataFrame(
        {
            "component": parts.components,
            "mean": mean,
            "low": low,
            "high": high,
            "share_of_positions_largest": _share_largest(parts),
            "n_passages": by_passage.shape[1],
        }
    )


def _share_largest(parts: interp.LogitAttribution) -> np.ndarray:
    largest = parts.values.argmax(axis=0).ravel()
    return np.bincount(largest, minlength=len(parts.components)) / largest.size


# %% The figure.
def draw(table: pd.DataFrame) -> Figure:
    with figures.style():
        figure = Figure(figsize=(5.4, 0.9 + 0.21 * len(table)))
        axes = figure.subplots()
        rows = np.arange(len(table))
        errors = np.stack((table["mean"] - table["low"], table["high"] - table["mean"]))
        colours = [figures.ORANGE if mean > 0 else figures.PURPLE for mean in table["mean"]]
        axes.barh(rows, table["mean"], color=colours, height=0.7)
        axes.errorbar(table["mean"], rows, xerr=errors, fmt="none", ecolor="black", capsize=2, lw=1)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks(rows, table["component"])
        axes.set_ylim(len(table) - 0.4, -0.6)
        axes.set_xlabel(
            "mean contribution to logit − mean logit of the true next character (logits)"
        )
        return figure


# %% Start to finish.
def main() -> None:
    parser = argparse.ArgumentParser(description="Which block makes this prediction?")
    parser.add_argument("model", type=Path, nargs="?", default=Path("models/shakespeare-char"))
    parser.add_argument("--passages", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("reports/logit-decomposition"))
    args = parser.parse_args()

    model = interp.HookedGPT.from_pretrained(args.model)
    # Whole contexts of the validation text, none of which the model was trained on.
    text = interp.Recipe.load(args.model / "recipe.toml").text.load()
    tokens = model.to_tokens(text.passages(model.config.n_ctx, args.passages, seed=SEED))
    _, cache = model.run_with_cache(tokens)
    parts = interp.logit_attribution(model, cache, by="block")
    heads = interp.logit_attribution(model, cache, by="head")

    tables = {"block": mean_contributions(parts), "head": mean_contributions(heads)}
    first = tables["block"].loc[tables["block"]["mean"].idxmax()]
    lead = (
        f"The largest mean contribution is {first['component']}'s: {first['mean']:.2f} "
        f"[{first['low']:.2f}, {first['high']:.2f}] of {parts.total.mean():.2f} logits; it is the "
        f"largest at {first['share_of_positions_largest']:.0%} of {parts.total.size:,} positions. "
        f"The rows miss the model's own logits by at most {parts.completeness_error.max():.1e}."
    )
    caption = (
        "Mean contribution to the logit of the true next character, less the mean logit. "
        f"n = {first['n_passages']} passages, {parts.total.size:,} positions; bars: 95 % intervals "
        f"over passages, seed {SEED}."
    )
    one = figures.figures_of(parts)["contributions-by-block"]
    page = interp.write_study(
        args.out,
        "Which block makes this prediction?",
        lead,
        [
            *(interp.StudySection(
                heading=f"By {by}",
                figures=[(f"mean-contributions-by-{by}", draw(table), caption)],
                tables={f"mean-contributions-by-{by}": table},
            ) for by, table in tables.items()),
            interp.StudySection(heading="One passage", figures=[("one-passage", *one)]),
        ],
    )  # fmt: skip
    print(tables["block"].round(3).to_string(index=False))
    print(lead)
    print(f"written to {page}")


if __name__ == "__main__":
    main()
