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

import interp

SEED = 0


# %% The statistic: each component's mean contribution, with an interval over passages.
def mean_contributions(parts: interp.LogitAttribution) -> pd.DataFrame:
    by_passage = parts.values.mean(axis=2)  # [component, passage]
    mean, low, high = interp.mean_interval(by_passage, seed=SEED)
    largest = parts.values.argmax(axis=0).ravel()
    times = np.bincount(largest, minlength=len(parts.components))
    return pd.DataFrame(
        {
            "component": parts.components,
            "mean": mean,
            "low": low,
            "high": high,
            "share_of_positions_largest": times / largest.size,
            "n_passages": by_passage.shape[1],
        }
    )


# %% The figure.
def draw(table: pd.DataFrame, name: str) -> interp.Shown:
    means = interp.Series(
        name="mean",
        values=table["mean"].to_numpy(),
        low=table["low"].to_numpy(),
        high=table["high"].to_numpy(),
        marker="o",
    )
    return interp.Shown(
        name=name,
        caption="Mean contribution to the logit of the true next character, less the mean logit. "
        f"n = {table['n_passages'][0]} passages; bars: 95 % intervals over passages, seed {SEED}.",
        mark=interp.Dots(
            names=tuple(table["component"]),
            series=(means,),
            label="mean contribution to logit − mean logit of the true next character (logits)",
        ),
    )


# %% The answer.
def answer(table: pd.DataFrame, parts: interp.LogitAttribution) -> str:
    first = table.nlargest(1, "mean").iloc[0]
    return (
        f"The largest mean contribution is {first['component']}'s: {first['mean']:.2f} "
        f"[{first['low']:.2f}, {first['high']:.2f}] of {parts.total.mean():.2f} logits; it is the "
        f"largest at {first['share_of_positions_largest']:.0%} of {parts.total.size:,} positions. "
        f"The rows miss the model's own logits by at most {parts.completeness_error.max():.1e}."
    )


# %% Start to finish.
def main() -> None:
    parser = argparse.ArgumentParser(description="Which block makes this prediction?")
    parser.add_argument("model", type=Path, nargs="?", default=Path("models/shakespeare-char"))
    parser.add_argument("--passages", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("reports/logit-decomposition"))
    args = parser.parse_args()

    model = interp.HookedGPT.from_pretrained(args.model)
    tokens = interp.held_out(args.model, args.passages, seed=SEED)
    _, cache = model.run_with_cache(tokens)
    following = tokens[:, 1:]  # after the last character of a passage none is known
    blocks = interp.logit_attribution(model, cache, by="block", targets=following)
    heads = interp.logit_attribution(model, cache, by="head", targets=following)
    sections = []
    for parts in (blocks, heads):
        table, name = mean_contributions(parts), f"mean-contributions-by-{parts.by}"
        sections.append(
            interp.StudySection(
                heading=f"By {parts.by}", figures=[draw(table, name)], tables={name: table}
            )
        )
    sections.append(interp.StudySection(heading="One passage", figures=blocks.shown()))
    table = mean_contributions(blocks)
    lead = answer(table, blocks)
    page = interp.write_study(args.out, "Which block makes this prediction?", lead, sections)
    print(table.round(3).to_string(index=False))
    print(lead)
    print(f"written to {page}")


if __name__ == "__main__":
    main()
