# %% [markdown]
# # The lesson's numbers, checked
#
#     python analyses/lesson_exercises.py
#
# Every number that the two lessons state or ask for, beside its exact value and what the code here
# gives: the worked example, exercises 1 to 3, the 8-position simulation, parameter counts, the mask
# and the crop. Where a text is loose or wrong, the right value is given and said so.

# %%
from __future__ import annotations

import argparse
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pandas as pd
import torch
from scipy import special, stats

import interp

SEED = 0
SIZES = (8, 64, 512)
ROWS = 20_000


Row = dict[str, object]
Rung = Literal["bigram", "dense", "positions", "head"]


def entropy_bits(scores: np.ndarray) -> np.ndarray:
    """Entropy of the softmax of scores [..., key]."""
    return np.asarray(stats.entropy(special.softmax(scores, -1), base=2, axis=-1))


# %% The worked example: three positions, head size 2.
def worked_example() -> list[Row]:
    q = np.array([[1.0, 0], [0, 2], [1, 1]])
    k = np.array([[2.0, 0], [0, 1], [1, 1]])
    v = np.array([[1.0, 0], [0, 1], [1, 1]])
    out, weights = interp.causal_attention(q, k, v)
    a, b = np.exp(np.sqrt(2)), np.exp(np.sqrt(0.5))
    rows = [
        ("row 1 weight of key 0", 0.1956, 1 / (1 + a), weights[1, 0], ""),
        ("row 1 weight of key 1", 0.8044, a / (1 + a), weights[1, 1], ""),
        ("row 2 weight of key 0", 0.4011, a / (2 * a + b), weights[2, 0], ""),
        ("row 2 weight of key 1", 0.1978, b / (2 * a + b), weights[2, 1], ""),
        ("row 2 output, first", 0.8022, 2 * a / (2 * a + b), out[2, 0], ""),
        ("row 2 output, second", 0.5989, (a + b) / (2 * a + b), out[2, 1], ""),
        ("row 2 total of exponentials", 10.254, 2 * a + b, 2 * a + b,
         "the text adds parts that are already rounded; it should print 10.255"),
        ("weights of later keys", 0.0, 0.0, weights[np.triu_indices(3, 1)].max(), "exactly 0"),
    ]  # fmt: skip
    return [_row("worked example", *row) for row in rows]


# %% Exercises 1 to 3.
def exercises() -> list[Row]:
    rng = np.random.default_rng(SEED)
    rows = []
    for d in SIZES:
        dots = (rng.standard_normal((ROWS, d)) * rng.standard_normal((ROWS, d))).sum(1)
        note = f"{ROWS:,} products; its kurtosis is 3 + 6/d, so it is not quite normal"
        rows.append(_row("exercise 1", f"variance of q·k, d_k = {d}", d, d, dots.var(), note))
    q, k, v = np.random.default_rng(0).standard_normal((3, 5, 4))
    _, weights = interp.causal_attention(q, k, v)
    future = weights[np.triu_indices(5, 1)].max()
    rows.append(_row("exercise 2", "largest row sum − 1", 0.0, 0.0, weights.sum(-1).max() - 1, ""))
    rows.append(_row("exercise 2", "largest future weight", 0.0, 0.0, future, "exactly 0"))
    draw = np.random.default_rng(1)
    query, keys = draw.standard_normal(64), draw.standard_normal((6, 64))
    raw = keys @ query
    for name, scores in (("raw", raw), ("scaled", raw / 8)):
        bits = float(entropy_bits(scores))
        exact = torch.distributions.Categorical(logits=torch.tensor(scores)).entropy() / np.log(2)
        rows.append(_row("exercise 3", f"entropy of {name} scores (bits)", np.nan, float(exact),
                         bits, f"at most log2(6) = {np.log2(6):.4f}"))  # fmt: skip
    drawn = rng.standard_normal((ROWS, 6)) * 8
    lower = entropy_bits(drawn / 8) < entropy_bits(drawn)
    rows.append(_row("exercise 3", "rows where scaling lowers the entropy", 0, 0, lower.sum(),
                     f"of {ROWS:,}: a theorem, since dH/dβ = −β·Var(s) at scores β·s"))  # fmt: skip
    return rows


# %% The simulation with 8 positions: independent scores, as in the text; and real dot products.
def median_largest(scores: np.ndarray) -> float:
    return float(np.median(special.softmax(scores, -1).max(-1)))


def simulation() -> tuple[list[Row], pd.DataFrame]:
    rng = np.random.default_rng(SEED)
    many = np.random.default_rng(SEED + 1).standard_normal((1_000_000, 8))
    said = {8: 0.664, 64: 0.965, 512: 1.000}
    rows, medians = [], []
    for d in SIZES:
        scores = rng.standard_normal((ROWS, 8))
        unscaled = median_largest(scores * np.sqrt(d))
        note = f"{ROWS:,} rows, as in the text; exact: 10⁶ other rows"
        rows.append(_row("simulation", f"median largest weight, unscaled, d_k = {d}", said[d],
                         median_largest(many * np.sqrt(d)), unscaled, note))  # fmt: skip
        q, k = rng.standard_normal((4000, 1, d)), rng.standard_normal((4000, 8, d))
        dots = (q * k).sum(-1)
        medians.append(
            {
                "d_k": d,
                "independent, unscaled": unscaled,
                "independent, scaled": median_largest(scores),
                "dot products, unscaled": median_largest(dots),
                "dot products, scaled": median_largest(dots / np.sqrt(d)),
            }
        )
    scaled = median_largest(rng.standard_normal((ROWS, 8)))
    note = "0.336 rounds to 0.34; scaled, all d_k are the same draw, so this is no check of d_k"
    rows.append(_row("simulation", "median largest weight, scaled", 0.33, median_largest(many),
                     scaled, note))  # fmt: skip
    return rows, pd.DataFrame(medians)


# %% Parameter counts, the mask and the crop.
def modules() -> list[Row]:
    def model(rung: Rung) -> interp.LadderModel:
        built = interp.build_model(interp.LadderConfig(rung=rung, d_vocab=65))
        assert isinstance(built, interp.LadderModel)
        return built.eval()

    count = {rung: sum(p.numel() for p in model(rung).parameters()) for rung in get_args(Rung)}
    head = model("head")
    rows = [
        ("table of bigrams", 4225, 65**2, count["bigram"], ""),
        ("embeddings and LM_head", 4225, 65 * 32 + 32 * 65 + 65, count["dense"],
         "as many as the table for every C with vocab_size = 2 C + 1"),
        ("with positions", 4481, 4225 + 8 * 32, count["positions"], "not stated; follows"),
        ("with one head", 7553, 4481 + 3 * 32 * 32, count["head"], ""),
        ("state of the one-head model", 7617, 7553 + 64,
         sum(t.numel() for t in head.state_dict().values()), "the mask is state, no parameter"),
    ]  # fmt: skip
    out = [_row("parameters", *row) for row in rows]
    tokens = torch.zeros(1, 8, dtype=torch.long)
    changed = tokens.clone()
    changed[:, 5:] = 7
    with torch.no_grad():
        moved = float((head(tokens)[:, :5] - head(changed)[:, :5]).abs().max())
    note = "exactly 0"
    out.append(_row("mask", "change of earlier outputs by later tokens", 0.0, 0.0, moved, note))
    failed = next((n for n in range(1, 102) if _fails(head, n)), np.nan)
    note = "the mask holds 8 positions"
    out.append(_row("crop", "first length that fails without the crop", 9, 9, failed, note))
    length = head.generate(tokens[:, :1], 100).shape[1]
    out.append(_row("crop", "length written with the crop", 101, 101, length, ""))
    return out


def _fails(model: interp.LadderModel, length: int) -> bool:
    try:
        model(torch.zeros(1, length, dtype=torch.long))
    except interp.TokenError:
        return True
    return False


def _row(where: str, what: str, says: float, exact: float, measured: float, note: str) -> Row:
    return {"where": where, "what": what, "the lesson says": float(says), "exact": float(exact),
            "measured here": float(measured), "note": note}  # fmt: skip


# %% The figures.
def draw_variance() -> interp.Shown:
    rng = np.random.default_rng(SEED)
    sizes = 2 ** np.arange(1, 10)
    raw = np.array(
        [(rng.standard_normal((4000, d)) * rng.standard_normal((4000, d))).sum(1).var(ddof=1)
         for d in sizes]
    )  # fmt: skip
    series = (
        interp.Series(name="d_k, and 1 (theory)", values=sizes, colour="grey"),
        interp.Series(name="", values=np.ones(len(sizes)), colour="grey"),
        interp.Series(name="q·k", values=raw, colour="vermilion", marker="o", line=False),
        interp.Series(name="q·k / √d_k", values=raw / sizes, marker="s", line=False),
    )
    return interp.Shown(
        name="variance",
        caption="The variance of a dot product grows as d_k; divided by √d_k it stays 1. "
        f"n = 4,000 products per point, seed {SEED}.",
        mark=interp.Lines(x=sizes, series=series, x_label="d_k", y_label="variance of the score",
                          x_scale="log2", y_scale="log2"),
    )  # fmt: skip


def draw_softmax() -> interp.Shown:
    rng = np.random.default_rng(1)
    query, keys = rng.standard_normal(64), rng.standard_normal((6, 64))
    raw = keys @ query
    series = tuple(
        interp.Series(name=f"{name}: {entropy_bits(scores):.3f} bits", colour=colour, marker="o",
                      values=special.softmax(scores))
        for name, scores, colour in (("raw scores", raw, "vermilion"),
                                     ("scores / √64", raw / 8, "blue"))
    )  # fmt: skip
    return interp.Shown(
        name="softmax",
        caption="The same scores, raw and scaled, through the softmax (exercise 3: one query, 6 "
        "keys, d_k = 64, seed 1).",
        mark=interp.Dots(names=tuple(f"key {i}" for i in range(len(raw))), series=series,
                         label="attention weight"),
    )  # fmt: skip


# %% Start to finish.
def main() -> None:
    parser = argparse.ArgumentParser(description="The lesson's numbers, checked")
    parser.add_argument("--out", type=Path, default=Path("reports/lesson-exercises"))
    args = parser.parse_args()

    simulated, medians = simulation()
    table = pd.DataFrame([*worked_example(), *exercises(), *simulated, *modules()])
    lead = (
        "Every number of the two lessons beside its exact value and what this package gives. Two "
        "are loose: the total 10.254 should be 10.255, and “about 0.33” is 0.336."
    )
    sections = [
        interp.StudySection(heading="Number by number", tables={"numbers": table}),
        interp.StudySection(
            heading="Why scores are scaled",
            text=["The text's simulation draws the scores of a row independently. Scores of real "
                  "dot products share their query, and the medians differ a little:"],
            figures=[draw_variance(), draw_softmax()],
            tables={"medians": medians},
        ),
    ]  # fmt: skip
    page = interp.write_study(args.out, "The lesson's numbers, checked", lead, sections)
    with pd.option_context("display.width", 200, "display.max_colwidth", 48):
        print(table.drop(columns="note").to_string(index=False))
    print(medians.round(4).to_string(index=False))
    print(f"written to {page}")


if __name__ == "__main__":
    main()
