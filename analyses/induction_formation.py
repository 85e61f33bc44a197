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
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import interp

RECIPE = Path(__file__).parent.parent / "models" / "recipes" / "induction-2l.toml"
COLOURS = {"two layers": "blue", "one layer": "vermilion", "fixed period": "pink"}
FEEDS = 0.01  # nats; a path that carries less feeds nothing


@dataclass
class Run:
    arm: str
    formation: interp.Formation
    row: dict[str, Any]
    paths: pd.DataFrame


# %% The recipe, and its two controls.
def recipe_of(arm: str, seed: int, path: Path, steps: int | None) -> interp.Recipe:
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
def run(arm: str, seed: int, args: argparse.Namespace) -> Run:
    torch.set_num_threads(1)
    folder = args.out / "models" / f"{arm.replace(' ', '-')}-{seed}"
    model = interp.train(recipe_of(arm, seed, args.recipe, args.steps), folder)
    assert isinstance(model, interp.HookedGPT)
    formed = interp.formation(folder, seed=seed)
    formed.save(folder / "formation.json")

    random = interp.Recipe.load(args.recipe).text.load()  # random periods, whatever it trained on
    tokens = model.to_tokens(random.passages(model.config.n_ctx, 128))
    paths = pd.DataFrame()
    if model.config.n_layers > 1:
        paths = paths_and_weights(model, tokens[:64], seed)
        paths.insert(0, "arm", arm)
    row = {"arm": arm, "seed": seed} | what_formed(formed) | heads_of(model, tokens, seed)
    return Run(arm, formed, row | {"fed by": fed_by(paths)}, paths)


def what_formed(formed: interp.Formation) -> dict[str, Any]:
    change = formed.change_point()
    return {
        "loss on repeats": float(formed.repeated_loss[-1].mean()),
        "change": np.nan if change.step is None else change.step,
        "low": np.nan if change.low is None else change.low,
        "high": np.nan if change.high is None else change.high,
    }


def heads_of(model: interp.HookedGPT, tokens: torch.Tensor, seed: int) -> dict[str, Any]:
    scores = interp.head_scores(model, tokens, seed=seed)
    labels = interp.label_heads(model, scores, seed=seed).to_frame()
    induction = labels[labels["label"] == "induction"]
    return {
        "best induction score": float(scores.of("induction").max()),
        "best previous score": float(scores.of("previous").max()),
        "seen as induction": names(induction),
        "confirmed": names(induction[induction["confirmed"]]),
    }


def names(table: pd.DataFrame) -> str:
    pairs = zip(table["layer"], table["head"], strict=True)
    return ", ".join(f"L{layer}.H{head}" for layer, head in pairs) or "none"


# %% What each path carries, beside how far its weights overlap.
def paths_and_weights(model: interp.HookedGPT, tokens: torch.Tensor, seed: int) -> pd.DataFrame:
    where = torch.zeros_like(tokens, dtype=torch.bool)
    where[:, model.config.n_ctx // 2 :] = True  # every sequence repeats by then
    paths = interp.path_effects(model, tokens, where=where, seed=seed).to_frame()
    paths["letter"] = paths["receiver"].str[-1].str.upper()
    weights = interp.composition_scores(model, seed=seed).to_frame()
    best = weights.groupby(["sender", "letter"], as_index=False)[["score", "z"]].max()
    paths = paths.merge(best, on=["sender", "letter"])
    paths.insert(0, "seed", seed)
    return paths


def fed_by(paths: pd.DataFrame) -> str:
    if paths.empty:
        return ""
    feeds = paths[(paths["low"] > 0) & (paths["effect"] > FEEDS)]
    return ", ".join(feeds["sender"] + ">" + feeds["letter"])


def all_runs(args: argparse.Namespace) -> Iterator[Run]:
    wanted = [(arm, seed) for arm in COLOURS for seed in range(args.seeds)]
    with ProcessPoolExecutor(args.jobs) as pool:
        waiting = [pool.submit(run, arm, seed, args) for arm, seed in wanted]
        for done, future in enumerate(waiting, 1):
            found = future.result()
            print(
                f"{done}/{len(waiting)}  {found.arm:<12} seed {found.row['seed']}  loss on repeats "
                f"{found.row['loss on repeats']:.3f}  confirmed: {found.row['confirmed']}",
                flush=True,
            )
            yield found


# %% The figure: every run's loss on repeats, with its change point.
def draw(runs: Sequence[Run]) -> interp.Shown:
    steps = runs[0].formation.steps
    series = []
    for arm, colour in COLOURS.items():
        for i, one in enumerate(one for one in runs if one.arm == arm):
            loss = one.formation.repeated_loss.mean(1)
            change = np.where(steps == one.row["change"], loss, np.nan)
            label = arm if i == 0 else ""
            series.append(interp.Series(name=label, values=loss, colour=colour))
            series.append(
                interp.Series(name="", values=change, colour=colour, marker="o", line=False)
            )
    n = runs[0].formation.repeated_loss.shape[1]
    return interp.Shown(
        name="losses",
        caption="Loss from the second copy on, on random tokens with random periods; dots: change "
        f"points. n = {n} sequences, {len(runs) // len(COLOURS)} seeds per arm.",
        mark=interp.Lines(
            x=steps,
            series=tuple(series),
            x_label="step",
            y_label="loss on random repeats (nats per token)",
            y_scale="log",
        ),
    )


# %% The answer.
def answer(name: str, table: pd.DataFrame, paths: pd.DataFrame) -> str:
    two = table[table["arm"] == "two layers"]
    changes = two["change"].dropna()
    controls = table[table["arm"] != "two layers"]
    overlap = paths[(paths["arm"] == "two layers") & (paths["z"] > 5)]
    idle = overlap[overlap["effect"] < FEEDS]
    when = (
        f", the loss on repeats changing at step {changes.median():.0f} (median; from "
        f"{changes.min():.0f} to {changes.max():.0f})"
    )
    return (
        f"Of the recipe {name}, {len(changes)} of {len(two)} seeds come to repeat"
        f"{when if len(changes) else ''}. "
        f"Induction heads are confirmed in {(two['confirmed'] != 'none').sum()} of them, in "
        f"{(controls['confirmed'] != 'none').sum()} of {len(controls)} controls. Of "
        f"{len(overlap)} paths whose weights overlap far beyond chance (z > 5), {len(idle)} carry "
        f"less than {FEEDS} nats{': weights alone mislead' if len(idle) else ''}."
    )


# %% The page.
def sections(
    runs: Sequence[Run], table: pd.DataFrame, paths: pd.DataFrame
) -> Sequence[interp.StudySection]:
    return (
        interp.StudySection(
            heading="Every run",
            text=[
                "change: the checkpoint at which the loss on repeats splits best into two levels, "
                "with a 95 % interval over sequences; empty: it never halved. fed by: paths whose "
                f"interval is above zero and that carry more than {FEEDS} nats.",
            ],
            figures=[draw(runs)],
            tables={"runs": table},
        ),
        interp.StudySection(
            heading="One run in detail: seed 0", figures=runs[0].formation.shown()
        ),
        interp.StudySection(
            heading="Paths, and what the weights say",
            text=["score, z: the largest composition score of the sender with any head of the "
                  "second layer by that letter, against random rotations."],
            tables={"paths": paths},
        ),
    )  # fmt: skip


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

    runs = list(all_runs(args))
    table = pd.DataFrame([one.row for one in runs])
    paths = pd.concat([one.paths for one in runs], ignore_index=True)
    lead = answer(recipe.name, table, paths)
    page = interp.write_study(
        args.out, "How do induction heads form?", lead, sections(runs, table, paths)
    )
    print(table.round(3).to_string(index=False))
    print(lead)
    print(f"written to {page}")


if __name__ == "__main__":
    main()
