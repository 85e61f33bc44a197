"""Attention before training: what the initial weights make of it, and what theory predicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp import files
from interp.analysis.scaling.styles import ARM_STYLES
from interp.errors import ConfigError
from interp.figures.marks import Lines, Series
from interp.gpt.config import GPTConfig
from interp.gpt.model import HookedGPT
from interp.lesson.reference import ReferenceGPT, from_reference
from interp.results import intervals
from interp.results.provenance import Provenance
from interp.results.result import Result
from interp.results.shown import Shown, kept
from interp.stream import rows
from interp.stream.metric import check_choice

COMPARED = ("unscaled", "sqrt", "inverse")


@dataclass(frozen=True, kw_only=True)
class InitialAttention(Result):
    """Entropy and std of the scores of untrained attention, beside theory's.

    `entropy` (over ln of the visible keys) and `std` (within a row) [d_head, arm, seed];
    `predicted_std` and `predicted_entropy` [d_head, arm].
    """

    AXES: ClassVar = {
        "d_heads": ("d_head",),
        "entropy": ("d_head", "arm", "seed"),
        "std": ("d_head", "arm", "seed"),
        "predicted_std": ("d_head", "arm"),
        "predicted_entropy": ("d_head", "arm"),
    }
    NAMES: ClassVar = {"arms": "arm"}
    SECTION: ClassVar = "scaling"
    HEADING: ClassVar = "Attention before training"
    arms: tuple[str, ...]
    d_heads: np.ndarray
    entropy: np.ndarray
    std: np.ndarray
    predicted_std: np.ndarray
    predicted_entropy: np.ndarray
    init: str

    @property
    def name(self) -> str:
        return f"initial-attention-{self.init}"

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns init, arm, d_head, predicted_std, std, predicted_entropy, entropy, low, high
        (95 % over the models), n.
        """
        mean, low, high = intervals.mean_interval(self.entropy)
        d_head, arm = np.indices(mean.shape)
        columns = {
            "init": self.init, "arm": np.array(self.arms)[arm.ravel()],
            "d_head": self.d_heads[d_head.ravel()], "predicted_std": self.predicted_std.ravel(),
            "std": self.std.mean(-1).ravel(), "predicted_entropy": self.predicted_entropy.ravel(),
            "entropy": mean.ravel(), "low": low.ravel(), "high": high.ravel(),
            "n": self.entropy.shape[-1],
        }  # fmt: skip
        return pd.DataFrame(columns)

    def figures(self) -> list[Shown]:
        """Returns the entropy by head width, each arm beside theory's."""
        table, series = self.to_frame(), []
        for arm in self.arms:
            one, style = table[table["arm"] == arm], ARM_STYLES[arm]
            series += [
                Series(
                    name=style.name,
                    values=one["entropy"].to_numpy(),
                    low=one["low"].to_numpy(),
                    high=one["high"].to_numpy(),
                    colour=style.colour,
                    marker=style.marker,
                    line=False,
                ),
                Series(
                    name="",
                    values=one["predicted_entropy"].to_numpy(),
                    colour=style.colour,
                    dashed=True,
                ),
            ]
        lines = Lines(
            x=self.d_heads, series=tuple(series), x_label="d_head", x_scale="log2", y_low=0,
            y_high=1.03, y_label="entropy / ln(visible keys)", dodge=True,
            ticks=tuple((float(d), str(d)) for d in self.d_heads),
        )  # fmt: skip
        caption = (
            f"Entropy of untrained attention by head width, initial weights “{self.init}”; bars: "
            "95 % intervals over models. Dashed: independent normal scores of the predicted std. "
            f"n = {self.entropy.shape[-1]} models."
        )
        return [Shown(name=self.name, caption=caption, mark=lines)]


def predicted_std(config: GPTConfig, arm: str) -> float:
    """Returns the std of scores at the start, from the std of the weights alone.

    A normalised input has d_model numbers of mean square 1, so an entry of q = x W_Q has variance
    d_model · init_std²; q·k sums d_head products of two such. Inputs of different keys are taken to
    be independent, which repeated characters are not quite.
    """
    entry = config.d_model * config.init_std**2
    products = math.sqrt(config.d_head)
    return {
        "unscaled": products * entry,
        "inverse": entry / products,
        "qk-norm": 1.0,
    }.get(arm, entry)


def predicted_entropy(
    std: float, n_pos: int, *, draws: int = 4000, seed: int = 0
) -> tuple[float, float]:
    """Returns the mean over rows t = 1 … n_pos − 1 of entropy / ln(t+1), and its standard error.

    Scores are independent normal numbers of one std; row t sees the first t + 1 of them.
    """
    if not std >= 0 or n_pos < 2:
        raise ConfigError(f"std = {std}, n_pos = {n_pos}; expected at least 0 and at least 2")
    scores = std * np.random.default_rng(seed).standard_normal((draws, n_pos))
    scores -= scores.max(1, keepdims=True)
    weights = np.exp(scores)
    total = weights.cumsum(1)
    entropy = np.log(total) - (weights * scores).cumsum(1) / total
    each = (entropy[:, 1:] / np.log(np.arange(2, n_pos + 1))).mean(1)
    return float(each.mean()), float(each.std(ddof=1) / math.sqrt(draws))


def statistics_of_rows(
    scores: Float[Tensor, "batch head pos key"],
) -> tuple[Float[Tensor, " head"], Float[Tensor, " head"]]:
    """Returns means over rows t ≥ 1: entropy over ln(t + 1), and the std within a row.

    The std is the root of the mean unbiased variance of a row's visible scores.
    """
    entropy = rows.normalised(rows.entropy_of_scores(scores))[..., 1:]
    return entropy.mean((0, 2)), rows.variance(scores)[..., 1:].mean((0, 2)).sqrt()


@torch.no_grad()
def initial_attention(
    tokens: Int[Tensor, "batch pos"],
    d_vocab: int,
    d_heads: Sequence[int] = (8, 16, 32, 64, 128, 256, 512),
    *,
    init: Literal["linear", "ours"] = "linear",
    d_model: int = 64,
    seeds: int = 5,
) -> InitialAttention:
    """Returns the entropy of untrained attention, unscaled, over √d and over d, beside theory's.

    One block, one head, on real tokens. "linear" has PyTorch's default weights, as the lesson's
    modules do (uniform, std 1/√(3 d_model); embeddings normal(0, 1)); "ours" has this package's
    (normal, std 0.02).

    Args:
        tokens: sequences.
        d_vocab: size of their vocabulary.
        d_heads: head widths.
        init: which initial weights.
        d_model: width of the stream.
        seeds: untrained models per width.
    """
    check_choice("init", init, ("linear", "ours"))
    shape = (len(d_heads), len(COMPARED))
    entropy, std = np.zeros((*shape, seeds)), np.zeros((*shape, seeds))
    expected, predicted = np.zeros(shape), np.zeros(shape)
    for i, d in enumerate(d_heads):
        config = GPTConfig(
            n_layers=1, n_heads=1, d_model=d_model, d_head=d, n_ctx=tokens.shape[1],
            d_vocab=d_vocab, d_mlp=0,
        )  # fmt: skip
        spread = 1 / math.sqrt(3 * d_model) if init == "linear" else config.init_std
        for seed in range(seeds):
            entropy[i, :, seed], std[i, :, seed] = _measured(_untrained(config, init, seed), tokens)
        for j, arm in enumerate(COMPARED):
            expected[i, j] = predicted_std(config.model_copy(update={"init_std": spread}), arm)
            predicted[i, j] = predicted_entropy(expected[i, j], tokens.shape[1])[0]
    return InitialAttention(
        arms=COMPARED, d_heads=np.array(d_heads), entropy=entropy, std=std,
        predicted_std=expected, predicted_entropy=predicted, init=init,
        provenance=_provenance(tokens),
    )  # fmt: skip


def _provenance(tokens: Tensor) -> Provenance:
    """The tokens'; the models were made for it."""
    ids = np.ascontiguousarray(tokens.cpu().numpy().astype("<i8"))
    return replace(
        Provenance.simulated(), tokens=files.sha256(str(ids.shape).encode() + ids.tobytes()),
        dtype="float32", sequences=ids.shape[0], positions=ids.shape[1],
    )  # fmt: skip


def _measured(model: HookedGPT, tokens: Tensor) -> tuple[list[float], list[float]]:
    """Entropy and std of the one head, its scores unscaled, over √d and over d."""
    d, name = model.config.d_head, "blocks.0.attn.hook_attn_scores"
    found = []
    for multiplier in (math.sqrt(d), 1.0, d**-0.5):
        with model.attn_scaled_by(multiplier):
            _, cache = model.run_with_cache(tokens, names_filter=name)
        found.append([float(x.mean()) for x in statistics_of_rows(cache[name])])
    entropy, std = zip(*found, strict=True)
    return list(entropy), list(std)


def _untrained(shape: GPTConfig, init: str, seed: int) -> HookedGPT:
    if init == "ours":
        return HookedGPT(shape, seed=seed).eval()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return from_reference(ReferenceGPT(shape)).eval()
