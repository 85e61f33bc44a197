"""How attention starts: what theory predicts from the initial weights, and what is measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from interp import files
from interp.analysis.scaling.arms import row_statistics
from interp.analysis.scaling.results import InitialAttention
from interp.errors import ConfigError
from interp.gpt.config import GPTConfig
from interp.gpt.model import HookedGPT
from interp.lesson.reference import ReferenceGPT, from_reference
from interp.results.provenance import Provenance, versions
from interp.stream.metric import check_choice

SCORES = "blocks.0.attn.hook_attn_scores"
MULTIPLIED = {"unscaled": 0.5, "sqrt": 0.0, "inverse": -0.5}  # by which power of d_head


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
    modules do (uniform, std 1/√(3 d_model); embeddings normal(0, 1)); "ours" has this
    package's (normal, std 0.02).

    Args:
        tokens: sequences.
        d_vocab: size of their vocabulary.
        d_heads: head widths.
        init: which initial weights.
        d_model: width of the stream.
        seeds: how many untrained models per width.

    Raises:
        ConfigError: an unknown `init`, no widths or seeds, or sequences of one token.
    """
    check_choice("init", init, ("linear", "ours"))
    if not d_heads or seeds < 1:
        raise ConfigError(f"d_heads = {list(d_heads)}, seeds = {seeds}: expected at least one")
    shapes = [
        GPTConfig(
            n_layers=1, n_heads=1, d_model=d_model, d_head=d, n_ctx=tokens.shape[1],
            d_vocab=d_vocab, d_mlp=0,
        )
        for d in d_heads
    ]  # fmt: skip
    stds = np.array([[_predicted(shape, init, arm) for shape in shapes] for arm in MULTIPLIED])
    found = np.array([list(_by_seed(shape, init, tokens, seeds)) for shape in shapes])
    entropy, std = found.transpose(3, 2, 0, 1)  # from [d_head, seed, arm, quantity]
    return InitialAttention(
        arms=tuple(MULTIPLIED), d_heads=np.array(d_heads), predicted_std=stds, std=std,
        predicted_entropy=np.vectorize(lambda s: predicted_entropy(s, tokens.shape[1])[0])(stds),
        entropy=entropy, init=init, provenance=_provenance(tokens),
    )  # fmt: skip


def _provenance(tokens: Tensor) -> Provenance:
    """The tokens', and no model's."""
    ids = np.ascontiguousarray(tokens.cpu().numpy().astype("<i8"))
    return Provenance(
        model="", tokens=files.sha256(str(ids.shape).encode() + ids.tobytes()), dtype="float32",
        sequences=ids.shape[0], positions=ids.shape[1], versions=dict(versions()),
    )  # fmt: skip


def _predicted(shape: GPTConfig, init: str, arm: str) -> float:
    spread = 1 / math.sqrt(3 * shape.d_model) if init == "linear" else shape.init_std
    return predicted_std(shape.model_copy(update={"init_std": spread}), arm)


def _by_seed(
    shape: GPTConfig, init: str, tokens: Tensor, seeds: int
) -> Iterator[list[tuple[float, float]]]:
    """For each untrained model: entropy and std of each arm."""
    for seed in range(seeds):
        model = _untrained(shape, init, seed)
        found = []
        for power in MULTIPLIED.values():
            with model.attn_scaled_by(shape.d_head**power):
                _, cache = model.run_with_cache(tokens, names_filter=SCORES)
            entropy, std = row_statistics(cache[SCORES])
            found.append((float(entropy.mean()), float(std.mean())))
        yield found


def _untrained(shape: GPTConfig, init: str, seed: int) -> HookedGPT:
    if init == "ours":
        return HookedGPT(shape, seed=seed).eval()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return from_reference(ReferenceGPT(shape)).eval()
