# %% [markdown]
# # Does dividing by √d_k do what the textbooks say?
#
#     python analyses/sqrt_dk_scaling.py models/shakespeare-char --jobs 2
#
# "Without the division by √d_k, softmax saturates and gradients vanish." Here the sentence is taken
# apart and each part is measured: what theory says of scores of a given spread; how large the
# spread really is in untrained models; what comes back through the softmax; what training does with
# and without the scale (and with the scale moved into the initial weights, which separates the
# function from its optimisation); and what a trained model loses when its scale is changed.
# Predictions stand beside each measurement.

# %%
from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import special

import interp

SEED = 0
SIZES = (8, 64, 512)
RECIPE = Path(__file__).parent.parent / "models" / "recipes" / "sqrt-dk.toml"


# %% Theory: softmax of 8 independent normal scores; and of real dot products.
def theory() -> pd.DataFrame:
    rows = []
    for d in SIZES:
        for arm, std in (("unscaled", np.sqrt(d)), ("over √d_k", 1.0)):
            s = interp.softmax_statistics(float(std), 8, seed=SEED)
            rows.append(
                {
                    "d_k": d, "scores": arm, "std": float(std),
                    "median largest weight": s.median_largest[0], "± ": s.median_largest[1],
                    "entropy / ln 8": s.entropy_normalised[0], "±": s.entropy_normalised[1],
                    "mean p(1−p)": s.slope[0],
                    "median largest, dot products": dot_products(d, std / np.sqrt(d)),
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def dot_products(d: int, multiplier: float, rows: int = 4000) -> float:
    rng = np.random.default_rng([SEED, d])
    scores = multiplier * (
        rng.standard_normal((rows, 1, d)) * rng.standard_normal((rows, 8, d))
    ).sum(-1)
    return float(np.median(special.softmax(scores, -1).max(-1)))


# %% Gradients: what comes back through the softmax to the scores and to the query.
def gradients() -> pd.DataFrame:
    tables = []
    for d in SIZES:
        for arm, multiplier in (("unscaled", 1.0), ("over √d_k", d**-0.5), ("over d_k", 1 / d)):
            table = interp.gradient_statistics(d, multiplier, seed=SEED).to_frame()
            table.insert(0, "d_k", d)
            table.insert(1, "scores", arm)
            tables.append(table)
    table = pd.concat(tables, ignore_index=True)
    return table.rename(columns={"of": "gradient to"})


# %% Untrained models: the spread that scores really start with, by nn.Linear's weights and ours.
def untrained(
    corpus: interp.Corpus, n_ctx: int = 64, sequences: int = 16
) -> list[interp.InitialAttention]:
    ids = corpus.tokenizer().encode(corpus.validation[: n_ctx * sequences])
    tokens = torch.tensor(ids).view(sequences, n_ctx)
    d_vocab = len(corpus.tokenizer())
    return [
        interp.initial_attention(tokens, d_vocab, init="linear"),
        interp.initial_attention(tokens, d_vocab, init="ours"),
    ]


# %% A trained model, rescaled: the multiplier √d_head takes its own scaling away.
@dataclass
class Rescaled:
    result: interp.AttentionScaling
    table: pd.DataFrame
    gap: float  # between three ways to say by how much a head's scale matters

    @classmethod
    def of(cls, model: interp.HookedGPT, tokens: torch.Tensor) -> Rescaled:
        removed = float(np.sqrt(model.config.d_head))
        multipliers = sorted({0.0, 0.25, 0.5, 2**-0.5, 1.0, 2**0.5, 2.0, 4.0, removed})
        result = interp.attention_scaling(model, tokens, multipliers, seed=SEED)
        columns = ["loss", "low", "high", "entropy_nats", "entropy_normalised", "max_weight"]
        table = result.to_frame().groupby("multiplier", as_index=False)[columns].mean()
        identity = interp.scale_identity(model, tokens[:16])
        gap = max(float(np.abs(identity[w] - identity["scale"]).max()) for w in ("W_Q", "W_K"))
        return cls(result, table, gap)


# %% The verdict: each clause from a number of the tables.
def verdict(
    back: pd.DataFrame, lesson: interp.InitialAttention, arms: pd.DataFrame, post: pd.DataFrame
) -> str:
    """One paragraph; every number in it stands in a table of the page."""
    return " ".join([saturation(lesson), vanishing(back), *of_training(arms), calibration(post)])


def saturation(lesson: interp.InitialAttention) -> str:
    entropy = lesson.to_frame().pivot_table(index="d_head", columns="arm", values="entropy")
    scaled, unscaled = entropy["sqrt"], entropy["unscaled"]
    return (
        "Saturation is real, but it is a matter of the scores' std, not of d_k alone: with the "
        f"lesson's own initial weights scaled attention starts all but uniform (entropy "
        f"{scaled.min():.3f} to {scaled.max():.3f} of its maximum at every width), and unscaled "
        f"attention falls from {unscaled[8]:.3f} at d_k = 8 to {unscaled[512]:.3f} at 512: small "
        "unscaled heads are not saturated."
    )


def vanishing(back: pd.DataFrame) -> str:
    q = back[(back["gradient to"] == "q") & (back["d_k"] == 512)].set_index("scores")
    raw, scaled = q.loc["unscaled"], q.loc["over √d_k"]
    return (
        "“Gradients vanish” is half true: at d_k = 512 the median gradient to a query is "
        f"{raw['q50']:.2g} unscaled against {scaled['q50']:.2g} scaled, but the mean is the larger "
        f"one unscaled ({raw['mean']:.2g} against {scaled['mean']:.2g}): most rows are dead and a "
        "few explode."
    )


def of_training(arms: pd.DataFrame) -> Sequence[str]:
    rows = {(row["arm"], row["d_head"]): row for _, row in arms.iterrows()}
    small, large = arms["d_head"].min(), arms["d_head"].max()
    clauses = []
    for arm, what in (
        ("unscaled", "Trained without the scale, the loss differs from that of “sqrt”"),
        ("matched", "With W_Q and W_K started d^(−¼) smaller, so as the same function, it differs"),
    ):
        if (arm, large) in rows and "against_sqrt" in arms:
            by = " and ".join(_against(rows[arm, d], d) for d in sorted({small, large}))
            clauses.append(f"{what} by {by}, each at its best learning rate.")
    for arm in ("inverse", "unscaled"):
        if (arm, large) in rows and "against_sqrt" in arms:
            clauses.append(_undone(arm, rows[arm, large], rows["sqrt", large], large))
    return clauses


def calibration(post: pd.DataFrame) -> str:
    best, last = post.nsmallest(1, "loss").iloc[0], post.iloc[-1]
    own = post[post["multiplier"] == 1].iloc[0]
    return (
        f"In the trained model the scale is calibrated, no more: its loss, {own['loss']:.3f} nats "
        f"as it is, is least at ×{best['multiplier']:g}; it is {post.iloc[0]['loss']:.2f} with "
        f"uniform attention, and {last['loss']:.2f} with scores times {last['multiplier']:.3g}."
    )


def _against(row: pd.Series, d: int) -> str:
    low, high = row["against_sqrt_low"], row["against_sqrt_high"]
    found = f"{row['against_sqrt']:+.3f} nats [{low:+.3f}, {high:+.3f}] at d_k = {d}"
    return found if low > 0 or high < 0 else f"{found} (not to be told from zero)"


def _undone(arm: str, row: pd.Series, sqrt: pd.Series, d: int) -> str:
    """Did training undo the constant: did the std move towards that of "sqrt"?"""
    name = "too small a constant, 1/d_k," if arm == "inverse" else "the missing scale"
    first, last, there = row["std_first"], row["std_last"], sqrt["std_last"]
    nearer = abs(np.log(last / there)) < abs(np.log(first / there))
    return (
        f"Training {'undoes' if nearer else 'does not undo'} {name} at d_k = {d}: the std of "
        f"the scores goes from {first:.2g} to {last:.2g}, that of “sqrt” to {there:.2g}."
    )


# %% The page.
def simulated(
    ideal: pd.DataFrame, initial: list[interp.InitialAttention], back: pd.DataFrame, text: str
) -> Sequence[interp.StudySection]:
    return (
        interp.StudySection(
            heading="Theory: eight normal scores through a softmax",
            text=["A dot product of d_k independent products has std √d_k; divided by √d_k it has "
                  "1, for every d_k: the scaled rows are one draw. 10⁶ rows, ± one standard error; "
                  "real dot products share their query (4,000 rows)."],
            tables={"theory": ideal},
        ),
        interp.StudySection.of(
            *initial,
            heading="Untrained models: theory against measurement",
            text=["The theory's std follows from the initial weights alone: nn.Linear's (the "
                  "lesson's) and normal ones of std 0.02 (GPT-2's, ours). One head, 64 positions "
                  f"of {text}. Repeated characters make real scores spread a little less."],
        ),
        interp.StudySection(
            heading="What comes back through the softmax",
            text=["Norms over 20,000 rows of 8 keys with normal q, k and incoming gradients. Mean "
                  "and median disagree about which is larger."],
            tables={"gradients": back},
        ),
    )  # fmt: skip


def trained(
    sweep: interp.ScalingSweep, arms: pd.DataFrame, rescaled: Rescaled, name: str
) -> Sequence[interp.StudySection]:
    _, _, _, sequences = rescaled.result.loss.shape
    return (
        interp.StudySection(
            heading="Training",
            text=[f"{len(sweep.arms)} arms × {len(sweep.d_heads)} widths × "
                  f"{len(sweep.learning_rates)} learning rates × {len(sweep.seeds)} seeds, "
                  f"{sweep.steps[-1]} steps each, the same batches for all arms of a seed. The "
                  "table shows each arm at its best rate, chosen by the same runs."],
            figures=sweep.shown(),
            tables={"by-arm": arms},
        ),
        interp.StudySection(
            heading="A trained model, rescaled",
            text=[f"{name}: scores of all heads multiplied; "
                  f"{rescaled.table['multiplier'].iloc[-1]:.3g} takes its own scaling away. "
                  f"n = {sequences} sequences. For each head c·∂L/∂c = ⟨W_Q, ∂L/∂W_Q⟩ = "
                  f"⟨W_K, ∂L/∂W_K⟩, here to within {rescaled.gap:.1e}."],
            figures=rescaled.result.shown(),
            tables={"rescaled": rescaled.table},
        ),
    )  # fmt: skip


# %% Start to finish.
def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Does dividing by √d_k do what the textbooks say?",
        epilog="The grid takes some twenty minutes on two cores; given again, it goes on.",
    )
    parser.add_argument("model", type=Path, nargs="?", default=Path("models/shakespeare-char"))
    parser.add_argument("--recipe", type=Path, default=RECIPE, help="of the sweep's model")
    parser.add_argument("--text", help="a UTF-8 file to train the sweep on")
    parser.add_argument("--d-heads", default="8,32,128,256")
    parser.add_argument("--learning-rates", default="0.001,0.003,0.01")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--sequences", type=int, default=64, help="for the trained model")
    parser.add_argument("--out", type=Path, default=Path("reports/sqrt-dk-scaling"))
    return parser.parse_args()


def progress(done: int, of: int) -> None:
    if done % 10 == 0 or done == of:
        print(f"sweep: {done}/{of} runs", flush=True)


def main() -> None:
    args = arguments()
    model = interp.HookedGPT.from_pretrained(args.model)
    tokens = interp.held_out(args.model, args.sequences, seed=SEED)
    recipe = interp.Recipe.load(args.recipe)
    corpus = interp.load_corpus(path=args.text) if args.text else recipe.text.load()
    assert isinstance(corpus, interp.Corpus), "the untrained models read characters"

    ideal, back, initial = theory(), gradients(), untrained(corpus)
    print(ideal.round(4).to_string(index=False), *initial, sep="\n")
    sweep = interp.scaling_sweep(
        recipe, args.out / "sweep", corpus=corpus, seeds=args.seeds, jobs=args.jobs,
        d_heads=[int(d) for d in args.d_heads.split(",")],
        learning_rates=[float(rate) for rate in args.learning_rates.split(",")],
        progress=progress,
    )  # fmt: skip
    arms = sweep.by_arm()
    rescaled = Rescaled.of(model, tokens)

    found = verdict(back, initial[0], arms, rescaled.table)
    page = interp.write_study(
        args.out,
        "Does dividing by √d_k do what the textbooks say?",
        found,
        [
            *simulated(ideal, initial, back, corpus.name),
            *trained(sweep, arms, rescaled, args.model.name),
        ],
    )
    print(arms.round(4).to_string(index=False))
    print(rescaled.table.round(4).to_string(index=False))
    print(found)
    print(f"written to {page}")


if __name__ == "__main__":
    main()
