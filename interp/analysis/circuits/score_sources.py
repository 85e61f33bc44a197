"""Whether a head's scores are about positions or about tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import ConfigError, TokenError
from interp.figures.marks import Dots, Series
from interp.gpt.model import HookedGPT, Input
from interp.hooks import HookPoint
from interp.results.document import to_numpy
from interp.results.provenance import Provenance
from interp.results.result import Result
from interp.results.shown import Shown, kept
from interp.stream import rows

MEASURES = ("offset_share", "token_share", "tokens_moved", "positions_moved")


@dataclass(frozen=True, kw_only=True)
class ScoreSources(Result):
    """Whether each head's scores are about positions or about tokens, [layer, head].

    `offset_share` and `token_share`: of the variance of the scores before the softmax, over all
    rows t ≥ 1, less each row's mean (which the softmax does not see), what is explained by the
    offset of query and key alone, and by the pair of their tokens alone. `tokens_moved` and
    `positions_moved`: how far the pattern moves, in Jensen-Shannon divergence (bits, 0 to 1; mean
    over rows t ≥ 1), when the tokens are put in random order and when the positions' embeddings
    are; 0: the head does not look at what was put in disorder; NaN: a model without positions.
    """

    AXES: ClassVar = dict.fromkeys(MEASURES, ("layer", "head"))
    SECTION: ClassVar = "circuits"
    HEADING: ClassVar = "How heads work together"
    offset_share: np.ndarray
    token_share: np.ndarray
    tokens_moved: np.ndarray
    positions_moved: np.ndarray

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns layer, head, offset_share, token_share, tokens_moved, positions_moved, n
        (sequences)."""
        layer, head = np.indices(self.offset_share.shape)
        columns = {"layer": layer, "head": head} | {name: getattr(self, name) for name in MEASURES}
        table = pd.DataFrame({name: value.ravel() for name, value in columns.items()})
        return table.assign(n=self.provenance.sequences)

    def figures(self) -> list[Shown]:
        """Returns the four numbers of each head."""
        table = self.to_frame()
        looks = zip(
            MEASURES,
            ("explained by the offset", "explained by the tokens", "moved by shuffled tokens",
             "moved by shuffled positions"),
            ("blue", "vermilion", "sky", "amber"), ("o", "s", "^", "v"), strict=True,
        )  # fmt: skip
        series = tuple(
            Series(name=name, values=table[of].to_numpy(), colour=colour, marker=marker, line=False)
            for of, name, colour, marker in looks
        )
        mark = Dots(
            names=tuple(f"L{i}.H{j}" for i, j in zip(table["layer"], table["head"], strict=True)),
            series=series, label="share of the scores' variance; divergence of patterns (bits)",
        )  # fmt: skip
        caption = (
            "Whether each head looks at positions or at tokens: how much of the variance of its "
            "scores the offset of query and key explains, and the pair of their tokens; and how "
            "far its pattern moves when tokens or positions are shuffled (0: not at all). "
            f"n = {self.provenance.sequences} sequences, seed {self.provenance.seed}."
        )
        return [Shown(name=self.name, caption=caption, mark=mark)]


@torch.no_grad()
def score_sources(model: HookedGPT, tokens: Input, *, seed: int = 0) -> ScoreSources:
    """Returns whether each head's scores are about positions or about tokens.

    Args:
        model: the model, with at least one block.
        tokens: sequences of at least two tokens.
        seed: of the random orders.

    Raises:
        ConfigError: no blocks.
        TokenError: sequences of one token.
    """
    if not model.blocks:
        raise ConfigError("a model without blocks has no heads")
    ids = model.to_tokens(tokens)
    if ids.shape[1] < 2:
        raise TokenError("sequences of at least two tokens are needed: row 0 sees one key only")
    scores = {name: _scores(model, *given) for name, given in _orders(model, ids, seed).items()}
    own = scores.pop("as it is")
    shares = np.stack([_shares(layer, ids, model.config.d_vocab) for layer in own], axis=1)
    unknown = np.full(shares.shape[1:], np.nan)
    moved = {
        name: np.stack([to_numpy(_divergence(*pair)) for pair in zip(own, other, strict=True)])
        for name, other in scores.items()
    }
    return ScoreSources(
        offset_share=shares[0], token_share=shares[1], tokens_moved=moved["tokens_moved"],
        positions_moved=moved.get("positions_moved", unknown),
        provenance=Provenance.of(model, ids, seed=seed),
    )  # fmt: skip


def _orders(model: HookedGPT, ids: Tensor, seed: int) -> dict[str, tuple[Tensor, list[Any]]]:
    """The tokens and hooks of each run: as it is, tokens in disorder, positions in disorder."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(ids.shape, generator=generator).argsort(1).to(ids.device)
    places = torch.randperm(ids.shape[1], generator=generator).to(ids.device)

    def moved(x: Tensor, hook: HookPoint) -> Tensor:
        return x[:, places]

    runs: dict[str, tuple[Tensor, list[Any]]] = {"as it is": (ids, [])}
    runs["tokens_moved"] = (ids.gather(1, order), [])
    if model.config.positional:
        runs["positions_moved"] = (ids, [("hook_pos_embed", moved)])
    return runs


def _scores(
    model: HookedGPT, ids: Int[Tensor, "batch pos"], changes: list[Any]
) -> list[Float[Tensor, "batch head pos key"]]:
    """The scores before the softmax of every layer."""
    hooks = [f"blocks.{i}.attn.hook_attn_scores" for i in range(len(model.blocks))]
    with model.hooks(fwd_hooks=changes):
        _, cache = model.run_with_cache(ids, names_filter=hooks, return_type=None)
    return [cache[hook] for hook in hooks]


def _shares(
    scores: Float[Tensor, "batch head pos key"], ids: Int[Tensor, "batch pos"], d_vocab: int
) -> Float[np.ndarray, "share head"]:
    """What offsets and pairs of tokens explain of one layer's scores."""
    q, k = np.tril_indices(ids.shape[1])
    q, k = q[q > 0], k[q > 0]  # [place]: every visible key of rows t ≥ 1
    offset = np.broadcast_to(q - k, (len(ids), len(q))).ravel()
    pair = to_numpy(ids[:, q] * d_vocab + ids[:, k]).ravel()
    visible = to_numpy(scores)[:, :, q, k].astype(np.float64)  # [batch head place]
    by_head = [_less_row_means(visible[:, h], q).ravel() for h in range(visible.shape[1])]
    return np.array([[_explained(values, of) for values in by_head] for of in (offset, pair)])


def _less_row_means(values: np.ndarray, of_row: np.ndarray) -> np.ndarray:
    """[batch place] less the mean of its row; `of_row` [place] says which."""
    out = np.empty_like(values)
    for row in np.unique(of_row):
        at = of_row == row
        out[:, at] = values[:, at] - values[:, at].mean(1, keepdims=True)
    return out


def _explained(values: np.ndarray, groups: np.ndarray) -> float:
    """The share of the variance that lies between groups, corrected for chance (ω²-like).

    Groups of their own for few values would explain much by chance: the mean square within groups
    is taken off for each.
    """
    _, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    total = np.square(values).sum()
    if total == 0:
        return 0.0
    means = np.bincount(group, values) / counts
    between = (counts * np.square(means)).sum()
    free = len(values) - len(counts)
    within = (total - between) / free if free > 0 else 0.0
    return float(np.clip((between - len(counts) * within) / total, 0, 1))


def _divergence(a: Tensor, b: Tensor) -> Float[Tensor, " head"]:
    """Jensen-Shannon divergence in bits of two score maps' softmaxes, mean over rows t ≥ 1."""
    p, q = (x[:, :, 1:].softmax(-1) for x in (a, b))
    bits = (rows.entropy((p + q) / 2) - (rows.entropy(p) + rows.entropy(q)) / 2) / math.log(2)
    return bits.mean((0, 2))
