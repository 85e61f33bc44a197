# %% [markdown]
# # What does each step of the lesson buy?
#
#     python analyses/attention_ladder.py --text tinyshakespeare.txt
#
# The lesson climbs from a table of bigrams to a GPT. Here every rung is trained on the same text,
# with the same batches, budget and optimiser, several seeds each; its loss stands beside count
# models of order 1 to 5, and each step's gain is the paired difference of the same seeds.

# %%
from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

import interp
from interp.pages import figures

RUNGS = ("bigram", "averages", "dense", "positions", "average", "head", "heads", "block", "stack")
ADDS = {
    "bigram": "the table of bigrams",
    "averages": "averages, thrown away",
    "dense": "dense embeddings, LM_head",
    "positions": "position embeddings",
    "average": "the past's average, used",
    "head": "one attention head instead",
    "heads": "four heads, projected",
    "block": "residual, LayerNorm, MLP",
    "stack": "four blocks",
}
RECIPES = Path(__file__).parent.parent / "models" / "recipes"


# %% One run: a rung and a seed. A finished run is read back, not trained again.
def run(rung: str, seed: int, text: str | None, steps: int | None, out: str) -> dict[str, object]:
    torch.set_num_threads(1)
    values = interp.Recipe.load(RECIPES / f"ladder-{rung}.toml").model_dump(exclude_none=True)
    values["seed"] = seed
    if text is not None:
        values["text"] = {"path": text}
    steps = values["training"]["steps"] if steps is None else steps
    values["training"] |= {"steps": steps, "eval_every": steps}  # only the last loss is used
    recipe = interp.Recipe.parse(values)
    corpus = recipe.text.load()
    started = time.perf_counter()
    folder = Path(out) / "models" / f"{rung}-{seed}"
    model = interp.train(recipe, folder, corpus=corpus)
    return {
        "rung": rung,
        "seed": seed,
        "loss": float(pd.read_csv(folder / "history.csv")["validation_loss"].iloc[-1]),
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": time.perf_counter() - started,
    }


# %% Means over seeds, and each step's gain over the rung before it, paired by seed.
def summary(runs: pd.DataFrame) -> pd.DataFrame:
    losses = runs.pivot(index="seed", columns="rung", values="loss")[list(RUNGS)]
    rows = []
    for i, rung in enumerate(RUNGS):
        loss, loss_low, loss_high = interp.mean_interval(losses[rung].to_numpy())
        row = {
            "rung": rung,
            "adds": ADDS[rung],
            "parameters": int(runs.loc[runs["rung"] == rung, "parameters"].iloc[0]),
            "loss": float(loss),
            "loss_low": float(loss_low),
            "loss_high": float(loss_high),
        }
        gained = np.full(len(losses), np.nan)
        if i:
            gained = (losses[RUNGS[i - 1]] - losses[rung]).to_numpy()
        ends = map(float, interp.mean_interval(gained))
        row |= dict(zip(("gain", "gain_low", "gain_high"), ends, strict=True))
        rows.append(row | {"n": len(losses)})
    return pd.DataFrame(rows)


# %% The figure: loss by rung, between the baselines.
def draw(table: pd.DataFrame, baselines: interp.NGramLosses, name: str) -> Figure:
    with figures.style():
        figure = Figure(figsize=(7.2, 4.0))
        axes = figure.subplots()
        y = np.arange(len(table))
        for order, loss in zip(baselines.orders, baselines.losses, strict=True):
            if order > 1:
                axes.axvline(loss, color=figures.GREY, linewidth=0.9, linestyle="--", zorder=0)
                axes.annotate(
                    f"{order}-gram", (loss, 1), (0, 3), xycoords=("data", "axes fraction"),
                    textcoords="offset points", rotation=90, ha="center", va="bottom",
                    fontsize=7, color=figures.GREY,
                )  # fmt: skip
        reach = np.stack((table["loss"] - table["loss_low"], table["loss_high"] - table["loss"]))
        axes.errorbar(table["loss"], y, xerr=np.nan_to_num(reach), fmt="o", color=figures.BLUE,
                      markersize=4, elinewidth=1.2, capsize=2)  # fmt: skip
        for i, row in enumerate(table.itertuples()):
            axes.annotate(f"{row.loss:.3f}", (row.loss, i), (0, 5), textcoords="offset points",
                          ha="center", va="bottom", fontsize=7, color=figures.BLUE,
                          bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5})  # fmt: skip
        labels = [f"{row.rung}: {row.adds}" for row in table.itertuples()]
        axes.set_yticks(y, labels, fontsize=8)
        axes.set_ylim(len(table) - 0.5, -0.9)
        axes.set_xlabel(f"validation loss on {name} (nats per character)")
        axes.set_title(
            f"n = {table['n'][0]} seeds; bars: 95 % interval over them", loc="left", pad=32
        )
        return figure


# %% Start to finish.
def main() -> None:
    parser = argparse.ArgumentParser(description="What does each step of the lesson buy?")
    parser.add_argument("--text", help="a UTF-8 file; by default the recipes' own text")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="instead of the recipes' 10,000")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    parser.add_argument("--out", type=Path, default=Path("reports/attention-ladder"))
    args = parser.parse_args()

    corpus = interp.load_corpus(path=args.text) if args.text else interp.load_corpus()
    encode = corpus.tokenizer().encode
    baselines = interp.ngram_losses(
        encode(corpus.train), encode(corpus.validation), len(corpus.tokenizer())
    )
    smoothed = interp.ngram_losses(
        encode(corpus.train), encode(corpus.validation), len(corpus.tokenizer()),
        smoothing="kneser-ney",
    )  # fmt: skip
    slowest_first = [(rung, seed) for rung in reversed(RUNGS) for seed in range(args.seeds)]
    started = time.perf_counter()
    rows = []
    with ProcessPoolExecutor(args.jobs) as pool:
        waiting = [
            pool.submit(run, rung, seed, args.text, args.steps, str(args.out))
            for rung, seed in slowest_first
        ]
        for done, future in enumerate(waiting, 1):
            row = future.result()
            rows.append(row)
            print(f"{done}/{len(waiting)}  {row['rung']:<10} seed {row['seed']}  "
                  f"loss {row['loss']:.4f}  {row['seconds']:.0f} s", flush=True)  # fmt: skip
    runs = pd.DataFrame(rows).sort_values(["rung", "seed"])
    table = summary(runs)
    counts = baselines.to_frame().rename(columns={"loss": "add 0.01"})
    counts["Kneser-Ney"] = smoothed.losses

    losses = table.set_index("rung")["loss"]
    bigram = baselines.losses[1]
    unchanged = runs.pivot(index="seed", columns="rung", values="loss")
    same = bool((unchanged["bigram"] == unchanged["averages"]).all())
    lead = (
        f"Text: {corpus.name}. One attention head reaches {losses['head']:.3f} nats per character, "
        f"{abs(bigram - losses['head']):.3f} {'below' if losses['head'] < bigram else 'above'} the "
        f"bigram counts ({bigram:.3f}); the whole stack reaches {losses['stack']:.3f}. Averages "
        f"that nothing uses change "
        f"{'nothing, to the last bit' if same else 'something, which they must not'}."
    )
    interp.write_study(
        args.out,
        "What each step of the lesson buys",
        lead,
        [
            interp.StudySection(
                heading="Every rung, same text, batches and budget",
                text=[
                    "gain: how much lower the loss is than that of the rung above it, paired by "
                    "seed. Intervals are Student's, over seeds.",
                ],
                figures=[
                    (
                        "ladder",
                        draw(table, baselines, corpus.name),
                        "Validation loss of each rung; dashed: count models, add-0.01. Each "
                        "window is 8 characters, so the first in it is predicted from one, the "
                        f"last from eight. n = {args.seeds} seeds.",
                    )
                ],
                tables={"ladder": table},
            ),
            interp.StudySection(
                heading="The baselines",
                text=["Count models of order 1 to 5 on the same text, nats per character."],
                tables={"ngrams": counts},
            ),
            interp.StudySection(heading="Every run", tables={"runs": runs}),
        ],
    )  # fmt: skip
    print(table.drop(columns="adds").round(4).to_string(index=False))
    print(counts.round(4).to_string(index=False))
    print(lead)
    print(f"{time.perf_counter() - started:.0f} s; written to {args.out / 'report.html'}")


if __name__ == "__main__":
    main()
