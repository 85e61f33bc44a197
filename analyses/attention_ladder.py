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
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import interp

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
RUNGS = tuple(ADDS)
RECIPES = Path(__file__).parent.parent / "models" / "recipes"


# %% One run: a rung and a seed. A finished run is read back, not trained again.
def run(rung: str, seed: int, args: argparse.Namespace) -> dict[str, object]:
    torch.set_num_threads(1)
    values = interp.Recipe.load(RECIPES / f"ladder-{rung}.toml").model_dump(exclude_none=True)
    values["seed"] = seed
    if args.text is not None:
        values["text"] = {"path": args.text}
    steps = values["training"]["steps"] if args.steps is None else args.steps
    values["training"] |= {"steps": steps, "eval_every": steps}  # only the last loss is used
    started = time.perf_counter()
    folder = args.out / "models" / f"{rung}-{seed}"
    model = interp.train(interp.Recipe.parse(values), folder)
    return {
        "rung": rung,
        "seed": seed,
        "loss": float(pd.read_csv(folder / "history.csv")["validation_loss"].iloc[-1]),
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": time.perf_counter() - started,
    }


def all_runs(args: argparse.Namespace) -> Iterator[dict[str, object]]:
    slowest_first = [(rung, seed) for rung in reversed(RUNGS) for seed in range(args.seeds)]
    with ProcessPoolExecutor(args.jobs) as pool:
        waiting = [pool.submit(run, rung, seed, args) for rung, seed in slowest_first]
        for done, future in enumerate(waiting, 1):
            row = future.result()
            print(f"{done}/{len(waiting)}  {row['rung']:<10} seed {row['seed']}  "
                  f"loss {row['loss']:.4f}  {row['seconds']:.0f} s", flush=True)  # fmt: skip
            yield row


# %% Means over seeds, and each step's gain over the rung before it, paired by seed.
def means(runs: pd.DataFrame) -> pd.DataFrame:
    losses = runs.pivot_table(index="seed", columns="rung", values="loss")[list(RUNGS)]
    gains = -losses.diff(axis=1)
    table = pd.DataFrame({"rung": RUNGS, "adds": ADDS.values()})
    table["parameters"] = [runs.loc[runs["rung"] == r, "parameters"].iloc[0] for r in RUNGS]
    for name, values in (("loss", losses), ("gain", gains)):
        ends = interp.mean_interval(values.to_numpy().T)
        for column, end in zip((name, f"{name}_low", f"{name}_high"), ends, strict=True):
            table[column] = end
    table["n"] = len(losses)
    return table


# %% The count models: two ways of smoothing.
def baselines(corpus: interp.Corpus) -> pd.DataFrame:
    encode, d_vocab = corpus.tokenizer().encode, len(corpus.tokenizer())
    train, validation = encode(corpus.train), encode(corpus.validation)
    counts = interp.ngram_losses(train, validation, d_vocab)
    smoothed = interp.ngram_losses(train, validation, d_vocab, smoothing="kneser-ney")
    table = counts.to_frame().rename(columns={"loss": "add 0.01"})
    table["Kneser-Ney"] = smoothed.losses
    return table


# %% The figure: loss by rung, between the baselines.
def draw(table: pd.DataFrame, counts: pd.DataFrame, name: str) -> interp.Shown:
    loss = interp.Series(
        name=f"mean of {table['n'][0]} seeds",
        values=table["loss"].to_numpy(),
        low=table["loss_low"].to_numpy(),
        high=table["loss_high"].to_numpy(),
        marker="o",
        line=False,
    )
    orders = [
        interp.Series(name=f"{row['order']}-gram", values=np.full(len(table), row["add 0.01"]),
                      colour="grey", dashed=True, tag=f"{row['order']}-gram")
        for _, row in counts[counts["order"] > 1].astype({"order": str}).iterrows()
    ]  # fmt: skip
    return interp.Shown(
        name="ladder",
        caption="Validation loss of each rung; dashed: count models, add-0.01. Each window is 8 "
        "characters, so the first in it is predicted from one, the last from eight. "
        f"n = {table['n'][0]} seeds; bars: 95 % intervals over them.",
        mark=interp.Lines(
            x=np.arange(len(table)),
            series=(loss, *orders),
            x_label="rung",
            y_label=f"validation loss on {name} (nats per character)",
            ticks=tuple(enumerate(RUNGS)),
            legend=False,
        ),
    )


# %% The answer.
def answer(table: pd.DataFrame, runs: pd.DataFrame, bigram: float, name: str) -> str:
    losses = table.set_index("rung")["loss"]
    by_seed = runs.pivot_table(index="seed", columns="rung", values="loss")
    same = (by_seed["bigram"] == by_seed["averages"]).all()
    return (
        f"Text: {name}. One attention head reaches {losses['head']:.3f} nats per character, "
        f"{abs(bigram - losses['head']):.3f} {'below' if losses['head'] < bigram else 'above'} the "
        f"bigram counts ({bigram:.3f}); the whole stack reaches {losses['stack']:.3f}. Averages "
        f"that nothing uses change "
        f"{'nothing, to the last bit' if same else 'something, which they must not'}."
    )


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
    counts = baselines(corpus)
    runs = pd.DataFrame(all_runs(args)).sort_values(["rung", "seed"])
    table = means(runs)
    lead = answer(table, runs, counts.set_index("order")["add 0.01"][2], corpus.name)
    sections = [
        interp.StudySection(
            heading="Every rung, same text, batches and budget",
            text=["gain: how much lower the loss is than that of the rung above it, paired by "
                  "seed. Intervals are Student's, over seeds."],
            figures=[draw(table, counts, corpus.name)],
            tables={"ladder": table},
        ),
        interp.StudySection(
            heading="The baselines",
            text=["Count models of order 1 to 5 on the same text, nats per character."],
            tables={"ngrams": counts},
        ),
        interp.StudySection(heading="Every run", tables={"runs": runs}),
    ]  # fmt: skip
    page = interp.write_study(args.out, "What each step of the lesson buys", lead, sections)
    print(table.drop(columns="adds").round(4).to_string(index=False))
    print(counts.round(4).to_string(index=False))
    print(lead)
    print(f"written to {page}")


if __name__ == "__main__":
    main()
