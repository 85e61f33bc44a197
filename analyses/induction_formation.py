# %% [markdown]
# # How do induction heads form?
#
#     python analyses/induction_formation.py --jobs 2
#     python analyses/induction_formation.py --recipe models/recipes/induction-2l-mlp.toml
#
# A recipe, `induction-2l` or its like with the lesson's MLP, is trained with several seeds, beside
# two controls: one layer, which has nothing to compose, and one fixed period, which can be learned
# by looking so far back. At every checkpoint the loss on repeats, the scores of all heads and the
# paths between the layers are measured on tokens that repeat with *random* periods; at the end
# heads are named, and the heads that feed them are found by cutting paths. Composition scores of
# the weights stand beside.

# %%
from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

import interp
from interp.pages import figures

RECIPE = Path(__file__).parent.parent / "models" / "recipes" / "induction-2l.toml"
COLOURS = {"two layers": "#0072b2", "one layer": "#d55e00", "fixed period": "#cc79a7"}
FEEDS = 0.01  # nats; a path that carries less feeds nothing


# %% The recipe, and its two controls.
def recipe_of(arm: str, seed: int, path: str, steps: int | None) -> interp.Recipe:
    values = interp.Recipe.load(path).model_dump(exclude_none=True)
    values["seed"] = seed
    if steps is not None:
        values["training"]["steps"] = steps
    if arm == "one layer":
        values["model"]["n_layers"] = 1
    if arm == "fixed period":
        longest = values["text"]["max_period"]
        values["text"] |= {"min_period": longest - 1, "max_period": longest - 1}
    return interp.Recipe.parse(values)


# %% One run: train it (or read it back), and measure all its checkpoints.
def run(arm: str, seed: int, path: str, steps: int | None, out: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    folder = Path(out) / "models" / f"{arm.replace(' ', '-')}-{seed}"
    model = interp.train(recipe_of(arm, seed, path, steps), folder)
    formed = interp.formation(folder, seed=seed)
    formed.save(folder / "formation.json")
    change = formed.change_point()

    assert isinstance(model, interp.HookedGPT)
    random = interp.Recipe.load(path).text.load()  # random periods, whatever it was trained on
    n_ctx = model.config.n_ctx
    tokens = model.to_tokens(random.passages(n_ctx, 128))
    scores = interp.head_scores(model, tokens, seed=seed)
    labels = interp.label_heads(model, scores, seed=seed)
    table = labels.to_frame()
    induction = table[(table["label"] == "induction")]
    row: dict[str, Any] = {
        "arm": arm,
        "seed": seed,
        "loss on repeats": float(formed.repeated_loss[-1].mean()),
        "change": np.nan if change.step is None else change.step,
        "low": np.nan if change.low is None else change.low,
        "high": np.nan if change.high is None else change.high,
        "best induction score": float(scores.of("induction").max()),
        "best previous score": float(scores.of("previous").max()),
        "seen as induction": names(induction),
        "confirmed": names(induction[induction["confirmed"]]),
        "fed by": "",
    }
    paths = pd.DataFrame()
    if model.config.n_layers > 1:
        where = torch.zeros_like(tokens[:64], dtype=torch.bool)
        where[:, n_ctx // 2 :] = True  # every sequence repeats by then
        paths = interp.path_effects(model, tokens[:64], where=where, seed=seed).to_frame()
        weights = interp.composition_scores(model, seed=seed)
        paths["receiver layer"] = paths["receiver"].str.split(".").str[0]
        paths["letter"] = paths["receiver"].str[-1].str.upper()
        best = weights.groupby(["sender", "letter"], as_index=False)[["score", "z"]].max()
        paths = paths.merge(best, on=["sender", "letter"]).drop(columns="receiver layer")
        paths.insert(0, "seed", seed)
        paths.insert(0, "arm", arm)
        feeds = paths[(paths["low"] > 0) & (paths["effect"] > FEEDS)]
        row["fed by"] = ", ".join(f"{r.sender}>{r.letter}" for r in feeds.itertuples())
    return {"row": row, "paths": paths, "formation": formed}


def names(table: pd.DataFrame) -> str:
    return ", ".join(f"L{r.layer}.H{r.head}" for r in table.itertuples()) or "none"


# %% The figure: every run's loss on repeats, with its change point.
def draw(runs: list[dict[str, Any]]) -> Figure:
    with figures.style():
        figure = Figure(figsize=(6.4, 3.4))
        axes = figure.subplots()
        seen = set()
        for one in runs:
            arm, formed = one["row"]["arm"], one["formation"]
            mean = formed.repeated_loss.mean(1)
            axes.plot(formed.steps, mean, color=COLOURS[arm], linewidth=1, alpha=0.8,
                      label=None if arm in seen else arm)  # fmt: skip
            seen.add(arm)
            if np.isfinite(one["row"]["change"]):
                at = formed.steps.tolist().index(one["row"]["change"])
                axes.plot(formed.steps[at], mean[at], "o", color=COLOURS[arm], markersize=4)
        axes.set_xlabel("step")
        axes.set_ylabel("loss on random repeats (nats per token)")
        figures.log_scale(axes, "y")
        axes.legend(frameon=False)
        axes.grid(axis="y", alpha=0.25)
        return figure


# %% Start to finish.
def main() -> None:
    parser = argparse.ArgumentParser(description="How do induction heads form?")
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="instead of the recipe's")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    parser.add_argument("--out", type=Path, help="reports/<recipe>-formation by default")
    args = parser.parse_args()
    recipe = interp.Recipe.load(args.recipe)
    args.out = args.out or Path("reports") / f"{recipe.name}-formation"

    wanted = [(arm, seed) for arm in COLOURS for seed in range(args.seeds)]
    runs = []
    with ProcessPoolExecutor(args.jobs) as pool:
        waiting = [pool.submit(run, arm, seed, str(args.recipe), args.steps, str(args.out))
                   for arm, seed in wanted]  # fmt: skip
        for done, future in enumerate(waiting, 1):
            runs.append(future.result())
            row = runs[-1]["row"]
            print(
                f"{done}/{len(waiting)}  {row['arm']:<12} seed {row['seed']}  loss on repeats "
                f"{row['loss on repeats']:.3f}  confirmed: {row['confirmed']}",
                flush=True,
            )
    table = pd.DataFrame([one["row"] for one in runs])
    paths = pd.concat([one["paths"] for one in runs], ignore_index=True)

    two = table[table["arm"] == "two layers"]
    formed = two["change"].dropna()
    controls = table[table["arm"] != "two layers"]
    overlap = paths[(paths["arm"] == "two layers") & (paths["z"] > 5)]
    idle = overlap[overlap["effect"] < FEEDS]
    when = (
        f", the loss on repeats changing at step {formed.median():.0f} (median; from "
        f"{formed.min():.0f} to {formed.max():.0f})"
    )
    lead = (
        f"Of the recipe {recipe.name}, {len(formed)} of {len(two)} seeds come to repeat"
        f"{when if len(formed) else ''}. "
        f"Induction heads are confirmed in {int((two['confirmed'] != 'none').sum())} of them, in "
        f"{int((controls['confirmed'] != 'none').sum())} of {len(controls)} controls. Of "
        f"{len(overlap)} paths whose weights overlap far beyond chance (z > 5), {len(idle)} carry "
        f"less than {FEEDS} nats{': weights alone mislead' if len(idle) else ''}."
    )
    first = next(one for one in runs if one["row"]["arm"] == "two layers")
    ((name, (curves, caption)),) = figures.figures_of(first["formation"]).items()
    page = interp.write_study(
        args.out,
        "How do induction heads form?",
        lead,
        [
            interp.StudySection(
                heading="Every run",
                text=[
                    "change: the checkpoint at which the loss on repeats splits best into two "
                    "levels, with a 95 % interval over sequences; empty: it never halved. fed by: "
                    f"paths whose interval is above zero and that carry more than {FEEDS} nats.",
                ],
                figures=[
                    ("losses", draw(runs),
                     "Loss from the second copy on, on random tokens with random periods; dots: "
                     f"change points. n = 64 sequences, {args.seeds} seeds an arm."),
                ],
                tables={"runs": table},
            ),
            interp.StudySection(
                heading="One run in detail: seed 0", figures=[(name, curves, caption)]
            ),
            interp.StudySection(
                heading="Paths, and what the weights say",
                text=["score, z: the largest composition score of the sender with any head of the "
                      "second layer by that letter, against random rotations."],
                tables={"paths": paths},
            ),
        ],
    )  # fmt: skip
    print(table.round(3).to_string(index=False))
    print(lead)
    print(f"written to {page}")


if __name__ == "__main__":
    main()
