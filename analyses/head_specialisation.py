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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import interp

SEED = 0
REPEATS = 64  # sequences of random tokens that repeat


# %% Random tokens that repeat with random periods: the clean test of induction.
def repeats(model: interp.HookedGPT) -> torch.Tensor:
    n_ctx, d_vocab = model.config.n_ctx, model.config.d_vocab
    periods = (n_ctx // 8, min(n_ctx // 2, d_vocab))
    rng = np.random.default_rng(SEED)
    return interp.repeated_sequences(d_vocab, REPEATS, n_ctx, periods, rng)[0]


# %% Scores and names: of a model, and of an untrained one of its shape.
@dataclass
class Named:
    scores: interp.HeadScores
    labels: interp.HeadLabels

    @classmethod
    def of(cls, model: interp.HookedGPT, tokens: torch.Tensor, untrained: int) -> Named:
        scores = interp.head_scores(model, tokens, untrained=untrained, seed=SEED)
        return cls(scores, interp.label_heads(model, scores, seed=SEED))

    def survey(self) -> pd.DataFrame:
        """What became of each head, in words."""
        table = self.labels.to_frame()
        table["head"] = "L" + table["layer"].astype(str) + ".H" + table["head"].astype(str)
        layers, heads = self.scores.values.shape[1:3]
        rows = []
        for layer, head in np.ndindex(layers, heads):
            own = table[table["head"] == f"L{layer}.H{head}"]
            rows.append(
                {
                    "head": f"L{layer}.H{head}",
                    "confirmed": ", ".join(own[own["confirmed"]]["label"]) or "none",
                    "seen, not confirmed": ", ".join(own[~own["confirmed"]]["label"]),
                }
            )
        return pd.DataFrame(rows)


def answer(name: str, named: Named, fresh: Named, induction: pd.DataFrame) -> str:
    survey = named.survey()
    best = induction.nlargest(1, "value").iloc[0]
    return (
        f"{(survey['confirmed'] != 'none').sum()} of {len(survey)} heads of {name} have a name "
        f"that survives: seen above all nulls on half of the text, again on the other half, and "
        f"needed for what it is about. {(~named.labels.confirmed).sum()} more names were seen and "
        f"not confirmed. An untrained model of the same shape has "
        f"{fresh.labels.confirmed.sum() or 'none'}. On random tokens that repeat the best "
        f"induction score is {best['value']:.2f}, of L{best['layer']}.H{best['head']}, where "
        f"uniform attention gives {best['null']:.2f}."
    )


# %% The page.
def sections(
    model: interp.HookedGPT,
    tokens: torch.Tensor,
    named: Named,
    fresh: Named,
    induction: pd.DataFrame,
) -> Sequence[interp.StudySection]:
    keys = ["layer", "head", "score"]
    both = named.scores.to_frame().merge(
        fresh.scores.to_frame()[[*keys, "value"]], on=keys, suffixes=("", "_untrained_model")
    )
    return (
        interp.StudySection(
            heading="Names",
            text=[f"n = {len(tokens)} passages of {tokens.shape[1]} characters, seed {SEED}."],
            figures=named.labels.shown(),
            tables={"survey": named.survey(), "labels": named.labels.to_frame()},
        ),
        interp.StudySection(
            heading="The atlas: where every head looks",
            figures=named.scores.shown(),
            tables={"scores": both},
        ),
        interp.StudySection(
            heading="Induction, on random tokens that repeat",
            text=[
                f"n = {REPEATS} sequences with random periods; nothing but an earlier copy helps."
            ],
            tables={"induction": induction},
        ),
        interp.StudySection.of(
            interp.score_sources(model, tokens[:64], seed=SEED),
            heading="Positions or tokens",
            text=[
                "Shares of the variance of the scores, and how far the pattern moves (bits) "
                "when tokens, or positions, are put in random order."
            ],
        ),
        interp.StudySection.of(
            interp.path_effects(model, tokens[:32], seed=SEED),
            heading="Who reads whom",
            text=["One head's mean in its place, in one reader's input only; natural text."],
        ),
        interp.StudySection.of(
            interp.copying_scores(model),
            heading="What they copy",
            text=["Copying is positive for many a head: it is no evidence of induction alone."],
        ),
    )


# %% Start to finish.
def main() -> None:
    parser = argparse.ArgumentParser(description="What does each head do?")
    parser.add_argument("model", type=Path, nargs="?", default=Path("models/shakespeare-char"))
    parser.add_argument("--passages", type=int, default=256)
    parser.add_argument("--untrained", type=int, default=20, help="models of the null")
    parser.add_argument("--out", type=Path, default=Path("reports/head-specialisation"))
    args = parser.parse_args()

    model = interp.HookedGPT.from_pretrained(args.model)
    untrained = interp.HookedGPT(model.config, model.tokenizer, seed=10_000).eval()
    tokens = interp.held_out(args.model, args.passages, seed=SEED)
    named = Named.of(model, tokens, args.untrained)
    fresh = Named.of(untrained, tokens, args.untrained)
    repeated = interp.head_scores(model, repeats(model), untrained=args.untrained, seed=SEED)
    induction = repeated.to_frame().query("score == 'induction'")

    lead = answer(args.model.name, named, fresh, induction)
    parts = sections(model, tokens, named, fresh, induction)
    page = interp.write_study(args.out, "What does each head do?", lead, parts)
    survey = named.survey()
    cards = [
        str(interp.head_card(model, head, named.scores, named.labels)) for head in survey["head"]
    ]
    (args.out / "cards.txt").write_text("\n\n".join(cards) + "\n", encoding="utf-8")
    print(survey.to_string(index=False))
    print(lead)
    print(f"written to {page}; every score in tables/scores.csv, every head's card in cards.txt")


if __name__ == "__main__":
    main()
