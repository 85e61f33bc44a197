# %% [markdown]
# # What does each head do?
#
#     python analyses/head_specialisation.py models/shakespeare-char
#
# Every head's attention is scored on held-out text against three nulls, and a name is given only
# where taking the head away hurts the behaviour that the name is about, and not a control. The same
# is done to an untrained model of the same shape, which should get none. "No name" is an answer.

# %%
from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import interp
from interp.pages import figures

SEED = 0


# %% Random tokens that repeat with random periods: the clean test of induction.
def repeats(model: interp.HookedGPT, n: int) -> torch.Tensor:
    n_ctx, d_vocab = model.config.n_ctx, model.config.d_vocab
    periods = (n_ctx // 8, min(n_ctx // 2, d_vocab))
    tokens, _ = interp.repeated_sequences(d_vocab, n, n_ctx, periods, np.random.default_rng(SEED))
    return tokens


# %% What became of each head, in words.
def survey(model: interp.HookedGPT, labels: interp.HeadLabels) -> pd.DataFrame:
    table = labels.to_frame()
    rows = []
    for layer, head in np.ndindex(model.config.n_layers, model.config.n_heads):
        own = table[(table["layer"] == layer) & (table["head"] == head)]
        confirmed = own[own["confirmed"]]
        rows.append(
            {
                "head": f"L{layer}.H{head}",
                "confirmed": ", ".join(confirmed["label"]) or "none",
                "seen, not confirmed": ", ".join(own[~own["confirmed"]]["label"]),
            }
        )
    return pd.DataFrame(rows)


# %% Start to finish.
def main() -> None:
    parser = argparse.ArgumentParser(description="What does each head do?")
    parser.add_argument("model", type=Path, nargs="?", default=Path("models/shakespeare-char"))
    parser.add_argument("--passages", type=int, default=256)
    parser.add_argument("--untrained", type=int, default=20, help="models of the null")
    parser.add_argument("--out", type=Path, default=Path("reports/head-specialisation"))
    args = parser.parse_args()

    model = interp.HookedGPT.from_pretrained(args.model)
    # Whole contexts of the validation text, none of which the model was trained on.
    text = interp.Recipe.load(args.model / "recipe.toml").text.load()
    tokens = model.to_tokens(text.passages(model.config.n_ctx, args.passages, seed=SEED))
    started = time.perf_counter()
    scores = interp.head_scores(model, tokens, untrained=args.untrained, seed=SEED)
    table = scores.to_frame()
    labels = interp.label_heads(model, scores, seed=SEED)
    seconds = time.perf_counter() - started

    on_repeats = interp.head_scores(
        model, repeats(model, 64), untrained=args.untrained, seed=SEED
    ).to_frame()
    induction = on_repeats[on_repeats["score"] == "induction"]
    fresh = interp.HookedGPT(model.config, model.tokenizer, seed=10_000).eval()
    fresh_scores = interp.head_scores(fresh, tokens, untrained=args.untrained, seed=SEED)
    fresh_labels = interp.label_heads(fresh, fresh_scores, seed=SEED)
    sources = interp.score_sources(model, tokens[:64], seed=SEED)
    copying = interp.copying_scores(model).to_frame()
    paths = interp.path_effects(model, tokens[:32], seed=SEED)

    both = table.merge(
        fresh_scores.to_frame()[["layer", "head", "score", "value"]],
        on=["layer", "head", "score"], suffixes=("", "_untrained_model"),
    )  # fmt: skip
    found = survey(model, labels)
    named = int((found["confirmed"] != "none").sum())
    best = induction.loc[induction["value"].idxmax()]
    lead = (
        f"{named} of {len(found)} heads of {args.model.name} have a name that survives: seen above "
        f"all nulls on half of the text, again on the other half, and needed for what it is about. "
        f"{len(labels.labels) - int(labels.confirmed.sum())} more names were seen and not "
        f"confirmed. An untrained model of the same shape has "
        f"{int(fresh_labels.confirmed.sum()) or 'none'}. On random tokens that repeat the best "
        f"induction score is {best['value']:.2f}, of L{best['layer']}.H{best['head']}, where "
        f"uniform attention gives {best['null']:.2f}."
    )
    drawn = {}
    for result in (scores, labels, paths):
        drawn |= {name: (name, *pair) for name, pair in figures.figures_of(result).items()}
    cards = "\n\n".join(
        str(interp.head_card(model, head, scores, labels)) for head in found["head"]
    )
    page = interp.write_study(
        args.out,
        "What does each head do?",
        lead,
        [
            interp.StudySection(
                heading="Names",
                text=[
                    f"n = {len(tokens)} passages of {tokens.shape[1]} characters, seed {SEED}; "
                    f"{args.untrained} untrained models; {seconds:.0f} s.",
                ],
                figures=[drawn["head-labels"]],
                tables={"survey": found, "labels": labels.to_frame()},
            ),
            interp.StudySection(
                heading="The atlas: where every head looks", figures=[drawn["head-scores"]]
            ),
            interp.StudySection(
                heading="Induction, on random tokens that repeat",
                text=["n = 64 sequences with random periods; nothing but an earlier copy helps."],
                tables={"induction": induction},
            ),
            interp.StudySection(
                heading="Positions or tokens",
                text=[
                    "Shares of the variance of the scores, and how far the pattern moves (bits) "
                    "when tokens, or positions, are put in random order."
                ],
                tables={"sources": sources},
            ),
            interp.StudySection(
                heading="Who reads whom",
                text=["One head's mean in its place, in one reader's input only; natural text."],
                figures=[drawn["path-effects"]],
            ),
            interp.StudySection(
                heading="What they copy",
                text=["Copying is positive for many a head: it is no evidence of induction alone."],
                tables={"copying": copying},
            ),
        ],
    )  # fmt: skip
    (args.out / "cards.txt").write_text(cards + "\n", encoding="utf-8")
    both.to_csv(args.out / "tables" / "scores.csv", index=False)
    print(found.to_string(index=False))
    print(lead)
    print(f"written to {page}; every score in tables/scores.csv, every head's card in cards.txt")


if __name__ == "__main__":
    main()
